// SPDX-License-Identifier: Apache-2.0

package pgxv5

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// front is a connection with statements that are held back: they go out with the
// next one, in one round trip, in front of it. The server skips everything in a
// pipeline that follows an error, so a statement is not run unless all that was
// held back in front of it succeeded.
type front struct {
	conn *pgx.Conn
	held []held
	// reached says that the server has answered.
	reached bool
}

// held is one statement that is held back.
type held struct {
	sql  string
	args []any
	// text returns the same with its arguments in it, for the simple protocol; nil if
	// there is no such form.
	text func() string
	// begins and claims say that it is the BEGIN or the claim of the transaction.
	begins, claims bool
	// rows says that it only reads or writes rows.
	rows bool
	// read, if not nil, reads the answer in a pipeline.
	read func(pgx.BatchResults) error
	// ended, if not nil, is told how the statement ended, and returns what that means.
	ended func(error) error
}

func (h held) answer(r pgx.BatchResults) error {
	if h.read != nil {
		return h.read(r)
	}
	_, err := r.Exec()
	return err
}

// bare is a statement without arguments.
func bare(sql string) held { return held{sql: sql, text: func() string { return sql }} }

// begin is the statement that begins a transaction.
func begin(sql string) held {
	h := bare(sql)
	h.begins = true
	return h
}

// text is everything that is held back, for the simple protocol, if it has that
// form.
func (f *front) text() (text string, ok bool) {
	var b strings.Builder
	for _, h := range f.held {
		if h.text == nil {
			return "", false
		}
		b.WriteString(h.text())
		b.WriteString(";\n")
	}
	return b.String(), true
}

// send sends what is held back, and queries behind it, and reads the answers to
// what was held back. The caller reads the others, and closes the results.
func (f *front) send(ctx context.Context, queries ...*pgx.QueuedQuery) (pgx.BatchResults, error) {
	b := &pgx.Batch{QueuedQueries: make([]*pgx.QueuedQuery, 0, len(f.held)+len(queries))}
	for _, h := range f.held {
		b.Queue(h.sql, h.args...)
	}
	b.QueuedQueries = append(b.QueuedQueries, queries...)
	r := f.conn.SendBatch(ctx, b)
	return r, f.read(r)
}

// read reads the answers to what was held back, which is held back no more, unless
// pgx could not send it: a statement behind it could not be prepared.
func (f *front) read(r pgx.BatchResults) error {
	for i, h := range f.held {
		err := h.answer(r)
		if err != nil {
			_ = r.Close()
		}
		if h.ended != nil {
			err = h.ended(err)
		}
		if err != nil {
			if i > 0 || f.conn.IsClosed() || f.conn.PgConn().TxStatus() != 'I' {
				f.held = nil
			}
			return err
		}
		f.reached = true
	}
	f.held = nil
	return nil
}

// flush sends what is held back by itself.
func (f *front) flush(ctx context.Context) error {
	if len(f.held) == 0 {
		return nil
	}
	r, err := f.send(ctx)
	if err != nil {
		return err
	}
	return r.Close()
}

// Exec runs one statement, or several without arguments.
func (f *front) Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	if len(f.held) == 0 {
		return f.conn.Exec(ctx, sql, args...)
	}
	if len(args) == 0 {
		return f.script(ctx, sql)
	}
	if hasOptions(args) {
		if err := f.flush(ctx); err != nil {
			return tag, err
		}
		return f.conn.Exec(ctx, sql, args...)
	}
	r, err := f.send(ctx, &pgx.QueuedQuery{SQL: sql, Arguments: args})
	if err != nil {
		return tag, err
	}
	tag, err = r.Exec()
	if closed := r.Close(); err == nil {
		err = closed
	}
	return tag, err
}

// script runs a text without arguments, which pgx sends by the simple protocol, so
// that it may be several statements.
func (f *front) script(ctx context.Context, sql string) (tag pgconn.CommandTag, err error) {
	text, ok := f.text()
	if !ok {
		if err := f.flush(ctx); err != nil {
			return tag, err
		}
		return f.conn.Exec(ctx, sql)
	}
	sent := f.held
	f.held = nil
	tag, err = f.conn.Exec(ctx, text+sql)
	f.reached = f.reached || err == nil
	for _, h := range sent {
		if h.ended == nil {
			continue
		}
		// Which of the statements an error is of is for ended to recognise.
		if known := h.ended(err); err == nil || known != err { //nolint:errorlint // whether it is another one is the question
			err = known
		}
	}
	return tag, err
}

// Query runs one statement. Its rows close the pipeline that they come in.
func (f *front) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if len(f.held) > 0 && hasOptions(args) {
		if err := f.flush(ctx); err != nil {
			return &rows{failed: err}, err
		}
	}
	if len(f.held) == 0 {
		return f.conn.Query(ctx, sql, args...)
	}
	r, err := f.send(ctx, &pgx.QueuedQuery{SQL: sql, Arguments: args})
	if err != nil {
		return &rows{failed: err}, err
	}
	raw, err := r.Query()
	if err != nil {
		_ = r.Close()
		return &rows{failed: err}, err
	}
	return &pipelined{Rows: raw, results: r}, nil
}

// hasOptions says whether pgx would take the first argument for an option, which a
// batch does not.
func hasOptions(args []any) bool {
	if len(args) == 0 {
		return false
	}
	switch args[0].(type) {
	case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID, pgx.QueryRewriter:
		return true
	}
	return false
}

// pipelined are rows that end a pipeline.
type pipelined struct {
	pgx.Rows
	results pgx.BatchResults
	ended   bool
	err     error
}

func (p *pipelined) Next() bool {
	if p.Rows.Next() {
		return true
	}
	p.end()
	return false
}

func (p *pipelined) Close() {
	p.Rows.Close()
	p.end()
}

func (p *pipelined) end() {
	if !p.ended {
		p.ended = true
		p.err = p.results.Close()
	}
}

func (p *pipelined) Err() error {
	if err := p.Rows.Err(); err != nil {
		return err
	}
	return p.err
}
