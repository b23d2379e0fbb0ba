// SPDX-License-Identifier: Apache-2.0

package dbserver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/internal/dbserver"
)

// parentVariable makes this test binary the process that starts servers and is
// then killed.
const parentVariable = "REPRISE_DBSERVER_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentVariable) != "" {
		parent()
	}
	os.Exit(m.Run())
}

// stop fails the test if the server does not end, or leaves something.
func stop(t *testing.T, s interface{ Stop() error }) {
	t.Helper()
	if err := errors.Join(s.Stop(), s.Stop()); err != nil {
		t.Error(err)
	}
}

// equal fails the test unless the statement, if it has an answer, has this one.
func equal(t *testing.T, want string) func(string, error) {
	t.Helper()
	return func(got string, err error) {
		t.Helper()
		if err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	p, err := dbserver.StartPostgres(ctx, dbserver.PostgresOptions{Settings: map[string]string{"cluster_name": "it's"}})
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, p)
	equal(t, "it's")(p.Exec(ctx, "postgres", "SHOW cluster_name"))
	if err := p.CreateDatabase(ctx, "a", ""); err != nil {
		t.Fatal(err)
	}
	equal(t, "1|x\n2|y")(p.Exec(ctx, "a", "CREATE TABLE t (id int, v text); INSERT INTO t VALUES (1, 'x'), (2, 'y'); TABLE t"))
	if err := p.CreateDatabase(ctx, "b", "a"); err != nil {
		t.Fatal(err)
	}
	equal(t, "2")(p.Exec(ctx, "b", "SELECT count(*) FROM t"))
	if _, err := p.Exec(ctx, "a", "SELECT 1; SELECT nonsense; SELECT 2"); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("an error of SQL is reported as %v", err)
	}

	address := p.Addr()
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Exec(ctx, "a", "SELECT 1"); err == nil {
		t.Error("a killed server answers")
	}
	if err := p.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	equal(t, "2")(p.Exec(ctx, "a", "SELECT count(*) FROM t"))
	if p.Addr() != address {
		t.Errorf("restarted on %s, not on %s", p.Addr(), address)
	}
	for _, name := range []string{"a", "a", "b"} {
		if err := p.DropDatabase(ctx, name); err != nil {
			t.Error(err)
		}
	}
	equal(t, "0")(p.Exec(ctx, "postgres", "SELECT count(*) FROM pg_database WHERE datname IN ('a', 'b')"))
}

func TestPostgresDoesNotStart(t *testing.T) {
	t.Parallel()
	p, err := dbserver.StartPostgres(t.Context(), dbserver.PostgresOptions{Settings: map[string]string{"shared_buffers": "plenty"}})
	if err == nil {
		stop(t, p)
		t.Fatal("a server with a bad setting has started")
	}
	if !strings.Contains(err.Error(), `invalid value for parameter "shared_buffers"`) {
		t.Errorf("the error does not have the server's own words: %v", err)
	}
}

func TestPostgresPair(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pair, err := dbserver.StartPostgresPair(ctx, dbserver.PostgresOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, pair)
	equal(t, "")(pair.Primary.Exec(ctx, "postgres", "CREATE TABLE t (id int); INSERT INTO t VALUES (1)"))
	if _, err := pair.Standby.Exec(ctx, "postgres", "INSERT INTO t VALUES (2)"); err == nil {
		t.Error("the standby takes writes")
	}
	if err := pair.Primary.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := pair.Promote(ctx); err != nil {
		t.Fatal(err)
	}
	equal(t, "1\n3")(pair.Standby.Exec(ctx, "postgres", "INSERT INTO t VALUES (3); TABLE t"))
}

