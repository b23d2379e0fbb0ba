// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/migrate"
)

func TestMain(m *testing.M) {
	if run, ok := children[os.Getenv(childVariable)]; ok {
		run()
		return
	}
	goleak.VerifyTestMain(m)
}

// fixture is a migrated database with one business table.
type fixture struct {
	*Driver
	t    *testing.T
	path string
	hook *hook
}

func setup(t *testing.T, o *Options) *fixture {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.db")
	image, err := template()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, image, 0o600); err != nil {
		t.Fatal(err)
	}
	return open(t, path, o)
}

// template is a migrated file, made once.
var template = sync.OnceValues(func() (image []byte, err error) {
	dir, err := os.MkdirTemp("", "sqlite-template-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "test.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	d, err := New(context.Background(), db, nil)
	if err != nil {
		return nil, err
	}
	err = errors.Join(migrate.Up(context.Background(), d), d.Transact(context.Background(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "CREATE TABLE orders (id INTEGER PRIMARY KEY, ref TEXT NOT NULL UNIQUE)")
		return err
	}))
	if err = errors.Join(err, d.Close(), db.Close()); err != nil { // the last one to close empties the log
		return nil, err
	}
	return os.ReadFile(path)
})

func open(t *testing.T, path string, o *Options) *fixture {
	t.Helper()
	h := &hook{}
	db := sql.OpenDB(hooked{dsn: path, hook: h})
	t.Cleanup(func() { _ = db.Close() })
	d, err := New(t.Context(), db, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return &fixture{Driver: d, t: t, path: path, hook: h}
}

// count runs a query for one number on the pool: what is committed.
func (f *fixture) count(query string, args ...any) int {
	f.t.Helper()
	var n int
	if err := f.db.QueryRow(query, args...).Scan(&n); err != nil {
		f.t.Fatal(err)
	}
	return n
}

func (f *fixture) orders(refs ...string) int {
	f.t.Helper()
	if len(refs) == 0 {
		return f.count("SELECT count(*) FROM orders")
	}
	return f.count("SELECT count(*) FROM orders WHERE ref = ?", refs[0])
}

// order is the business write of most tests.
func order(ctx context.Context, tx *sql.Tx, ref string) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO orders (ref) VALUES (?)", ref)
	return err
}

func intent(key string) reprise.Intent {
	return reprise.Intent{
		Caller: "alice", Operation: "create-order", Key: reprise.Key(key),
		Fingerprint: reprise.Fingerprint{reprise.FingerprintVersion, 1},
	}
}

func claim(key string) store.Claim {
	in := intent(key)
	return store.Claim{Intent: in, Token: store.Token(in.ID()), Number: 1}
}

func completion(body string) store.Completion {
	return store.Completion{
		Result:    reprise.Result{Status: 201, Header: map[string][]string{"Content-Type": {"text/plain"}}, Body: []byte(body), Reference: "/orders/1"},
		Retention: time.Hour, Tombstone: 2 * time.Hour,
	}
}

func message(id, subject string) reprise.Message {
	return reprise.Message{ID: id, Source: "/shop", Type: "order.created", Subject: subject, Time: now(), ContentType: "text/plain", Data: []byte(id)}
}

// place executes a keyed order with one event under its key.
func (f *fixture) place(key string) error {
	_, _, err := f.Execute(f.t.Context(), claim(key), func(ctx context.Context, tx *sql.Tx) (store.Completion, error) {
		if err := order(ctx, tx, key); err != nil {
			return store.Completion{}, err
		}
		return completion(key), f.Enqueue(ctx, tx, message(key, ""))
	})
	return err
}

// keep asserts that all, or nothing, of the keys was kept.
func (f *fixture) kept(key string, want int) {
	f.t.Helper()
	for _, query := range []string{
		"SELECT count(*) FROM orders WHERE ref = ?",
		"SELECT count(*) FROM reprise_ledger WHERE key = ?",
		"SELECT count(*) FROM reprise_outbox WHERE message_id = ?",
	} {
		if n := f.count(query, key); n != want {
			f.t.Errorf("%s: %d rows for %q, want %d", query, n, key, want)
		}
	}
}

