// SPDX-License-Identifier: Apache-2.0

package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/reprise-go/reprise/internal/dbserver/dbtest"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/mysql"
)

// TestRefusedCommit has the server answer the message that ends in COMMIT with an
// error, and then answer ROLLBACK or be cut off at it.
func TestRefusedCommit(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	for _, c := range []struct {
		name   string
		number int
		cut    bool
		want   error
	}{
		{"the binary log could not be written", 1026, false, store.ErrCommitUnknown},
		{"an error during COMMIT", 1180, false, store.ErrCommitUnknown},
		{"the binary log is impossible", 1598, false, store.ErrCommitUnknown},
		{"the disk is full", 1021, false, store.ErrUnavailable},
		{"the disk is full, and then silence", 1021, true, store.ErrCommitUnknown},
		{"a deadlock", 1213, false, store.ErrConflict},
	} {
		b.exec(fmt.Sprintf("CREATE OR REPLACE TRIGGER refuses BEFORE INSERT ON reprise_result FOR EACH ROW "+
			"SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = %d", c.number))
		for way, params := range both {
			key := c.name + ", " + way
			p := newProxy(t, dbtest.MariaDB(t).Addr(), holds("ROLLBACK"), false)
			d, err := mysql.New(t.Context(), openDB(t, strings.Replace(b.dsn, dbtest.MariaDB(t).Addr(), p.addr(), 1)+params), nil)
			if err != nil {
				t.Fatal(err)
			}
			p.armed.Store(c.cut)
			_, executed, err := execute(t.Context(), d, claim(key), func(ctx context.Context, tx *sql.Tx) error { return order(ctx, tx, key) })
			if cuts := p.cuts.Load() == 1; cuts != c.cut {
				t.Fatalf("%s: cut %t, want %t; the test proves nothing", key, cuts, c.cut)
			}
			if executed || mysql.Number(err) != c.number {
				t.Errorf("%s: executed %t, error %v; want number %d", key, executed, err, c.number)
			}
			for _, sentinel := range []error{store.ErrCommitUnknown, store.ErrUnavailable, store.ErrConflict} {
				if errors.Is(err, sentinel) != (sentinel == c.want) {
					t.Errorf("%s: error %v; want %v and nothing else", key, err, c.want)
				}
			}
			if e, err := resolve(t.Context(), d, intent(key)); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s: resolved as %s, error %v; want the certainty that nothing was kept", key, e.State, err)
			}
			b.wantOrders(key, 0)
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	b.exec("DROP TRIGGER refuses")
	d := b.open(together)
	if _, executed, err := execute(t.Context(), d, claim("k"), func(ctx context.Context, tx *sql.Tx) error { return order(ctx, tx, "k") }); err != nil || !executed {
		t.Errorf("once nothing refuses: executed %t, error %v", executed, err)
	}
	b.wantOrders("k", 1)
}

// TestAnswersToCommit tells the errors after which the transaction may have been
// committed from those after which it was not.
func TestAnswersToCommit(t *testing.T) {
	t.Parallel()
	for number, unknown := range map[uint16]bool{
		1026: true, 1180: true, 1598: true, 1047: true, 1053: true, 1317: true, 1927: true, 4031: true,
		1021: false, 1062: false, 1114: false, 1205: false, 1213: false, 1290: false, 1792: false, 3572: false,
	} {
		err := mysql.Committed(&driver.MySQLError{Number: number, Message: "no"})
		if err == nil || errors.Is(err, store.ErrCommitUnknown) != unknown {
			t.Errorf("%d: %v; commit unknown should be %t", number, err, unknown)
		}
	}
}
