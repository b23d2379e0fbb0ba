// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

const (
	// usualPatience bounds everything that must happen; a rule that waits for it
	// fails.
	usualPatience = 5 * time.Minute
	// grace is how long a broken driver is given to do what it must not do. It
	// never makes a good driver fail.
	grace = 150 * time.Millisecond

	retention = 24 * time.Hour
	tombstone = 720 * time.Hour
	lease     = time.Hour
)

// fixture is one rule's database, the driver under test on it, and the
// application beside it.
type fixture[TTx any] struct {
	testing.TB

	h     Harness[TTx]
	name  string
	plain Plain[TTx]
	d     store.Driver[TTx]
	ctx   context.Context
	// patience is how long the rule waits for what must happen.
	patience time.Duration
}

func newFixture[TTx any](tb testing.TB, h Harness[TTx], patience time.Duration) *fixture[TTx] {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	tb.Cleanup(cancel)
	f := &fixture[TTx]{TB: tb, h: h, name: h.Create(tb), ctx: ctx, patience: patience}
	f.d, _ = f.open()
	f.plain = h.Plain(tb, f.name)
	f.statements(
		"CREATE TABLE storetest_effects (name VARCHAR(255) NOT NULL)",
		"CREATE TABLE storetest_unique (name VARCHAR(255) NOT NULL UNIQUE)",
		"INSERT INTO storetest_unique (name) VALUES ('taken')",
		"CREATE TABLE storetest_counter (n INTEGER NOT NULL)",
		"INSERT INTO storetest_counter (n) VALUES (0)",
	)
	return f
}

// open starts another process on the same database. stop may be called early.
func (f *fixture[TTx]) open() (d store.Driver[TTx], stop func()) {
	f.Helper()
	d, stop = f.h.Open(f.TB, f.name)
	stop = sync.OnceFunc(stop)
	f.Cleanup(stop)
	return d, stop
}

// both returns two drivers on the database, as two processes have them.
func (f *fixture[TTx]) both() []store.Driver[TTx] {
	f.Helper()
	other, _ := f.open()
	return []store.Driver[TTx]{f.d, other}
}

// statements commits statements as the application, without the driver.
func (f *fixture[TTx]) statements(statements ...string) {
	f.Helper()
	tx, err := f.plain.Begin(f.ctx)
	if err != nil {
		f.Fatalf("begin a plain transaction: %v", err)
	}
	for _, s := range statements {
		if err := f.plain.Exec(f.ctx, tx, s); err != nil {
			_ = f.plain.Rollback(f.ctx, tx)
			f.Fatalf("%s: %v", s, err)
		}
	}
	if err := f.plain.Commit(f.ctx, tx); err != nil {
		f.Fatalf("commit a plain transaction: %v", err)
	}
}

// age lets time pass.
func (f *fixture[TTx]) age(by time.Duration) {
	f.Helper()
	f.statements(f.h.Age(by)...)
}

// effect writes one business row in the handler's transaction.
func (f *fixture[TTx]) effect(ctx context.Context, tx TTx, name string) error {
	return f.plain.Exec(ctx, tx, "INSERT INTO storetest_effects (name) VALUES ('"+name+"')")
}

// effects counts the business rows that have been committed.
func (f *fixture[TTx]) effects(name string) int {
	f.Helper()
	tx, err := f.plain.Begin(f.ctx)
	if err != nil {
		f.Fatalf("begin a plain transaction: %v", err)
	}
	defer func() { _ = f.plain.Rollback(f.ctx, tx) }()
	n, err := f.plain.Count(f.ctx, tx, "SELECT COUNT(*) FROM storetest_effects WHERE name = '"+name+"'")
	if err != nil {
		f.Fatalf("count effects: %v", err)
	}
	return n
}

func (f *fixture[TTx]) wantEffects(name string, want int) {
	f.Helper()
	if got := f.effects(name); got != want {
		f.Errorf("%d effects were committed, want %d", got, want)
	}
}

func fingerprint(of byte) reprise.Fingerprint {
	var p reprise.Fingerprint
	p[0] = reprise.FingerprintVersion
	p[1] = of
	p[len(p)-1] = ^of
	return p
}

