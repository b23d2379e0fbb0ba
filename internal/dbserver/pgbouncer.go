// SPDX-License-Identifier: Apache-2.0

package dbserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
)

// PgBouncer is a running pooler: each transaction may be served by another
// connection to the server, so nothing of a session survives one.
type PgBouncer struct {
	upstream *Postgres
	dir      *directory
	port     int

	mu      sync.Mutex
	process *process
}

// StartPgBouncer starts a pooler in transaction mode in front of all databases
// of the server, with at most 20 connections to each.
func StartPgBouncer(ctx context.Context, p *Postgres) (*PgBouncer, error) {
	program, err := find("pgbouncer")
	if err != nil {
		return nil, err
	}
	as, err := accountOf("postgres", "postgresql-15")
	if err != nil {
		return nil, err
	}
	dir, err := newDirectory(as)
	if err != nil {
		return nil, err
	}
	b := &PgBouncer{upstream: p, dir: dir}
	err = onFreePort(func(port int) error {
		b.port = port
		return b.launch(ctx, as, program)
	})
	if err != nil {
		return nil, errors.Join(err, b.Stop())
	}
	return b, nil
}

func (b *PgBouncer) launch(ctx context.Context, as *account, program string) error {
	config := fmt.Sprintf(`[databases]
* = host=127.0.0.1 port=%d user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir = %s
auth_type = any
pool_mode = transaction
default_pool_size = 20
max_client_conn = 1000
ignore_startup_parameters = extra_float_digits
`, b.upstream.port, b.port, b.dir.path)
	file := b.dir.join("pgbouncer.ini")
	if err := errors.Join(os.WriteFile(file, []byte(config), 0o600), as.own(file)); err != nil {
		return err
	}
	process, err := start(as, signalKill, b.dir.join("log"), program, file)
	if err != nil {
		return err
	}
	err = process.ready(ctx, "unix", b.dir.join(".s.PGSQL."+strconv.Itoa(b.port)), func(ctx context.Context) error {
		_, err := run(ctx, nil, b.dir.path, "", filepath.Join(b.upstream.bin, "psql"), "-XqAt", "-c", "SELECT 1",
			"-h", b.dir.path, "-p", strconv.Itoa(b.port), "-U", "postgres", "-d", "postgres")
		return err
	})
	if err == nil && portTaken(process.tail()) {
		err = errPortTaken // It goes on with its Unix socket alone.
	}
	if err != nil {
		return errors.Join(err, process.end(signalKill))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.process = process
	return nil
}

// Addr returns the address, as host:port.
func (b *PgBouncer) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port)) }

// DSN returns the URL of a database of the server behind it.
func (b *PgBouncer) DSN(database string) string { return postgresDSN(b.Addr(), database) }

// Stop ends the pooler and removes its directory. It may be called again.
func (b *PgBouncer) Stop() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var err error
	if b.process != nil {
		err = b.process.end(signalKill)
		b.process = nil
	}
	return errors.Join(err, b.dir.remove())
}
