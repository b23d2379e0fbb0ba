// SPDX-License-Identifier: Apache-2.0

package dbserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
)

// program is a file that some server needs, and the Debian package that has it.
type program struct{ name, debian string }

var (
	postgresPrograms = []string{"postgres", "initdb", "pg_basebackup", "psql"}
	programs         = []program{
		{"postgres", "postgresql-15"},
		{"initdb", "postgresql-15"},
		{"pg_basebackup", "postgresql-15"},
		{"psql", "postgresql-15"},
		{"mariadbd", "mariadb-server"},
		{"mariadb-install-db", "mariadb-server"},
		{"mariadb", "mariadb-server"},
		{galeraProvider, "galera-4"},
		{"rsync", "rsync"},
		{"pgbouncer", "pgbouncer"},
	}
)

// galeraProvider is the plug-in of MariaDB that makes a cluster of it.
const galeraProvider = "libgalera_smm.so"

// MissingError says that a server can't be started on this machine.
type MissingError struct {
	// Binary is the file that was looked for.
	Binary string
	// Debian is the package that has it.
	Debian string
}

// Error says how to install what is missing.
func (e *MissingError) Error() string {
	return fmt.Sprintf("dbserver: %s is neither on PATH nor where Debian puts it; install it by: apt-get install %s", e.Binary, e.Debian)
}

// Missing returns one *MissingError for each Debian package that is needed to
// start all kinds of servers and is not installed.
func Missing() []*MissingError {
	var missing []*MissingError
	for _, b := range programs {
		known := slices.ContainsFunc(missing, func(m *MissingError) bool { return m.Debian == b.debian })
		if _, err := find(b.name); err != nil && !known {
			missing = append(missing, &MissingError{Binary: b.name, Debian: b.debian})
		}
	}
	return missing
}

// find returns the absolute path of a file of the list above. PostgreSQL's
// programs come from one directory, so that their versions agree.
func find(name string) (string, error) {
	if slices.Contains(postgresPrograms, name) {
		for _, dir := range postgresDirectories() {
			if executable(filepath.Join(dir, name)) {
				return filepath.Join(dir, name), nil
			}
		}
	} else {
		if path, err := exec.LookPath(name); err == nil {
			return filepath.Abs(path)
		}
		for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/usr/bin"} {
			if executable(filepath.Join(dir, name)) {
				return filepath.Join(dir, name), nil
			}
		}
		// A plug-in stands in a directory of its own, which has the architecture in
		// its name on some releases.
		for _, pattern := range []string{"/usr/lib/galera/", "/usr/lib/*/galera/"} {
			if found, err := filepath.Glob(pattern + name); err == nil && len(found) > 0 {
				return found[0], nil
			}
		}
	}
	for _, b := range programs {
		if b.name == name {
			return "", &MissingError{Binary: name, Debian: b.debian}
		}
	}
	return "", fmt.Errorf("dbserver: nobody told which package has %s", name)
}

// postgresDirectories are those that may hold PostgreSQL's programs, best first:
// one that is on PATH has been chosen by somebody; else the newest release.
func postgresDirectories() []string {
	var dirs []string
	if path, err := exec.LookPath("postgres"); err == nil {
		// What is on PATH may be a link to the server alone.
		if target, err := filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(target))
		}
	}
	installed, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return dirs // The pattern is a constant.
	}
	release := func(dir string) int {
		n, err := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
		if err != nil {
			return 0
		}
		return n
	}
	slices.SortFunc(installed, func(a, b string) int { return release(b) - release(a) })
	return append(dirs, installed...)
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
