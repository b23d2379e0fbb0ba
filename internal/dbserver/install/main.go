// SPDX-License-Identifier: Apache-2.0

// Command install installs the database servers that the tests start, if one is
// missing and this user may; otherwise it says which Debian packages to install.
// "make test" calls it.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/reprise-go/reprise/internal/dbserver"
)

func main() {
	if err := install(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func install() error {
	var packages []string
	for _, m := range dbserver.Missing() {
		packages = append(packages, m.Debian)
	}
	if len(packages) == 0 {
		return nil
	}
	todo := fmt.Errorf("the tests need real servers; install them by: apt-get install --no-install-recommends %s", strings.Join(packages, " "))
	var sudo []string
	if os.Geteuid() != 0 {
		if exec.Command("sudo", "-n", "true").Run() != nil {
			return todo
		}
		sudo = []string{"sudo", "-n"}
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return todo
	}
	fmt.Println("installing", strings.Join(packages, " "))
	script := exec.Command("sh", append([]string{"-c", script, "install"}, packages...)...)
	if sudo != nil {
		script = exec.Command(sudo[0], append(sudo[1:], script.Args...)...)
	}
	script.Stdout, script.Stderr = os.Stderr, os.Stderr
	if err := script.Run(); err != nil {
		return errors.Join(err, todo)
	}
	if missing := dbserver.Missing(); len(missing) > 0 {
		return missing[0]
	}
	return nil
}

// script installs its arguments. Debian's packages start a service each when they
// are installed, unless policy-rc.d forbids it; one that is there already belongs
// to somebody and stays as it is.
const script = `
set -e
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT
  trap 'exit 1' HUP INT TERM
  printf '#!/bin/sh\nexit 101\n' > "$policy"
  chmod 755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
apt-get -q -o DPkg::Lock::Timeout=300 update
apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "$@"
`
