// SPDX-License-Identifier: Apache-2.0

package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/inbox"
	"github.com/reprise-go/reprise/outbox"
	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/sqlite"
)

// world is a producer and a consumer, with a SQLite file each, as two services
// have. What happened is counted in the tables alone: made holds what the
// producer committed, effect what the consumer did.
type world struct {
	producer, consumer *sqlite.Driver
	files              [2]*sql.DB
	out                *outbox.Outbox[*sql.Tx]
	in                 *inbox.Inbox[*sql.Tx]
}

func openWorld(ctx context.Context, dir string) (w *world, err error) {
	w = &world{}
	w.files[0], w.producer, err = openFile(ctx, filepath.Join(dir, "producer.db"),
		`CREATE TABLE IF NOT EXISTS counter (subject TEXT PRIMARY KEY, n INTEGER NOT NULL);
		 CREATE TABLE IF NOT EXISTS made (id TEXT PRIMARY KEY, subject TEXT NOT NULL, n INTEGER NOT NULL)`)
	if err != nil {
		return nil, err
	}
	w.files[1], w.consumer, err = openFile(ctx, filepath.Join(dir, "consumer.db"),
		`CREATE TABLE IF NOT EXISTS effect (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL,
		 subject TEXT NOT NULL, n INTEGER NOT NULL)`)
	if err != nil {
		return nil, err
	}
	w.out, err = outbox.New(w.producer, &outbox.Config{Source: "/producer"})
	if err != nil {
		return nil, err
	}
	w.in, err = inbox.New(w.consumer, "consumer", nil)
	return w, err
}

func openFile(ctx context.Context, path, schema string) (*sql.DB, *sqlite.Driver, error) {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return nil, nil, err
	}
	d, err := sqlite.New(ctx, db, nil)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	if err := migrate.Up(ctx, d); err != nil {
		return nil, nil, err
	}
	return db, d, d.Transact(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, schema)
		return err
	})
}

func (w *world) close() error {
	return errors.Join(w.producer.Close(), w.consumer.Close(), w.files[0].Close(), w.files[1].Close())
}

func newWorld(t *testing.T, dir string) *world {
	t.Helper()
	w, err := openWorld(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// emit enqueues one event per subject in tx, with a business row for each and its
// number in the order of its subject's commits: a number that is rolled back is
// given out again.
func (w *world) emit(ctx context.Context, tx *sql.Tx, subjects ...string) error {
	for _, subject := range subjects {
		var n int
		err := tx.QueryRowContext(ctx, `INSERT INTO counter VALUES (?, 1)
			ON CONFLICT (subject) DO UPDATE SET n = n + 1 RETURNING n`, subject).Scan(&n)
		if err != nil {
			return err
		}
		m := reprise.Message{
			ID: fmt.Sprintf("%s%d", subject, n), Type: "made", Subject: subject, Data: strconv.AppendInt(nil, int64(n), 10),
		}
		if subject == "" {
			m.ID = fmt.Sprint("loose", n)
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO made VALUES (?, ?, ?)", m.ID, subject, n); err != nil {
			return err
		}
		if err := w.out.Enqueue(ctx, tx, m); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) commit(ctx context.Context, subjects ...string) error {
	return w.producer.Transact(ctx, func(ctx context.Context, tx *sql.Tx) error { return w.emit(ctx, tx, subjects...) })
}

// apply is the consumer's effect.
func (w *world) apply(ctx context.Context, tx *sql.Tx, m reprise.Message) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO effect (id, subject, n) VALUES (?, ?, ?)", m.ID, m.Subject, string(m.Data))
	return err
}

type event struct {
	id, subject string
	n           int
}

func (w *world) made(t *testing.T) []event {
	t.Helper()
	return rows(t, w.files[0], "SELECT id, subject, n FROM made ORDER BY subject, n")
}

// effects returns what the consumer did, in that order.
func (w *world) effects(t *testing.T) []event {
	t.Helper()
	return rows(t, w.files[1], "SELECT id, subject, n FROM effect ORDER BY seq")
}

func rows(t *testing.T, db *sql.DB, query string) (all []event) {
	t.Helper()
	rows, err := db.QueryContext(context.Background(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var e event
		if err := rows.Scan(&e.id, &e.subject, &e.n); err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// check compares what was done with what was committed: each event once, none
// that was rolled back, and each subject in the order of its commits.
func (w *world) check(t *testing.T) {
	t.Helper()
	made, effects := w.made(t), w.effects(t)
	last := make(map[string]int)
	for _, e := range effects {
		if e.subject == "" {
			continue
		}
		if e.n != last[e.subject]+1 {
			t.Errorf("subject %q: event %d followed event %d", e.subject, e.n, last[e.subject])
		}
		last[e.subject] = e.n
	}
	sorted := slices.Clone(effects)
	slices.SortFunc(sorted, func(a, b event) int {
		if a.subject != b.subject {
			if a.subject < b.subject {
				return -1
			}
			return 1
		}
		return a.n - b.n
	})
	if !slices.Equal(sorted, made) {
		t.Errorf("%d effects of %d committed events:\n got %v\nwant %v", len(effects), len(made), sorted, made)
	}
}
