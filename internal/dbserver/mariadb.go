// SPDX-License-Identifier: Apache-2.0

package dbserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// MariaDBOptions of a server. The zero value is a server for tests of logic.
type MariaDBOptions struct {
	// Settings are options of mariadbd, by name, without the dashes.
	Settings map[string]string
	// Durable makes the server write to disk as it does by default. Without it,
	// what it committed survives its death but not that of the machine.
	Durable bool
}

// MariaDB is a running server. Its methods are safe for concurrent use.
type MariaDB struct {
	program  string
	client   string
	as       *account
	dir      *directory
	port     int
	settings map[string]string

	mu      sync.Mutex
	process *process
}

// StartMariaDB starts a server and returns when it answers a query. The context
// bounds the start alone.
func StartMariaDB(ctx context.Context, o MariaDBOptions) (*MariaDB, error) {
	m, err := newMariaDB(o)
	if err != nil {
		return nil, err
	}
	if err = m.initialise(ctx); err == nil {
		err = onFreePort(func(port int) error {
			m.port = port
			return m.launch(ctx)
		})
	}
	if err != nil {
		return nil, errors.Join(err, m.Stop())
	}
	return m, nil
}

func newMariaDB(o MariaDBOptions) (*MariaDB, error) {
	program, err := find("mariadbd")
	if err != nil {
		return nil, err
	}
	client, err := find("mariadb")
	if err != nil {
		return nil, err
	}
	as, err := accountOf("mysql", "mariadb-server")
	if err != nil {
		return nil, err
	}
	settings := map[string]string{
		"bind-address":            "127.0.0.1",
		"character-set-server":    "utf8mb4", // As Debian has it.
		"collation-server":        "utf8mb4_general_ci",
		"connect-timeout":         "300", // On a machine that is too busy to answer in 10 s.
		"innodb-buffer-pool-size": "64M",
		"innodb-log-file-size":    "48M",
		"max-connections":         "300",
		"skip-name-resolve":       "ON",
	}
	if !o.Durable {
		settings["innodb-flush-log-at-trx-commit"] = "2" // To the operating system at every commit.
	}
	maps.Copy(settings, o.Settings)
	dir, err := newDirectory(as)
	if err != nil {
		return nil, err
	}
	return &MariaDB{program: program, client: client, as: as, dir: dir, settings: settings}, nil
}

func (m *MariaDB) initialise(ctx context.Context) error {
	install, err := find("mariadb-install-db")
	if err != nil {
		return err
	}
	_, err = run(ctx, m.as, m.dir.path, "", install, "--no-defaults", "--datadir="+m.dir.join("data"),
		"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve",
		"--innodb-log-file-size="+m.settings["innodb-log-file-size"])
	return err
}

// launch starts the server process on the data that is there.
func (m *MariaDB) launch(ctx context.Context, extra ...string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	args := make([]string, 0, 5+len(m.settings)+len(extra))
	args = append(args, "--no-defaults", "--datadir="+m.dir.join("data"), "--socket="+m.socket(),
		"--port="+strconv.Itoa(m.port), "--pid-file="+m.dir.join("pid"))
	for _, name := range slices.Sorted(maps.Keys(m.settings)) {
		args = append(args, "--"+name+"="+m.settings[name])
	}
	process, err := start(m.as, signalKill, m.dir.join("log"), m.program, append(args, extra...)...)
	if err != nil {
		return err
	}
	err = process.ready(ctx, "unix", m.socket(), func(ctx context.Context) error {
		_, err := m.Exec(ctx, "mysql", "SELECT 1")
		return err
	})
	if err != nil {
		return errors.Join(err, process.kill())
	}
	m.process = process
	return nil
}

func (m *MariaDB) socket() string { return m.dir.join("socket") }

// Addr returns the address, as host:port.
func (m *MariaDB) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(m.port)) }

// DSN returns the data source name of a database, in the form of
// github.com/go-sql-driver/mysql and without parameters.
func (m *MariaDB) DSN(database string) string { return "root@tcp(" + m.Addr() + ")/" + database }

// Exec gives statements to the mariadb client and returns their rows: a line for
// each, its columns separated by tabs. It stops at the first error.
func (m *MariaDB) Exec(ctx context.Context, database, sql string) (string, error) {
	return run(ctx, nil, m.dir.path, sql, m.client, "--no-defaults", "--batch", "--raw", "--skip-column-names",
		"--socket="+m.socket(), "--user=root", database)
}

// CreateDatabase makes an empty database.
func (m *MariaDB) CreateDatabase(ctx context.Context, name string) error {
	_, err := m.Exec(ctx, "mysql", "CREATE DATABASE "+backquoted(name))
	return err
}

// DropDatabase removes a database, if it exists.
func (m *MariaDB) DropDatabase(ctx context.Context, name string) error {
	_, err := m.Exec(ctx, "mysql", "DROP DATABASE IF EXISTS "+backquoted(name))
	return err
}

func backquoted(name string) string {
	return fmt.Sprintf("`%s`", strings.ReplaceAll(name, "`", "``"))
}

// Kill ends the server by SIGKILL. The data stays for Restart.
func (m *MariaDB) Kill() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil {
		return nil
	}
	err := m.process.kill()
	if err == nil {
		m.process = nil
	}
	return err
}

// Restart starts the server again after Kill, on the same port and data, and
// returns when it answers a query.
func (m *MariaDB) Restart(ctx context.Context) error { return m.launch(ctx) }

// Stop ends the server and removes its directory. It may be called again.
func (m *MariaDB) Stop() error {
	return errors.Join(m.Kill(), m.dir.remove()) // Nobody needs what is removed in good order.
}
