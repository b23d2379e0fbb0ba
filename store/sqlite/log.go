// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql/driver"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/store/internal/record"
)

const (
	// lookEvery is after how many requests the length of the log is asked for.
	lookEvery = 32
	// maxPolls is how often, in pauses of pollReaders, it is looked whether the
	// user's readers have left the log, while writers wait.
	maxPolls, pollReaders = 10, 200 * time.Microsecond
	// holdBase and holdLimit space the attempts while a reader holds the log.
	holdBase, holdLimit = 20 * time.Millisecond, time.Second
	// frameHeader is what a page has beside itself in the log.
	frameHeader = 24
)

// log keeps the write-ahead log short. SQLite begins it anew only when all of it
// is in the database and no reader is in it, and looks for that moment when it
// writes; beside writers and readers that never pause there is none, and the log
// grows without end. So the driver makes one, in two steps: it writes the log
// back on a connection of the pool, while writers go on, and then, with the turn
// in its hands so that nothing is added, lets its own reads end, waits a moment for
// those of others, and writes back the rest. A COMMIT never writes back anything.
//
// It has a goroutine only while there is something to do.
type log struct {
	w      *writer
	unseen int // requests since the last look; the turn holder's

	working  atomic.Bool // a goroutine is at it
	requests atomic.Int64
	commits  atomic.Int64
	length   atomic.Int64 // in bytes, at the last look
	renewals atomic.Int64
	// reads is held by the driver's own reads, and against them. Nobody waits for the
	// turn or for a connection who holds it.
	reads sync.RWMutex

	mu     sync.Mutex
	held   time.Time // since when readers have been in the way
	next   time.Time // no attempt before this
	wait   time.Duration
	closed bool
	done   sync.WaitGroup
}

// Stats is what a Driver has done since New, and how its log stands.
type Stats struct {
	// Requests is how many writes were committed, and Commits how many COMMITs they
	// shared.
	Requests, Commits int64
	// LogSize is how long the write-ahead log was when the driver last looked, in
	// bytes, and LogRenewals how often the driver had it begin anew.
	LogSize, LogRenewals int64
	// LogHeldSince is since when a reader has kept the log from beginning anew; zero
	// if none does. While it is set the log grows with every write. The reader is a
	// transaction or an open *sql.Rows of the user, in this process or another: the
	// driver's own reads last for one bounded query.
	LogHeldSince time.Time
}

// Stats returns a moment's view.
func (d *Driver) Stats() Stats {
	l := &d.writer.log
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{
		Requests: l.requests.Load(), Commits: l.commits.Load(),
		LogSize: l.length.Load(), LogRenewals: l.renewals.Load(), LogHeldSince: l.held,
	}
}

// committed counts a batch, looks at the log from time to time, and begins to
// write it back if it has become long. The caller has the turn.
func (l *log) committed(members int) {
	l.requests.Add(int64(members))
	l.commits.Add(1)
	if l.unseen += members; l.unseen < lookEvery || l.w.conn == nil || l.working.Load() {
		return
	}
	l.unseen = 0
	if p, err := l.w.conn.checkpoint("NOOP"); err != nil || !l.long(p) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || time.Now().Before(l.next) {
		return
	}
	l.working.Store(true)
	l.done.Go(func() {
		defer l.working.Store(false)
		l.shorten()
	})
}

// long notes the length of the log and says whether it is over the limit.
func (l *log) long(p progress) bool {
	length := p.frames * (l.w.conn.page + frameHeader)
	l.length.Store(length)
	return length > l.w.options.LogSize
}

// shorten makes the log begin anew, or notes that a reader is in the way.
func (l *log) shorten() {
	ctx := context.Background()
	l.writeBack(ctx)
	if l.w.turn.acquire(ctx) != nil {
		return
	}
	l.w.commit()
	renewed := l.renew()
	l.w.turn.release()
	l.mu.Lock()
	defer l.mu.Unlock()
	if renewed {
		l.renewals.Add(1)
		l.length.Store(0)
		l.held, l.next, l.wait = time.Time{}, time.Time{}, 0
		return
	}
	now := time.Now()
	if l.held.IsZero() {
		l.held = now
	}
	l.wait = min(max(2*l.wait, holdBase), holdLimit)
	l.next = now.Add(l.wait)
}

// writeBack copies what it can into the database beside the writers. If the pool
// has no connection to spare, the rest is all of it.
func (l *log) writeBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, holdBase)
	defer cancel()
	conn, err := l.w.db.Conn(ctx)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	// It is not interrupted: what it does is needed by all.
	_ = queryRows(context.WithoutCancel(ctx), conn, func([]driver.Value) error { return nil }, "PRAGMA wal_checkpoint(PASSIVE)")
}

// renew writes back the rest once nobody reads from the log. The caller has the
// turn, and so the only connection of this process that adds to it.
func (l *log) renew() bool {
	l.reads.Lock()
	defer l.reads.Unlock()
	for range maxPolls {
		if l.w.conn == nil {
			return false
		}
		p, err := l.w.conn.checkpoint("RESTART")
		if err == nil && !p.busy {
			return true
		}
		if err != nil && code(err) != codeBusy && code(err) != codeLocked {
			return false
		}
		time.Sleep(pollReaders)
	}
	return false
}

// close waits for what is going on, and lets nothing more begin.
func (l *log) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.done.Wait()
}

// progress is SQLite's answer to wal_checkpoint.
type progress struct {
	busy           bool
	frames, copied int64
}

// checkpoint runs one of SQLite's modes. NOOP only tells how long the log is
// (SQLite 3.51; one that doesn't know it copies what it can).
func (c *connection) checkpoint(mode string) (p progress, err error) {
	err = c.Query(context.Background(), func(row []driver.Value) error {
		v := record.Read(row)
		p = progress{busy: v.Number() != 0, frames: v.Number(), copied: v.Number()}
		return v.Err()
	}, "PRAGMA wal_checkpoint("+mode+")")
	return p, err
}
