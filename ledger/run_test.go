// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/ledger"
)

func TestRun(t *testing.T) {
	t.Parallel()
	in := payment("k", 1)
	type handler = ledger.Handler[*memoryTx]
	insert := func(row string) func(context.Context, *memoryTx) error {
		return func(_ context.Context, tx *memoryTx) error {
			tx.insert(row)
			return nil
		}
	}
	finish := func(status int) func(context.Context, *memoryTx) (reprise.Result, error) {
		return func(_ context.Context, tx *memoryTx) (reprise.Result, error) {
			tx.insert("finished")
			return reprise.Result{Status: status}, nil
		}
	}
	ok := func(context.Context, reprise.Key, []byte) ([]byte, error) { return []byte("ok"), nil }
	// drive runs a handler once, and reports what its client was told and what is
	// on record.
	drive := func(t *testing.T, h handler, test func(db *memory, a ledger.Answer, err error)) {
		synctest.Test(t, func(t *testing.T) {
			db := newMemory()
			_, s := start(t, &process{db: db}, h, nil)
			a, err := s.Do(t.Context(), in, ledger.Options{}, []byte("input"))
			test(db, a, err)
		})
	}
	inProgress := func(t *testing.T, db *memory, err error) {
		t.Helper()
		if !errors.Is(err, reprise.ErrOutcomeUnknown) || reprise.OutcomeOf(err) != reprise.Unknown {
			t.Errorf("the client was told %v, want outcome-unknown", err)
		}
		if e := db.entries[in.ID()]; e == nil || e.State != reprise.StateInProgress || e.LeaseUntil.After(time.Now()) {
			t.Errorf("the record is %+v, want in progress with its lease given up", e)
		}
	}

	t.Run("S7: an unknown call can't be finished as a failure", func(t *testing.T) {
		t.Parallel()
		drive(t, func(ctx context.Context, run *ledger.Run[*memoryTx]) error {
			_, unknown := run.Call(ctx, "charge", nil, func(context.Context, reprise.Key, []byte) ([]byte, error) {
				return nil, errors.New("timeout")
			})
			// A handler that takes "no answer" for "no".
			_, err := run.Finish(ctx, finish(402))
			if !errors.Is(err, unknown) || !errors.Is(unknown, reprise.ErrOutcomeUnknown) {
				t.Errorf("Finish returned %v, want the call's %v", err, unknown)
			}
			if err := run.Tx(ctx, "failed", insert("failed")); !errors.Is(err, unknown) {
				t.Errorf("Tx returned %v, want the call's %v", err, unknown)
			}
			if _, err := run.Call(ctx, "again", nil, ok); !errors.Is(err, unknown) {
				t.Errorf("Call returned %v, want the call's %v", err, unknown)
			}
			return nil
		}, func(db *memory, _ ledger.Answer, err error) {
			inProgress(t, db, err)
			if len(db.rows) != 0 {
				t.Errorf("the rows are %v", db.rows)
			}
		})
	})

	t.Run("steps don't begin inside another one's transaction", func(t *testing.T) {
		t.Parallel()
		drive(t, func(ctx context.Context, run *ledger.Run[*memoryTx]) error {
			return run.Tx(ctx, "outer", func(ctx context.Context, tx *memoryTx) error {
				tx.insert("outer")
				_, err := run.Call(ctx, "inner", nil, ok)
				return err
			})
		}, func(db *memory, _ ledger.Answer, err error) {
			inProgress(t, db, err)
			if len(db.rows) != 0 || !strings.Contains(err.Error(), `"inner" begins inside`) {
				t.Errorf("got %v and the rows %v", err, db.rows)
			}
		})
	})

	t.Run("a goroutine that the handler left behind ends its step before the drive, and begins no other", func(t *testing.T) {
		t.Parallel()
		inside, returned, late := make(chan struct{}), make(chan struct{}), make(chan error, 2)
		drive(t, func(ctx context.Context, run *ledger.Run[*memoryTx]) error {
			go func() {
				late <- run.Tx(ctx, "left", func(_ context.Context, tx *memoryTx) error {
					close(inside)
					tx.insert("left")
					return nil
				})
				<-returned
				late <- run.Tx(ctx, "late", insert("late"))
			}()
			<-inside
			return errors.New("stopped")
		}, func(db *memory, _ ledger.Answer, err error) {
			inProgress(t, db, err)
			if err := <-late; err != nil || !slices.Equal(db.rows, []string{"left"}) {
				t.Errorf("the step under way: got %v and the rows %v", err, db.rows)
			}
			close(returned)
			if err := <-late; err == nil || !strings.Contains(err.Error(), "has returned") {
				t.Errorf("the step after the end: got %v", err)
			}
			if !slices.Equal(db.rows, []string{"left"}) {
				t.Errorf("the rows are %v", db.rows)
			}
		})
	})

	t.Run("one name is one step: it is done once, and can't be a phase and a call", func(t *testing.T) {
		t.Parallel()
		drive(t, func(ctx context.Context, run *ledger.Run[*memoryTx]) error {
			for range 3 {
				if err := run.Tx(ctx, "a", insert("a")); err != nil {
					return err
				}
			}
			_, err := run.Call(ctx, "a", nil, ok)
			return err
		}, func(db *memory, _ ledger.Answer, err error) {
			inProgress(t, db, err)
			if !slices.Equal(db.rows, []string{"a"}) || !strings.Contains(err.Error(), "a phase and for a call") {
				t.Errorf("got %v and the rows %v", err, db.rows)
			}
		})
	})

	t.Run("S5: completed is final", func(t *testing.T) {
		t.Parallel()
		drive(t, func(ctx context.Context, run *ledger.Run[*memoryTx]) error {
			if r, err := run.Finish(ctx, finish(201)); err != nil || r.Status != 201 {
				t.Errorf("Finish returned %+v, %v", r, err)
			}
			if _, err := run.Finish(ctx, finish(500)); err == nil || !strings.Contains(err.Error(), "was finished") {
				t.Errorf("a second Finish got %v", err)
			}
			if err := run.Tx(ctx, "late", insert("late")); err == nil || !strings.Contains(err.Error(), "was finished") {
				t.Errorf("a phase after Finish got %v", err)
			}
			return errors.New("and the handler fails after all")
		}, func(db *memory, a ledger.Answer, err error) {
			if err != nil || a.Result.Status != 201 || !slices.Equal(db.rows, []string{"finished"}) || a.ExpiresAt.IsZero() {
				t.Errorf("got %+v, %v and the rows %v", a, err, db.rows)
			}
		})
	})

	t.Run("L14: a run doesn't end with an answer that is not stored", func(t *testing.T) {
		t.Parallel()
		for _, status := range []int{0, 199, 401, 403, 408, 412, 425, 428, 429, 500, 503, 600} {
			drive(t, func(ctx context.Context, run *ledger.Run[*memoryTx]) error {
				_, err := run.Finish(ctx, finish(status))
				return err
			}, func(db *memory, _ ledger.Answer, err error) {
				inProgress(t, db, err)
				if len(db.rows) != 0 {
					t.Errorf("%d: the rows are %v", status, db.rows)
				}
			})
		}
	})

	t.Run("a handler that returns without an end leaves its run in progress", func(t *testing.T) {
		t.Parallel()
		drive(t, func(ctx context.Context, run *ledger.Run[*memoryTx]) error {
			return run.Tx(ctx, "a", insert("a"))
		}, func(db *memory, _ ledger.Answer, err error) {
			inProgress(t, db, err)
		})
	})

	t.Run("a result whose record can't be read back is answered all the same", func(t *testing.T) {
		t.Parallel()
		for limit, expires := range map[int]time.Duration{100: time.Hour, 3: 0} {
			synctest.Test(t, func(t *testing.T) {
				p := &process{db: newMemory()}
				_, s := start(t, p, func(ctx context.Context, run *ledger.Run[*memoryTx]) error {
					_, err := run.Finish(ctx, func(context.Context, *memoryTx) (reprise.Result, error) {
						p.blind = true
						return reprise.Result{Status: 201, Body: []byte("body")}, nil
					})
					return err
				}, &ledger.Config{Retention: time.Hour, MaxBody: limit})
				a, err := s.Do(t.Context(), in, ledger.Options{}, nil)
				want := time.Time{}
				if expires > 0 {
					want = time.Now().Add(expires)
				}
				if err != nil || string(a.Result.Body) != "body" || !a.ExpiresAt.Equal(want) {
					t.Errorf("got %+v, %v; want it until %v", a, err, want)
				}
			})
		}
	})

	t.Run("a recorded decision that can't be read is not taken for anything", func(t *testing.T) {
		t.Parallel()
		psp := newProvider()
		psp.decline = true
		synctest.Test(t, func(t *testing.T) {
			db := newMemory()
			p := &process{db: db, at: 5, fault: cutBefore} // Between the evidence and the end.
			_, s := start(t, p, pay(psp, nil), nil)
			_, err := s.Do(t.Context(), in, ledger.Options{}, nil)
			if !p.hit || !errors.Is(err, reprise.ErrOutcomeUnknown) {
				t.Fatalf("got %v", err)
			}
			db.steps[in.ID()][1].Response = []byte("{")
			time.Sleep(lease)
			_, s = start(t, &process{db: db}, pay(psp, nil), nil)
			_, err = s.Do(t.Context(), in, ledger.Options{}, nil)
			inProgress(t, db, err)
			if psp.sends != 1 || !slices.Equal(db.rows, []string{"reserved"}) {
				t.Errorf("%d sends and the rows %v", psp.sends, db.rows)
			}
		})
	})

	t.Run("a goroutine that a handler left behind writes nothing", func(t *testing.T) {
		t.Parallel()
		var left *ledger.Run[*memoryTx]
		drive(t, func(_ context.Context, run *ledger.Run[*memoryTx]) error {
			left = run
			return errors.New("stopped")
		}, func(db *memory, _ ledger.Answer, _ error) {
			if err := left.Tx(context.Background(), "late", insert("late")); err == nil || len(db.rows) != 0 {
				t.Errorf("got %v and the rows %v", err, db.rows)
			}
		})
	})

	t.Run("an error of a phase is returned as it is, and the drive can go on", func(t *testing.T) {
		t.Parallel()
		sold := errors.New("sold out")
		drive(t, func(ctx context.Context, run *ledger.Run[*memoryTx]) error {
			err := run.Tx(ctx, "reserve", func(_ context.Context, tx *memoryTx) error {
				tx.insert("reserved")
				return sold
			})
			if err != sold { // As it is.
				t.Errorf("got %v", err)
			}
			_, err = run.Finish(ctx, finish(409))
			return err
		}, func(db *memory, a ledger.Answer, err error) {
			if err != nil || a.Result.Status != 409 || !slices.Equal(db.rows, []string{"finished"}) {
				t.Errorf("got %+v, %v and the rows %v", a, err, db.rows)
			}
		})
	})

	t.Run("a refusal before the first step withdraws the claim", func(t *testing.T) {
		t.Parallel()
		for name, refuse := range map[string]handler{
			"by the handler": func(context.Context, *ledger.Run[*memoryTx]) error {
				return ledger.Refuse(reprise.Result{Status: 404, Body: []byte("no such order")})
			},
			"in a phase": func(ctx context.Context, run *ledger.Run[*memoryTx]) error {
				return run.Tx(ctx, "reserve", func(_ context.Context, tx *memoryTx) error {
					tx.insert("reserved")
					return ledger.Refuse(reprise.Result{Status: 404, Body: []byte("no such order")})
				})
			},
			"in the end": func(ctx context.Context, run *ledger.Run[*memoryTx]) error {
				_, err := run.Finish(ctx, func(_ context.Context, tx *memoryTx) (reprise.Result, error) {
					tx.insert("finished")
					return reprise.Result{Status: 201}, ledger.Refuse(reprise.Result{Status: 404, Body: []byte("no such order")})
				})
				return err
			},
		} {
			drive(t, refuse, func(db *memory, a ledger.Answer, err error) {
				if err != nil || a.Result.Status != 404 || string(a.Result.Body) != "no such order" || a.Replayed || !a.ExpiresAt.IsZero() {
					t.Errorf("%s: got %+v, %v", name, a, err)
				}
				if len(db.entries) != 0 || len(db.rows) != 0 {
					t.Errorf("%s: %v and the rows %v are left", name, db.entries, db.rows)
				}
			})
		}
	})

	t.Run("the key of a refused run is free, also for another content", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			db, exists := newMemory(), false
			_, s := start(t, &process{db: db}, func(ctx context.Context, run *ledger.Run[*memoryTx]) error {
				if !exists {
					return ledger.Refuse(reprise.Result{Status: 404})
				}
				_, err := run.Finish(ctx, finish(201))
				return err
			}, nil)
			for fingerprint, want := range []int{404, 404, 201} {
				exists = want == 201
				a, err := s.Do(t.Context(), payment("k", byte(fingerprint)), ledger.Options{}, nil)
				if err != nil || a.Result.Status != want {
					t.Errorf("got %+v, %v; want %d", a, err, want)
				}
			}
		})
	})

	t.Run("a refusal after a step is not believed", func(t *testing.T) {
		t.Parallel()
		drive(t, func(ctx context.Context, run *ledger.Run[*memoryTx]) error {
			if _, err := run.Call(ctx, "charge", nil, ok); err != nil {
				return err
			}
			return ledger.Refuse(reprise.Result{Status: 404})
		}, func(db *memory, _ ledger.Answer, err error) {
			inProgress(t, db, err)
			if !strings.Contains(err.Error(), "can't be withdrawn") {
				t.Errorf("got %v", err)
			}
		})
	})

	t.Run("a refusal whose withdrawal is not established is unknown", func(t *testing.T) {
		t.Parallel()
		for f, gone := range map[fault]bool{lostKept: true, lostDropped: false, cutAfter: false, cutBefore: false} {
			synctest.Test(t, func(t *testing.T) {
				p := &process{db: newMemory(), at: 2, fault: f}
				_, s := start(t, p, func(context.Context, *ledger.Run[*memoryTx]) error {
					return ledger.Refuse(reprise.Result{Status: 404})
				}, nil)
				a, err := s.Do(t.Context(), in, ledger.Options{}, nil)
				switch {
				case !p.hit:
					t.Errorf("fault %d did not happen", f)
				case gone && (err != nil || a.Result.Status != 404):
					t.Errorf("fault %d: got %+v, %v; want the refusal, which was found to be kept", f, a, err)
				case !gone && !errors.Is(err, reprise.ErrOutcomeUnknown):
					t.Errorf("fault %d: got %+v, %v; want outcome-unknown", f, a, err)
				}
			})
		}
	})

	t.Run("the handler is given copies", func(t *testing.T) {
		t.Parallel()
		request := []byte("request")
		drive(t, func(ctx context.Context, run *ledger.Run[*memoryTx]) error {
			if run.Intent() != in || run.Drive() != 1 {
				t.Errorf("Intent() = %+v, Drive() = %d", run.Intent(), run.Drive())
			}
			run.Input()[0] = 'X'
			for range 2 {
				response, err := run.Call(ctx, "charge", request, func(_ context.Context, _ reprise.Key, request []byte) ([]byte, error) {
					request[0] = 'X'
					return []byte("response"), nil
				})
				if err != nil || string(response) != "response" {
					t.Errorf("got %q, %v", response, err)
				}
				response[0] = 'X'
			}
			_, err := run.Finish(ctx, func(context.Context, *memoryTx) (reprise.Result, error) {
				return reprise.Result{Status: 201, Body: run.Input()}, nil
			})
			return err
		}, func(db *memory, a ledger.Answer, err error) {
			if err != nil || string(a.Result.Body) != "input" || string(request) != "request" {
				t.Errorf("got %q, %v", a.Result.Body, err)
			}
			if s := db.steps[in.ID()][0]; string(s.Request) != "request" || string(s.Response) != "response" {
				t.Errorf("the step is %+v", s)
			}
		})
	})

	t.Run("an input of another version of the library is left to that version", func(t *testing.T) {
		t.Parallel()
		drive(t, func(context.Context, *ledger.Run[*memoryTx]) error {
			return errors.New("stopped")
		}, func(db *memory, _ ledger.Answer, _ error) {
			db.entries[in.ID()].Input[0] = 99
			_, s := start(t, &process{db: db}, func(context.Context, *ledger.Run[*memoryTx]) error {
				t.Error("the handler was called")
				return nil
			}, nil)
			_, err := s.Do(t.Context(), in, ledger.Options{}, nil)
			inProgress(t, db, err)
		})
	})
}
