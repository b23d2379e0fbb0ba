// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/reprise-go/reprise/store"
)

// smallLog is a log of a few pages.
const smallLog = 32 << 10

// logFile is how long the file of the log is.
func (f *fixture) logFile() int64 {
	f.t.Helper()
	info, err := os.Stat(f.path + "-wal")
	if err != nil {
		f.t.Fatal(err)
	}
	return info.Size()
}

// write places orders from four callers, n in all.
func (f *fixture) write(prefix string, n int) {
	f.t.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if err := f.place(fmt.Sprint(prefix, i)); err != nil {
					f.t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// read lets the driver's own reads go on without a pause until stop is called.
func (f *fixture) read() (stop func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := f.Entries(ctx, store.EntryFilter{Limit: 200}); err != nil && ctx.Err() == nil {
					f.t.Error(err)
				}
				if _, err := f.Find(ctx, intent("a1")); err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrNotFound) {
					f.t.Error(err)
				}
			}
		})
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

// settled waits until the driver has dealt with the log for now.
func (f *fixture) settled() {
	f.t.Helper()
	until(f.t, func() bool { return !f.writer.log.working.Load() })
}

func TestLog(t *testing.T) {
	t.Parallel()

	t.Run("stays short under writers and reads of the driver that never pause", func(t *testing.T) {
		t.Parallel()
		sizes := map[int64]int64{}
		// The second size is never reached, and shows how long the log would be.
		for _, size := range []int64{smallLog, 1 << 40} {
			f := setup(t, &Options{LogSize: size})
			stop := f.read()
			f.write("a", 300)
			stop()
			f.settled()
			sizes[size] = f.logFile()
			if n := f.orders(); n != 300 {
				t.Errorf("%d orders, want 300", n)
			}
			if s := f.Stats(); (s.LogRenewals >= 3) != (size == smallLog) || s.Requests < 300 || s.Commits == 0 || s.Commits > s.Requests {
				t.Errorf("LogSize %d: %+v", size, s)
			}
		}
		if limit := int64(32 * smallLog); sizes[smallLog] > limit || sizes[1<<40] < 2*limit {
			t.Errorf("the log is %d bytes long, want at most %d, and %d if nobody cares for it, want at least %d",
				sizes[smallLog], limit, sizes[1<<40], 2*limit)
		}
	})

	t.Run("is held by a reader of the user, which can be seen, and begins anew when it has gone", func(t *testing.T) {
		t.Parallel()
		f := setup(t, &Options{LogSize: smallLog})
		f.write("a", 40)
		rows, err := f.db.Query("SELECT ref FROM orders")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		if !rows.Next() {
			t.Fatal("no order to read")
		}
		n := 0
		until(t, func() bool {
			n++
			f.write(fmt.Sprint("b", n, "-"), 40)
			return !f.Stats().LogHeldSince.IsZero()
		})
		f.write("c", 200)
		f.settled()
		held := f.logFile()
		if s := f.Stats(); s.LogSize < smallLog || held < 8*smallLog {
			t.Errorf("the log is %d bytes long, and %+v", held, s)
		}
		if err := rows.Close(); err != nil {
			t.Fatal(err)
		}
		until(t, func() bool {
			n++
			f.write(fmt.Sprint("d", n, "-"), 40)
			f.settled()
			return f.Stats().LogHeldSince.IsZero()
		})
		f.write("e", 1) // the first write into the log cuts it off
		if size := f.logFile(); size > held/2 {
			t.Errorf("the log is %d bytes long after the reader has gone, and was %d", size, held)
		}
		f.whole()
	})

	t.Run("is written back beside the writers", func(t *testing.T) {
		t.Parallel()
		f := setup(t, &Options{LogSize: smallLog})
		busy, leave := make(chan struct{}), make(chan struct{})
		var once sync.Once
		f.hook.set(func(query string) error {
			if strings.Contains(query, "PASSIVE") {
				once.Do(func() {
					close(busy)
					<-leave
				})
			}
			return nil
		}, nil)
		f.write("a", 100)
		<-busy
		f.write("b", 100)
		if n := f.hook.seen("PRAGMA wal_checkpoint(RESTART)"); n != 0 {
			t.Error("the log began anew before it was written back")
		}
		close(leave)
		f.settled()
		if s := f.Stats(); s.LogRenewals == 0 {
			t.Errorf("%+v", s)
		}
		f.whole()
	})

	t.Run("is written back although the pool has no connection to spare", func(t *testing.T) {
		t.Parallel()
		f := setup(t, &Options{LogSize: smallLog})
		f.db.SetMaxOpenConns(2)
		conn, err := f.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		f.write("a", 100)
		f.settled()
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		if s := f.Stats(); s.LogRenewals == 0 {
			t.Errorf("%+v", s)
		}
		f.whole()
	})

	t.Run("answers a batch before it makes others wait", func(t *testing.T) {
		t.Parallel()
		f := setup(t, &Options{LogSize: smallLog})
		asked, leave := make(chan struct{}), make(chan struct{})
		var once sync.Once
		f.hook.set(func(query string) error {
			if strings.Contains(query, "RESTART") {
				once.Do(func() {
					close(asked)
					<-leave
				})
			}
			return nil
		}, nil)
		var answered atomic.Int64
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				if err := f.place(fmt.Sprint("a", i)); err != nil {
					t.Error(err)
				}
				answered.Add(1)
			})
		}
		<-asked
		n := f.orders()
		until(t, func() bool { return answered.Load() == int64(n) }) // everybody whose work is committed
		late := make(chan error, 1)
		go func() { late <- f.place("late") }()
		f.waiting(1)
		if f.orders() != n || f.orders("late") != 0 {
			t.Error("something was written while the log began anew")
		}
		close(leave)
		if err := <-late; err != nil {
			t.Error(err)
		}
		wg.Wait()
		f.kept("late", 1)
	})

	t.Run("that can't be written back is no request's failure", func(t *testing.T) {
		t.Parallel()
		f := setup(t, &Options{LogSize: smallLog})
		fail, fired := failing("PRAGMA wal_checkpoint", 1<<30, coded(codeIOErr|extendedFsync))
		f.hook.set(fail, nil)
		f.write("a", 200)
		f.settled()
		if fired() == 0 {
			t.Error("nothing was tried")
		}
		f.hook.set(nil, nil)
		f.whole()
		if n := f.orders(); n != 200 {
			t.Errorf("%d orders, want 200", n)
		}
	})

	t.Run("is left alone once the driver is closed", func(t *testing.T) {
		t.Parallel()
		f := setup(t, &Options{LogSize: smallLog})
		f.write("a", 100)
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if f.writer.log.working.Load() {
			t.Error("Close did not wait")
		}
		f.whole()
	})
}
