// SPDX-License-Identifier: Apache-2.0

package dbserver

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
)

const (
	directoryPrefix = "reprise-db-"
	aliveFile       = "alive"
	// longestBase leaves room for the name of a socket below it: the kernel takes
	// 107 bytes.
	longestBase = 60
)

// directory is the private place of one server.
type directory struct {
	path  string
	alive *os.File // Locked as long as this process lives.
}

// newDirectory makes a place that the server's user owns. Its mode lets others
// in who know the name, but does not let them list it.
func newDirectory(as *account) (*directory, error) {
	base := base(as)
	sweep(base)
	path, err := os.MkdirTemp(base, directoryPrefix)
	if err != nil {
		return nil, fmt.Errorf("dbserver: no place for a server: %w", err)
	}
	d := &directory{path: path}
	err = errors.Join(os.Chmod(path, 0o711), as.own(path)) //nolint:gosec // The server and its clients differ.
	if err == nil {
		err = d.stayAlive()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("dbserver: no place for a server: %w", err), d.remove())
	}
	return d, nil
}

// stayAlive locks a file until this process ends. It gets its name only when it
// is locked, so nobody sees one that is not.
func (d *directory) stayAlive() error {
	f, err := os.Create(d.join(aliveFile + ".new"))
	if err != nil {
		return err
	}
	d.alive = f
	if err := lock(f); err != nil {
		return err
	}
	return os.Rename(f.Name(), d.join(aliveFile))
}

func (d *directory) join(name string) string { return filepath.Join(d.path, name) }

func (d *directory) remove() error {
	err := os.RemoveAll(d.path)
	if d.alive != nil {
		_ = d.alive.Close() // It may have been removed before.
	}
	return err
}

// base is where directories go: TMPDIR, unless its name is too long for sockets
// or the server's user can't enter it.
func base(as *account) string {
	dir, err := filepath.Abs(os.TempDir())
	if err != nil || len(dir) > longestBase {
		return "/tmp"
	}
	for up := dir; as != nil && up != "/"; up = filepath.Dir(up) {
		if info, err := os.Stat(up); err != nil || info.Mode()&0o001 == 0 {
			return "/tmp"
		}
	}
	return dir
}

// sweep removes what processes left that were killed: their servers died with
// them, but nobody was there to remove the directories.
func sweep(base string) {
	found, err := filepath.Glob(filepath.Join(base, directoryPrefix+"*", aliveFile))
	if err != nil {
		return // A name with special characters: its owner removes it.
	}
	for _, file := range found {
		f, err := os.OpenFile(file, os.O_RDWR, 0)
		if err != nil {
			continue // Somebody else's.
		}
		if lock(f) == nil {
			_ = os.RemoveAll(filepath.Dir(file)) // The next one tries again.
		}
		_ = f.Close()
	}
}

// errPortTaken: another process was faster; the next port may be free.
var errPortTaken = errors.New("dbserver: the port was taken by another process")

// portAttempts is how many ports are tried before it is an error.
const portAttempts = 20

// freePort returns a port of 127.0.0.1 that nobody listens on now. It is below
// the range from which the kernel serves outgoing connections, so a server that
// was killed finds its port again when it is restarted.
func freePort() (int, error) {
	const lowest, ports = 10000, 22000
	for range portAttempts {
		port := lowest + rand.IntN(ports)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)) //nolint:noctx // It ends at once.
		if err != nil {
			continue
		}
		return port, l.Close()
	}
	return 0, fmt.Errorf("dbserver: no free port in %d attempts", portAttempts)
}

// portTaken reports whether a server's log complains about its port.
func portTaken(log string) bool {
	return strings.Contains(log, "Address already in use")
}
