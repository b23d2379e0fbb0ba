// SPDX-License-Identifier: Apache-2.0

package dbserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// PostgresOptions of a server. The zero value is a server for tests of logic.
type PostgresOptions struct {
	// Settings go to postgresql.conf, by name, unquoted.
	Settings map[string]string
	// Durable makes the server write to disk as it does by default. Without it,
	// what it committed survives its death but not that of the machine.
	Durable bool
}

// Postgres is a running server. Its methods are safe for concurrent use.
type Postgres struct {
	bin  string // The directory of the programs.
	as   *account
	dir  *directory
	port int

	mu      sync.Mutex
	process *process
}

// StartPostgres starts a server and returns when it answers a query. The context
// bounds the start alone.
func StartPostgres(ctx context.Context, o PostgresOptions) (*Postgres, error) {
	return startPostgres(ctx, func(p *Postgres) error { return p.initialise(ctx, o) })
}

// startPostgres starts a server on the data that fill makes, on the first port
// that nobody else takes meanwhile.
func startPostgres(ctx context.Context, fill func(*Postgres) error) (*Postgres, error) {
	p, err := newPostgres()
	if err != nil {
		return nil, err
	}
	if err = fill(p); err == nil {
		err = onFreePort(func(port int) error {
			p.port = port
			return p.launch(ctx)
		})
	}
	if err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

func newPostgres() (*Postgres, error) {
	bin := ""
	for _, name := range postgresPrograms {
		path, err := find(name)
		if err != nil {
			return nil, err
		}
		bin = filepath.Dir(path)
	}
	as, err := accountOf("postgres", "postgresql-15")
	if err != nil {
		return nil, err
	}
	dir, err := newDirectory(as)
	if err != nil {
		return nil, err
	}
	return &Postgres{bin: bin, as: as, dir: dir}, nil
}

// onFreePort calls start with one port after the other until none is taken.
func onFreePort(start func(port int) error) error {
	for range portAttempts {
		port, err := freePort()
		if err != nil {
			return err
		}
		if err := start(port); !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return errPortTaken
}

func (p *Postgres) initialise(ctx context.Context, o PostgresOptions) error {
	_, err := run(ctx, p.as, p.dir.path, "", filepath.Join(p.bin, "initdb"), "-D", p.data(), "-U", "postgres",
		"--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
	if err != nil {
		return err
	}
	settings := map[string]string{"max_connections": "200", "shared_buffers": "64MB", "log_checkpoints": "off"}
	if !o.Durable {
		// Pages are still written in full to the log: a SIGKILL may interrupt the
		// write of a page half-way, and some tests restart after it.
		settings["fsync"] = "off"
	}
	maps.Copy(settings, o.Settings)
	return p.configure(settings)
}

// configure appends to postgresql.conf; what comes later there wins.
func (p *Postgres) configure(settings map[string]string) error {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&text, "%s = '%s'\n", name, strings.ReplaceAll(settings[name], "'", "''"))
	}
	file, err := os.OpenFile(filepath.Join(p.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text.String())
	return errors.Join(err, file.Close())
}

// launch starts the server process on the data that is there.
func (p *Postgres) launch(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	port := strconv.Itoa(p.port)
	// A quit is an immediate shutdown, which takes the children along.
	process, err := start(p.as, signalQuit, p.dir.join("log"), filepath.Join(p.bin, "postgres"), "-D", p.data(),
		"-c", "listen_addresses=127.0.0.1", "-c", "port="+port, "-c", "unix_socket_directories="+p.dir.path)
	if err != nil {
		return err
	}
	err = process.ready(ctx, "unix", p.dir.join(".s.PGSQL."+port), func(ctx context.Context) error {
		_, err := p.Exec(ctx, "template1", "SELECT 1") // See createDatabase.
		return err
	})
	if err != nil {
		return errors.Join(err, process.end(signalQuit))
	}
	p.process = process
	return nil
}

func (p *Postgres) data() string { return p.dir.join("data") }

// Addr returns the address, as host:port.
func (p *Postgres) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

// DSN returns the URL of a database, for any driver that takes one.
func (p *Postgres) DSN(database string) string { return postgresDSN(p.Addr(), database) }

func postgresDSN(address, database string) string {
	return "postgres://postgres@" + address + "/" + database + "?sslmode=disable"
}

// Exec gives statements to psql, each of which commits by itself, and returns
// their rows: a line for each, its columns separated by "|". It stops at the
// first error.
func (p *Postgres) Exec(ctx context.Context, database, sql string) (string, error) {
	return run(ctx, nil, p.dir.path, sql, filepath.Join(p.bin, "psql"), "-XqAt", "-v", "ON_ERROR_STOP=1", "-f", "-",
		"-h", p.dir.path, "-p", strconv.Itoa(p.port), "-U", "postgres", "-d", database)
}

// CreateDatabase makes a database as a copy of the template, to which nobody may
// be connected; "" is an empty database.
func (p *Postgres) CreateDatabase(ctx context.Context, name, template string) error {
	if template == "" {
		template = "template1"
	}
	_, err := p.Exec(ctx, "postgres", fmt.Sprintf(createDatabase, name, template))
	return err
}

// createDatabase copies files, as every release before 15 does. The other way, by
// the log, leaves it to the first backend to build a cache that the template has
// in a file: in all, a fresh database costs half as much.
const createDatabase = `SELECT current_setting('server_version_num')::int >= 150000 AS chooses \gset
\if :chooses
CREATE DATABASE %[1]q TEMPLATE %[2]q STRATEGY file_copy;
\else
CREATE DATABASE %[1]q TEMPLATE %[2]q;
\endif`

// DropDatabase removes a database, if it exists, and ends its connections.
func (p *Postgres) DropDatabase(ctx context.Context, name string) error {
	_, err := p.Exec(ctx, "postgres", fmt.Sprintf("SET client_min_messages = error; DROP DATABASE IF EXISTS %q WITH (FORCE)", name))
	return err
}

// Kill ends the server and its backends by SIGKILL. The data stays for Restart.
func (p *Postgres) Kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process == nil {
		return nil
	}
	if err := p.process.kill(); err != nil {
		return err
	}
	p.process = nil
	p.removeSharedMemory()
	return nil
}

// removeSharedMemory does what the server could not do when it was killed. The
// seventh line of its pid file is "key id" of the segment.
func (p *Postgres) removeSharedMemory() {
	text, err := os.ReadFile(filepath.Join(p.data(), "postmaster.pid"))
	lines := strings.Split(string(text), "\n")
	if err != nil || len(lines) < 7 {
		return
	}
	if _, id, ok := strings.Cut(strings.TrimSpace(lines[6]), " "); ok {
		if n, err := strconv.Atoi(strings.TrimSpace(id)); err == nil {
			removeSharedMemory(n)
		}
	}
}

// Restart starts the server again after Kill, on the same port and data, and
// returns when it answers a query.
func (p *Postgres) Restart(ctx context.Context) error { return p.launch(ctx) }

// Stop ends the server and removes its directory. It may be called again.
func (p *Postgres) Stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	if p.process != nil {
		err = p.process.end(signalQuit) // Nobody needs a checkpoint of what is removed.
		p.process = nil
	}
	return errors.Join(err, p.dir.remove())
}