// waiting returns once n callers wait for the turn.
func (f *fixture) waiting(n int) {
	f.t.Helper()
	until(f.t, func() bool {
		f.writer.turn.mu.Lock()
		defer f.writer.turn.mu.Unlock()
		return len(f.writer.turn.waiting) >= n
	})
}

func until(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not come to pass within 20 s")
		}
	}
}

// hook sees every statement of the connections it is given to, with what comes
// before and after it.
type hook struct {
	mu     sync.Mutex
	count  map[string]int
	ignore string // a query that is not run, but a harmless one in its place
	before func(query string) error
	after  func(query string) error
}

// set replaces what happens before each statement, which an error keeps from
// being run, and after each that was run, where an error is its lost answer.
func (h *hook) set(before, after func(query string) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.before, h.after = before, after
}

func (h *hook) seen(query string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count[query]
}

func (h *hook) run(query string, do func() error) error {
	h.mu.Lock()
	if h.count == nil {
		h.count = map[string]int{}
	}
	h.count[query]++
	before, after := h.before, h.after
	h.mu.Unlock()
	if before != nil {
		if err := before(query); err != nil {
			return err
		}
	}
	err := do()
	if after != nil && err == nil {
		err = after(query)
	}
	return err
}

// failing makes a hook that fails statements of one beginning, so many times.
func failing(begin string, times int, err error) (hook func(string) error, fired func() int) {
	var n atomic.Int64
	hook = func(query string) error {
		if strings.HasPrefix(query, begin) && n.Add(1) <= int64(times) {
			return err
		}
		return nil
	}
	return hook, func() int { return int(min(n.Load(), int64(times))) }
}

// hooked opens modernc connections with a hook around their statements.
type hooked struct {
	dsn  string
	hook *hook
}

func (h hooked) Driver() driver.Driver {
	db, _ := sql.Open("sqlite", "")
	defer db.Close()
	return db.Driver()
}

func (h hooked) Connect(context.Context) (driver.Conn, error) {
	c, err := h.Driver().Open(h.dsn)
	if err != nil {
		return nil, err
	}
	return &hookedConn{Conn: c, hook: h.hook}, nil
}

type hookedConn struct {
	driver.Conn
	hook *hook
}

func (c *hookedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if query == c.hook.ignore {
		query = "SELECT 'delete'"
	}
	s, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return &hookedStmt{Stmt: s, query: query, conn: c}, nil
}

func (c *hookedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (res driver.Result, err error) {
	err = c.hook.run(query, func() (err error) {
		res, err = c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
		return err
	})
	return res, err
}

func (c *hookedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (rows driver.Rows, err error) {
	err = c.hook.run(query, func() (err error) {
		rows, err = c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
		return err
	})
	return answered(rows, err)
}

// answered drops rows whose answer was lost.
func answered(rows driver.Rows, err error) (driver.Rows, error) {
	if err != nil && rows != nil {
		_ = rows.Close()
		rows = nil
	}
	return rows, err
}

func (c *hookedConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
}

type hookedStmt struct {
	driver.Stmt
	query string
	conn  *hookedConn
}

func (s *hookedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (res driver.Result, err error) {
	err = s.conn.hook.run(s.query, func() (err error) {
		res, err = s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
		return err
	})
	return res, err
}

func (s *hookedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (rows driver.Rows, err error) {
	err = s.conn.hook.run(s.query, func() (err error) {
		rows, err = s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
		return err
	})
	rows, err = answered(rows, err)
	if errors.Is(err, errEnded) {
		if _, err := s.conn.Conn.(driver.ExecerContext).ExecContext(ctx, "ROLLBACK", nil); err != nil {
			return nil, err
		}
	}
	return rows, err
}

// errEnded is an error after which SQLite has ended the transaction by itself.
var errEnded = coded(codeIOErr | 1<<8)

// coded is an error of SQLite's, as a driver with numeric codes reports it.
type coded int

func (c coded) Error() string { return "injected" }
func (c coded) Code() int     { return int(c) }

var errInjected = errors.New("injected, and not SQLite's")
