// SPDX-License-Identifier: Apache-2.0

package pgxv5

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/reprise-go/reprise/store"
)

// rows are those of one query of a handler. They are silent when its transaction
// has ended.
type rows struct {
	t      *tx
	raw    pgx.Rows
	end    func() // nil if they are one answer of a batch
	closed bool
	failed error
}

var _ pgx.Rows = (*rows)(nil)

// enter lets one call pass; ok false means that there is nothing to be called.
func (r *rows) enter() (ok bool) {
	if r.t == nil {
		return false
	}
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	switch {
	case r.closed:
		return false
	case r.t.busy:
		r.failed = r.t.fail(errors.New("pgxv5: the transaction is in use by another goroutine"))
		return false
	}
	r.t.busy = true
	return true
}

// shut closes the rows. The caller has seen to it that nobody else uses them.
func (r *rows) shut() error {
	if r.closed {
		return nil
	}
	r.closed = true
	r.raw.Close()
	if r.end != nil {
		r.end()
	}
	if r.failed == nil {
		r.failed = r.raw.Err()
	}
	return r.failed
}

// over closes the rows, and leaves.
func (r *rows) over() {
	err := r.shut()
	if r.end != nil {
		r.t.opened(nil)
	}
	_ = r.t.leave(err)
}

func (r *rows) Close() {
	if r.enter() {
		r.over()
	}
}

func (r *rows) Next() bool {
	if !r.enter() {
		return false
	}
	if r.raw.Next() {
		_ = r.t.leave(nil)
		return true
	}
	r.over()
	return false
}

func (r *rows) Err() error {
	if r.t == nil {
		return r.failed
	}
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	if r.t.sealed && r.failed == nil {
		return fmt.Errorf("%w: its handler has returned", store.ErrTxMisuse)
	}
	return r.failed
}

// read passes one call on while the rows are open.
func read[V any](r *rows, call func() (V, error)) (v V, err error) {
	if !r.enter() {
		if err = r.Err(); err == nil {
			err = errors.New("pgxv5: the rows are closed")
		}
		return v, err
	}
	v, err = call()
	if err != nil {
		r.failed = err
	}
	return v, r.t.leave(err)
}

func (r *rows) Scan(dest ...any) error {
	_, err := read(r, func() (struct{}, error) { return struct{}{}, r.raw.Scan(dest...) })
	return err
}

func (r *rows) Values() ([]any, error) {
	return read(r, func() ([]any, error) { return r.raw.Values() })
}

func (r *rows) RawValues() [][]byte {
	v, _ := read(r, func() ([][]byte, error) { return r.raw.RawValues(), nil })
	return v
}

func (r *rows) CommandTag() (tag pgconn.CommandTag) {
	if r.raw == nil {
		return tag
	}
	return r.raw.CommandTag()
}

func (r *rows) FieldDescriptions() []pgconn.FieldDescription {
	if r.raw == nil {
		return nil
	}
	return r.raw.FieldDescriptions()
}

func (r *rows) TypeMap() *pgtype.Map {
	if r.raw == nil {
		return pgtype.NewMap()
	}
	return r.raw.TypeMap()
}

// Conn returns what tx.Conn does.
func (r *rows) Conn() *pgx.Conn {
	if r.t == nil {
		return nil
	}
	return r.t.Conn()
}

// row is the first of rows.
type row struct{ rows pgx.Rows }

func (r row) Scan(dest ...any) error {
	defer r.rows.Close()
	for _, d := range dest {
		if _, ok := d.(*pgtype.DriverBytes); ok {
			return errors.New("pgxv5: QueryRow can't scan into *pgtype.DriverBytes, which is valid until the rows are closed only")
		}
	}
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}

// results are those of one batch of a handler.
type results struct {
	t      *tx
	raw    pgx.BatchResults
	end    func()
	closed bool
	failed error
}

var _ pgx.BatchResults = (*results)(nil)

func (r *results) enter() error {
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	switch {
	case r.closed && r.failed != nil:
		return r.failed
	case r.closed:
		return errors.New("pgxv5: the batch is closed")
	case r.t.busy:
		return r.t.fail(errors.New("pgxv5: the transaction is in use"))
	}
	r.t.busy = true
	return nil
}

func (r *results) Exec() (tag pgconn.CommandTag, err error) {
	if err := r.enter(); err != nil {
		return tag, err
	}
	tag, err = r.raw.Exec()
	return tag, r.t.leave(err)
}

func (r *results) Query() (pgx.Rows, error) {
	if err := r.enter(); err != nil {
		return &rows{failed: err}, err
	}
	raw, err := r.raw.Query()
	if err != nil {
		err = r.t.leave(err)
		return &rows{failed: err}, err
	}
	_ = r.t.leave(nil)
	return &rows{t: r.t, raw: raw}, nil
}

func (r *results) QueryRow() pgx.Row {
	rows, _ := r.Query()
	return row{rows}
}

// shut closes the batch. Its callbacks run.
func (r *results) shut() error {
	if r.closed {
		return r.failed
	}
	r.closed = true
	r.failed = r.raw.Close()
	r.end()
	return r.failed
}

func (r *results) Close() error {
	if err := r.enter(); err != nil {
		if r.closed {
			return r.failed
		}
		return err
	}
	err := r.shut()
	r.t.opened(nil)
	return r.t.leave(err)
}

// Tx returns nil: the batch began no transaction.
func (r *results) Tx() pgx.Tx { return nil }

// callback is what the callback of a query in a batch gets: everything but the
// connection.
func (t *tx) callback(call func(pgx.BatchResults) error) func(pgx.BatchResults) error {
	return func(r pgx.BatchResults) error { return call(unconnected{r, t}) }
}

type unconnected struct {
	pgx.BatchResults
	t *tx
}

func (u unconnected) Query() (pgx.Rows, error) {
	r, err := u.BatchResults.Query()
	return unconnectedRows{r, u.t}, err
}

func (u unconnected) QueryRow() pgx.Row {
	r, _ := u.Query()
	return row{r}
}

type unconnectedRows struct {
	pgx.Rows
	t *tx
}

func (u unconnectedRows) Conn() *pgx.Conn { return u.t.Conn() }
