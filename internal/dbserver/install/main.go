// SPDX-License-Identifier: Apache-2.0

// Command install installs the database servers that the tests start, if one is
// missing and this user may; otherwise it says which Debian packages to install.
// "make test" calls it.
package main

import (
	"context"
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
	missing := dbserver.Missing()
	packages := make([]string, 0, len(missing))
	for _, m := range missing {
		packages = append(packages, m.Debian)
	}
	if len(packages) == 0 {
		return nil
	}
	todo := fmt.Errorf("the tests need real servers; install them by: apt-get install --no-install-recommends %s", strings.Join(packages, " "))
	command := append([]string{"sh", "-c", script, "install"}, packages...)
	ctx := context.Background() // An interrupt reaches apt-get by itself.
	if os.Geteuid() != 0 {
		if exec.CommandContext(ctx, "sudo", "-n", "true").Run() != nil {
			return todo
		}
		command = append([]string{"sudo", "-n"}, command...)
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return todo
	}
	fmt.Fprintln(os.Stderr, "installing", strings.Join(packages, " "))
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // Names of this house's own list.
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return errors.Join(err, todo)
	}
	if missing = dbserver.Missing(); len(missing) > 0 {
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