func TestPgBouncer(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	p, err := dbserver.StartPostgres(ctx, dbserver.PostgresOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, p)
	b, err := dbserver.StartPgBouncer(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, b)
	if err := p.CreateDatabase(ctx, "shop", ""); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(ctx, "psql", "-XqAt", b.DSN("shop"), "-c", "SELECT current_database()").Output()
	equal(t, "shop\n")(string(out), err)
	out, err = exec.CommandContext(ctx, "psql", "-XqAt", b.DSN("pgbouncer"), "-c", "SHOW CONFIG").Output()
	if err != nil || !strings.Contains(string(out), "pool_mode|transaction") {
		t.Errorf("not in transaction mode: %v\n%s", err, out)
	}
}

func TestMariaDB(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m, err := dbserver.StartMariaDB(ctx, dbserver.MariaDBOptions{Settings: map[string]string{"innodb-lock-wait-timeout": "7"}})
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, m)
	if err := m.CreateDatabase(ctx, "a`b"); err != nil {
		t.Fatal(err)
	}
	equal(t, "1\tx\n2\ty")(m.Exec(ctx, "a`b", "CREATE TABLE t (id int, v text); INSERT INTO t VALUES (1, 'x'), (2, 'y'); SELECT * FROM t"))
	equal(t, "7")(m.Exec(ctx, "mysql", "SELECT @@innodb_lock_wait_timeout"))
	if _, err := m.Exec(ctx, "a`b", "SELECT nonsense"); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("an error of SQL is reported as %v", err)
	}
	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := m.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	equal(t, "2")(m.Exec(ctx, "a`b", "SELECT count(*) FROM t"))
	if err := m.DropDatabase(ctx, "a`b"); err != nil {
		t.Error(err)
	}
	equal(t, "")(m.Exec(ctx, "mysql", "SHOW DATABASES LIKE 'a%'"))
}

func TestGalera(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, err := dbserver.StartGalera(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, g)
	if err := g.Nodes[0].CreateDatabase(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	equal(t, "")(g.Nodes[1].Exec(ctx, "mysql", "SET wsrep_sync_wait = 15; CREATE TABLE a.t (id int PRIMARY KEY); INSERT INTO a.t VALUES (1)"))
	equal(t, "1")(g.Nodes[2].Exec(ctx, "mysql", "SET wsrep_sync_wait = 15; SELECT * FROM a.t"))
}

// parent starts servers, says where they live, and waits to be killed.
func parent() {
	ctx := context.Background()
	p, err := dbserver.StartPostgres(ctx, dbserver.PostgresOptions{})
	if err != nil {
		panic(err)
	}
	b, err := dbserver.StartPgBouncer(ctx, p)
	if err != nil {
		panic(err)
	}
	m, err := dbserver.StartMariaDB(ctx, dbserver.MariaDBOptions{})
	if err != nil {
		panic(err)
	}
	fmt.Println(p.Addr(), b.Addr(), m.Addr())
	select {}
}

// TestServersDieWithTheirParent kills a process that has started servers, and
// finds neither the servers nor, after the next start, their directories.
func TestServersDieWithTheirParent(t *testing.T) {
	t.Parallel()
	temporary, err := os.MkdirTemp("", "dbserver")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(temporary)
	if err := os.Chmod(temporary, 0o711); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), parentVariable+"=1", "TMPDIR="+temporary)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if alive := below(t, temporary); len(strings.Fields(line)) != 3 || len(alive) < 3 {
		t.Fatalf("the parent printed %q and has %d servers, want 3", line, len(alive))
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, stdout)
	_ = cmd.Wait() // It was killed.
	for end := time.Now().Add(time.Minute); len(below(t, temporary)) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("these survived their parent: %v", below(t, temporary))
		}
	}

	dbserver.Sweep(temporary)
	left, err := filepath.Glob(filepath.Join(temporary, "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("directories of the dead remain: %v, %v", left, err)
	}
}

// below returns the processes whose working directory, or whose arguments, are
// below the directory.
func below(t *testing.T, dir string) []string {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, p := range processes {
		cwd, _ := os.Readlink(filepath.Join(p, "cwd")) // It may have ended meanwhile.
		if strings.HasPrefix(cwd, dir) {
			found = append(found, p)
		}
	}
	return found
}
