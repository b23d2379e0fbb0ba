// SPDX-License-Identifier: Apache-2.0

package psp

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/internal/backoff"
)

// bookVersion is the layout of the file, kept in its user_version.
const bookVersion = 1

// openTimeout is how long openBook waits for others that have the file.
const openTimeout = 10 * time.Second

const bookSchema = `
CREATE TABLE charges (
	seq        INTEGER PRIMARY KEY AUTOINCREMENT,
	id         TEXT    NOT NULL UNIQUE,
	reference  TEXT    NOT NULL,
	amount     INTEGER NOT NULL,
	currency   TEXT    NOT NULL,
	source     TEXT    NOT NULL,
	status     TEXT    NOT NULL,
	created_at INTEGER NOT NULL -- Unix milliseconds
);
CREATE INDEX charges_reference ON charges (reference, seq);
CREATE TABLE keys (
	key        TEXT    PRIMARY KEY,
	charge     INTEGER NOT NULL REFERENCES charges (seq),
	created_at INTEGER NOT NULL -- Unix milliseconds
) WITHOUT ROWID;
PRAGMA user_version = 1;`

// errOtherParameters: the key has made a charge that was asked for otherwise.
var errOtherParameters = errors.New("psp: key used with other parameters")

// book is the provider's memory. Several processes may share its file.
type book struct{ db *sql.DB }

func openBook(ctx context.Context, path string) (*book, error) {
	q := url.Values{
		"_pragma": {"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)"},
		"_txlock": {"immediate"},
	}
	dsn := "file:" + (&url.URL{Path: filepath.Clean(path)}).EscapedPath() + "?" + q.Encode()
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	b := &book{db}
	if err := b.prepare(ctx, time.Now().Add(openTimeout)); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return b, nil
}

// prepare migrates the file, waiting for other processes that open or close it
// now. SQLite calls no busy handler where two of them could wait for each other:
// while one switches a file to WAL, or removes the log as the last one to leave.
func (b *book) prepare(ctx context.Context, deadline time.Time) error {
	for {
		err := b.migrate(ctx)
		failed, ok := errors.AsType[*sqlite.Error](err)
		if !ok || failed.Code()&0xff != sqlite3.SQLITE_BUSY || time.Now().After(deadline) {
			return err
		}
		if sleep := backoff.Sleep(ctx, time.Millisecond); sleep != nil {
			return errors.Join(sleep, err)
		}
	}
}

// migrate makes the tables of a new file, and refuses a file that isn't ours.
func (b *book) migrate(ctx context.Context) error {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	var version, tables int
	err = tx.QueryRowContext(ctx,
		`SELECT user_version, (SELECT count(*) FROM sqlite_schema) FROM pragma_user_version`).Scan(&version, &tables)
	switch {
	case err != nil:
		return err
	case version == bookVersion:
		return nil
	case version > bookVersion:
		return fmt.Errorf("its schema has version %d and this program knows %d", version, bookVersion)
	case tables > 0:
		return errors.New("it holds tables of something else")
	}
	if _, err := tx.ExecContext(ctx, bookSchema); err != nil {
		return err
	}
	return tx.Commit()
}

func (b *book) close() error { return b.db.Close() }

// charge records a charge under key, or returns the one that key has made.
func (b *book) charge(ctx context.Context, key reprise.Key, q chargeRequest, status string, now time.Time) (c Charge, found bool, err error) {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return c, false, err
	}
	defer func() { _ = tx.Rollback() }()
	c, source, err := lookUp(ctx, tx, key, now)
	switch {
	case err == nil && (c.Reference != q.Reference || c.Amount != int64(q.Amount) || c.Currency != q.Currency || source != q.Source):
		return c, true, errOtherParameters
	case err == nil:
		return c, true, nil
	case !errors.Is(err, sql.ErrNoRows):
		return c, false, err
	}
	c = Charge{
		ID: "ch_" + rand.Text(), Reference: q.Reference, Amount: int64(q.Amount), Currency: q.Currency,
		Status: status, CreatedAt: now.UTC().Truncate(time.Millisecond),
	}
	res, err := tx.ExecContext(ctx,
		`INSERT INTO charges (id, reference, amount, currency, source, status, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		c.ID, c.Reference, c.Amount, c.Currency, q.Source, c.Status, now.UnixMilli())
	if err != nil {
		return c, false, err
	}
	seq, err := res.LastInsertId()
	if err != nil {
		return c, false, err
	}
	_, err = tx.ExecContext(ctx, `INSERT OR REPLACE INTO keys (key, charge, created_at) VALUES (?, ?, ?)`,
		string(key), seq, now.UnixMilli())
	if err != nil {
		return c, false, err
	}
	return c, false, tx.Commit()
}

// lookUp finds the charge that key has made within KeyLife, or sql.ErrNoRows.
func lookUp(ctx context.Context, tx *sql.Tx, key reprise.Key, now time.Time) (c Charge, source string, err error) {
	var created int64
	err = tx.QueryRowContext(ctx,
		`SELECT c.id, c.reference, c.amount, c.currency, c.status, c.created_at, c.source
		   FROM keys k JOIN charges c ON c.seq = k.charge
		  WHERE k.key = ? AND k.created_at > ?`, string(key), now.Add(-KeyLife).UnixMilli()).
		Scan(&c.ID, &c.Reference, &c.Amount, &c.Currency, &c.Status, &created, &source)
	c.CreatedAt = time.UnixMilli(created).UTC()
	return c, source, err
}

// page chooses charges, oldest first.
type page struct {
	// reference, if not empty, chooses the charges of one reference.
	reference string
	// after is the id of a charge to continue after.
	after string
	limit int
}

// charges returns one page. The error is sql.ErrNoRows if there is no charge
// with the id that it is to continue after.
func (b *book) charges(ctx context.Context, p page) ([]Charge, error) {
	var after int64
	if p.after != "" {
		if err := b.db.QueryRowContext(ctx, `SELECT seq FROM charges WHERE id = ?`, p.after).Scan(&after); err != nil {
			return nil, err
		}
	}
	rows, err := b.db.QueryContext(ctx,
		`SELECT id, reference, amount, currency, status, created_at FROM charges
		  WHERE seq > ?1 AND (?2 = '' OR reference = ?2) ORDER BY seq LIMIT ?3`, after, p.reference, p.limit)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	found := []Charge{}
	for rows.Next() {
		var c Charge
		var created int64
		if err := rows.Scan(&c.ID, &c.Reference, &c.Amount, &c.Currency, &c.Status, &created); err != nil {
			return nil, err
		}
		c.CreatedAt = time.UnixMilli(created).UTC()
		found = append(found, c)
	}
	return found, rows.Err()
}