// intent returns an intent of the suite's usual caller and operation.
func intent(key reprise.Key) reprise.Intent {
	return reprise.Intent{Caller: "alice", Operation: "create-order", Key: key, Fingerprint: fingerprint(1)}
}

// other returns the same intent asked for with other content.
func other(in reprise.Intent) reprise.Intent {
	in.Fingerprint = fingerprint(2)
	return in
}

// effectOf names the business row that an intent makes.
func effectOf(in reprise.Intent) string { return in.ID().String() }

func claim(in reprise.Intent) store.Claim {
	return store.Claim{Intent: in, Token: store.NewToken(), Number: 1}
}

// completion is what an execution leaves: a result that names its token, so
// that two executions never look alike.
func completion(c store.Claim) store.Completion {
	return store.Completion{
		Result: reprise.Result{
			Status:    201,
			Header:    map[string][]string{"Content-Type": {"application/json"}, "Location": {"/orders/1"}},
			Body:      fmt.Appendf(nil, `{"token":"%x"}`, c.Token),
			Reference: "/orders/1",
		},
		Retention: retention,
		Tombstone: tombstone,
	}
}

// execute runs one attempt that makes one business row.
func (f *fixture[TTx]) execute(d store.Driver[TTx], in reprise.Intent) (store.Entry, bool, error) {
	return f.executeAs(d, claim(in), func(c *store.Completion) {})
}

func (f *fixture[TTx]) executeAs(d store.Driver[TTx], c store.Claim, change func(*store.Completion)) (store.Entry, bool, error) {
	return d.Execute(f.ctx, c, func(ctx context.Context, tx TTx) (store.Completion, error) {
		done := completion(c)
		change(&done)
		return done, f.effect(ctx, tx, effectOf(c.Intent))
	})
}

// mustExecute executes an intent that must be absent.
func (f *fixture[TTx]) mustExecute(d store.Driver[TTx], in reprise.Intent, change ...func(*store.Completion)) store.Entry {
	f.Helper()
	e, executed, err := f.executeAs(d, claim(in), func(c *store.Completion) {
		for _, fn := range change {
			fn(c)
		}
	})
	if err != nil || !executed {
		f.Fatalf("executing the absent intent %q: executed %t, error %v", in.Key, executed, err)
	}
	return e
}

// mustReplay asks for an intent that has a record. Its work must have no effect.
func (f *fixture[TTx]) mustReplay(d store.Driver[TTx], in reprise.Intent) store.Entry {
	f.Helper()
	c := claim(in)
	c.Held = func() { f.Errorf("the intent %q was held for an attempt although there is a record", in.Key) }
	e, executed, err := d.Execute(f.ctx, c, func(ctx context.Context, tx TTx) (store.Completion, error) {
		return completion(c), f.repeated(ctx, tx, in)
	})
	if err != nil || executed {
		f.Fatalf("repeating the intent %q: executed %t, error %v", in.Key, executed, err)
	}
	return e
}

// repeated is the work of an attempt that must not be executed. A driver whose
// claim rides with the first statement calls it, and refuses that statement.
func (f *fixture[TTx]) repeated(ctx context.Context, tx TTx, in reprise.Intent) error {
	f.Helper()
	if err := f.effect(ctx, tx, effectOf(in)); err != nil {
		return err
	}
	f.Errorf("work of %q had an effect although there is a record", in.Key)
	return errors.New("must not run")
}

func (f *fixture[TTx]) mustFind(d store.Driver[TTx], in reprise.Intent) store.Entry {
	f.Helper()
	e, err := d.Find(f.ctx, in)
	if err != nil {
		f.Fatalf("find %q: %v", in.Key, err)
	}
	return e
}

func (f *fixture[TTx]) wantAbsent(d store.Driver[TTx], in reprise.Intent) {
	f.Helper()
	if e, err := d.Find(f.ctx, in); !errors.Is(err, store.ErrNotFound) {
		f.Errorf("find %q: record in state %q, error %v; want ErrNotFound", in.Key, e.State, err)
	}
}

