// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/reprise-go/reprise/internal/dbserver/dbtest"
	"github.com/reprise-go/reprise/torture/crash"
	"github.com/reprise-go/reprise/torture/sqlwire"
)

// subjectVariable makes the test binary a service in a process of its own: it has
// the subject, the provider's driver, and the data sources of both, a line each.
const subjectVariable = "REPRISE_CRASH_SUBJECT"

func TestMain(m *testing.M) {
	if lines := strings.Split(os.Getenv(subjectVariable), "\n"); len(lines) == 4 {
		if err := serve(lines[0], lines[1], lines[2], lines[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	_ = mysql.SetLogger(log{}) // it says on stderr what a test does on purpose
	os.Exit(dbtest.Main(m))
}

// log drops what a driver says about connections that break.
type log struct{}

func (log) Print(...any) {}

// serve is the main function of a subject in a process of its own.
func serve(name, driver, dsn, providerDSN string) error {
	provider, err := sql.Open(driver, providerDSN)
	if err != nil {
		return err
	}
	defer provider.Close()
	p, err := programs[name](context.Background(), dsn, provider)
	if err != nil {
		return err
	}
	return crash.Serve(context.Background(), p, os.Stdin, os.Stdout)
}

// opener opens a program on a data source. provider is the payment provider's
// database, which no fault reaches.
type opener func(ctx context.Context, dsn string, provider *sql.DB) (crash.Program, error)

// programs are the subjects by name, so that another process finds them.
var programs = map[string]opener{}

// command is a process that serves a subject.
func command(name, driver, dsn, providerDSN string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), subjectVariable+"="+strings.Join([]string{name, driver, dsn, providerDSN}, "\n"))
	return cmd
}

// database is a database of a server, seen by the tests without a proxy.
type database struct {
	protocol          sqlwire.Protocol
	driver, dsn, addr string
	// parameters are added to the data source of the service.
	parameters string
	db         *sql.DB
	modes      []crash.Mode
	kill       string
	interrupt  string
}

func openDatabase(t *testing.T, driver, dsn, addr string) *database {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return &database{driver: driver, dsn: dsn, addr: addr, db: db}
}

// newPostgres makes a fresh database of PostgreSQL.
func newPostgres(t *testing.T) *database {
	t.Helper()
	dsn := dbtest.PostgresDatabase(t)
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	d := openDatabase(t, "pgx", dsn, u.Host)
	d.protocol = sqlwire.Postgres
	d.kill = "SELECT pg_terminate_backend($1, 10000)"
	for _, e := range []sqlwire.ServerError{
		sqlwire.SerializationFailure, sqlwire.DeadlockDetected, sqlwire.ReadOnlyTransaction, sqlwire.TooManyConnections, sqlwire.AdminShutdown,
	} {
		d.modes = append(d.modes, crash.Refuse(e))
	}
	return d
}

// newMariaDB makes a fresh database of MariaDB.
func newMariaDB(t *testing.T) *database {
	t.Helper()
	dsn := dbtest.MariaDBDatabase(t)
	c, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	d := openDatabase(t, "mysql", dsn, c.Addr)
	d.protocol = sqlwire.MySQL
	d.kill, d.interrupt = "KILL %d", "KILL QUERY %d"
	for _, e := range []sqlwire.ServerError{
		sqlwire.Deadlock, sqlwire.LockWaitTimeout, sqlwire.NotInCluster, sqlwire.ReadOnlyServer, sqlwire.ServerShutdown,
	} {
		d.modes = append(d.modes, crash.Refuse(e))
	}
	return d
}

// through is the data source with a proxy in the server's place.
func (d *database) through(addr string) string {
	return strings.Replace(d.dsn, d.addr, addr, 1) + d.parameters
}

// schema runs a script on the database itself.
func (d *database) schema(t *testing.T, script string) {
	t.Helper()
	for statement := range strings.SplitSeq(script, ";") {
		if _, err := d.db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
}

// subject is a program on a database, as a service under test.
func (d *database) subject(name string, queries map[string]string, want crash.Effects) *crash.Wire {
	w := &crash.Wire{
		Protocol: d.protocol, Server: d.addr,
		Modes: append([]crash.Mode{
			crash.Reset, crash.Close, crash.Down, crash.Partition, crash.Freeze, crash.Terminate, crash.Interrupt, crash.Kill, crash.Stop,
		}, d.modes...),
		Open: func(ctx context.Context, addr string) (crash.Program, error) {
			return programs[name](ctx, d.through(addr), d.db)
		},
		Command: func(addr string) *exec.Cmd { return command(name, d.driver, d.through(addr), d.dsn) },
		Terminate: func(ctx context.Context, session uint32) error {
			return d.signal(ctx, d.kill, session)
		},
		Count:  func(ctx context.Context, o crash.Order) (crash.Effects, error) { return count(ctx, d.db, o, queries) },
		Expect: want,
	}
	if d.interrupt != "" {
		w.Interrupt = func(ctx context.Context, session uint32) error { return d.signal(ctx, d.interrupt, session) }
	}
	return w
}

// signal tells the server what to do with a session.
func (d *database) signal(ctx context.Context, statement string, session uint32) error {
	if strings.Contains(statement, "%d") {
		_, err := d.db.ExecContext(ctx, fmt.Sprintf(statement, session))
		return err
	}
	_, err := d.db.ExecContext(ctx, statement, session)
	return err
}

// count runs queries for one number each, with the order's reference and key in
// the place of :ref and :key, as one statement.
func count(ctx context.Context, db *sql.DB, o crash.Order, queries map[string]string) (crash.Effects, error) {
	var parts, kinds []string
	for kind, query := range queries {
		kinds, parts = append(kinds, kind), append(parts, "("+query+")")
	}
	numbers, dest := make([]int, len(kinds)), make([]any, len(kinds))
	for i := range numbers {
		dest[i] = &numbers[i]
	}
	query := strings.NewReplacer(":ref", "'"+o.Ref+"'", ":key", "'"+string(o.Key)+"'").Replace("SELECT " + strings.Join(parts, ", "))
	if err := db.QueryRowContext(ctx, query).Scan(dest...); err != nil {
		return nil, err
	}
	got := crash.Effects{}
	for i, kind := range kinds {
		got[kind] = numbers[i]
	}
	return got, nil
}

// names are those of the modes.
func names(modes []crash.Mode) (n []string) {
	for _, m := range modes {
		n = append(n, m.Name)
	}
	return n
}

// check fails the test for every violation, up to a few, and prints the report.
func check(t *testing.T, what string, r crash.Report, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %v", what, r)
	for i, v := range r.Violations {
		if i == 20 {
			t.Errorf("and %d more", len(r.Violations)-i)
			break
		}
		t.Error(v)
	}
}