// again repeats fn while another transaction is in its way, which is what every
// user of a driver does.
func again(ctx context.Context, fn func() error) error {
	for {
		err := fn()
		if !errors.Is(err, store.ErrBusy) && !errors.Is(err, store.ErrConflict) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(time.Millisecond):
		}
	}
}

// call runs fn and reports its panic, if there is one, beside its error.
func call(fn func() error) (recovered any, err error) {
	defer func() { recovered = recover() }()
	return nil, fn()
}

// callApart is call in a goroutine of its own, which fn may end.
func callApart(fn func() error) (recovered any, exited bool, err error) {
	exited = true
	done := make(chan struct{})
	go func() {
		defer close(done)
		recovered, err = call(fn)
		exited = false
	}()
	<-done
	return recovered, exited, err
}

// held is an execution that stands inside its work until it is released.
type held struct {
	done chan error
	free func()
}

// hold starts executing in and returns once its work has made its effect. When
// it is released, work returns fail.
func (f *fixture[TTx]) hold(d store.Driver[TTx], in reprise.Intent, fail error) held {
	f.Helper()
	inside, release, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	enter, free := sync.OnceFunc(func() { close(inside) }), sync.OnceFunc(func() { close(release) })
	f.Cleanup(free)
	c := claim(in)
	go func() {
		_, _, err := d.Execute(f.ctx, c, func(ctx context.Context, tx TTx) (store.Completion, error) {
			if err := f.effect(ctx, tx, effectOf(in)); err != nil {
				return store.Completion{}, err
			}
			enter()
			<-release
			return completion(c), fail
		})
		done <- err
	}()
	select {
	case <-inside:
	case err := <-done:
		f.Fatalf("executing %q ended before its work: %v", in.Key, err)
	case <-f.ctx.Done():
		f.Fatalf("executing %q: work was not called: %v", in.Key, f.ctx.Err())
	}
	return held{done: done, free: free}
}

// release lets the held execution end and returns its error.
func (h held) release() error {
	h.free()
	return <-h.done
}

// wantSame fails if two readings of one record differ in anything.
func (f *fixture[TTx]) wantSame(what string, want, got store.Entry) {
	f.Helper()
	f.wantResult(what, want.Result, got.Result)
	for _, field := range []struct {
		name      string
		want, got any
	}{
		{"ID", want.ID, got.ID},
		{"Intent", want.Intent, got.Intent},
		{"State", want.State, got.State},
		{"Token", want.Token, got.Token},
		{"Input", string(want.Input), string(got.Input)},
		{"Epoch", want.Epoch, got.Epoch},
		{"LeaseUntil", want.LeaseUntil.UnixMicro(), got.LeaseUntil.UnixMicro()},
		{"Drives", want.Drives, got.Drives},
		{"ClaimedAt", want.ClaimedAt.UnixMicro(), got.ClaimedAt.UnixMicro()},
		{"CompletedAt", want.CompletedAt.UnixMicro(), got.CompletedAt.UnixMicro()},
		{"ExpiresAt", want.ExpiresAt.UnixMicro(), got.ExpiresAt.UnixMicro()},
		{"TombstoneUntil", want.TombstoneUntil.UnixMicro(), got.TombstoneUntil.UnixMicro()},
	} {
		if field.want != field.got {
			f.Errorf("%s: %s is %v, want %v", what, field.name, field.got, field.want)
		}
	}
}

// wantResult fails if got is not want, byte for byte.
func (f *fixture[TTx]) wantResult(what string, want, got reprise.Result) {
	f.Helper()
	if want.Status != got.Status {
		f.Errorf("%s: status %d, want %d", what, got.Status, want.Status)
	}
	if !maps.EqualFunc(want.Header, got.Header, slices.Equal) {
		f.Errorf("%s: header %q, want %q", what, got.Header, want.Header)
	}
	if !bytes.Equal(want.Body, got.Body) {
		f.Errorf("%s: body of %d bytes %.80q, want %d bytes %.80q", what, len(got.Body), got.Body, len(want.Body), want.Body)
	}
	if want.Reference != got.Reference {
		f.Errorf("%s: reference %q, want %q", what, got.Reference, want.Reference)
	}
}
