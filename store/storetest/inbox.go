// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/reprise-go/reprise/store"
)

func inboxRules[TTx any]() []rule[TTx] {
	return []rule[TTx]{
		{
			"I1_receipt_commits_with_its_effect",
			"A message is fresh once: after its receipt was committed with its effect, and within the same transaction too.",
			receiptCommits[TTx],
		},
		{
			"I1_concurrent_deliveries_have_one_effect",
			"Of concurrent deliveries of one message, in two processes, one has its effect.",
			concurrentDeliveries[TTx],
		},
		{
			"I2_consumer_source_and_id_are_the_identity",
			"Consumer, source and id together name a delivery, compared byte by byte and kept apart.",
			receiptIdentity[TTx],
		},
		{
			"I3_stored_digest_is_that_of_the_first_payload",
			"Another payload under the same id gets the digest of the first one, which it never replaces.",
			firstDigestStays[TTx],
		},
		{
			"I5_rolled_back_effect_leaves_no_receipt",
			"A delivery whose transaction was rolled back is fresh again.",
			rolledBackReceipt[TTx],
		},
		{
			"I2_purge_deletes_old_receipts_only",
			"PurgeInbox deletes receipts older than the given age, at most limit at a time, says how many, and leaves all others.",
			purgeReceipts[TTx],
		},
	}
}

func receipt(id string) store.Receipt {
	return store.Receipt{Consumer: "fulfilment", Source: "/shop", MessageID: id, Digest: [32]byte{1, 0, 255}}
}

// accept commits a receipt and nothing else.
func (f *fixture[TTx]) accept(d store.Driver[TTx], r store.Receipt) (fresh bool, stored [32]byte) {
	f.Helper()
	err := again(f.ctx, func() error {
		return d.Transact(f.ctx, func(ctx context.Context, tx TTx) (err error) {
			fresh, stored, err = d.Accept(ctx, tx, r)
			return err
		})
	})
	if err != nil {
		f.Fatalf("accept %q: %v", r.MessageID, err)
	}
	return fresh, stored
}

// wantFresh looks whether a message would be fresh, and leaves nothing behind.
func (f *fixture[TTx]) wantFresh(d store.Driver[TTx], r store.Receipt, want bool) {
	f.Helper()
	err := d.Transact(f.ctx, func(ctx context.Context, tx TTx) error {
		fresh, _, err := d.Accept(ctx, tx, r)
		if err == nil && fresh != want {
			f.Errorf("message %q is fresh: %t, want %t", r.MessageID, fresh, want)
		}
		return errors.Join(errHandler, err)
	})
	if !errors.Is(err, errHandler) {
		f.Fatalf("looking for the receipt of %q: %v", r.MessageID, err)
	}
}

func receiptCommits[TTx any](f *fixture[TTx]) {
	r := receipt("m-1")
	err := f.d.Transact(f.ctx, func(ctx context.Context, tx TTx) error {
		for n := range 3 {
			fresh, stored, err := f.d.Accept(ctx, tx, r)
			if err != nil {
				return err
			}
			if fresh != (n == 0) || stored != r.Digest {
				f.Errorf("accepted %d times in one transaction: fresh %t, digest %x", n+1, fresh, stored)
			}
		}
		return f.effect(ctx, tx, "m-1")
	})
	if err != nil {
		f.Fatalf("transact: %v", err)
	}
	f.wantEffects("m-1", 1)
	for _, d := range f.both() {
		if fresh, stored := f.accept(d, r); fresh || stored != r.Digest {
			f.Errorf("delivered again: fresh %t, digest %x; want false, %x", fresh, stored, r.Digest)
		}
	}
}

func concurrentDeliveries[TTx any](f *fixture[TTx]) {
	const rounds, deliveries = 4, 12
	drivers := f.both()
	for round := range rounds {
		r := receipt(fmt.Sprintf("m-%d", round))
		var wg sync.WaitGroup
		start := make(chan struct{})
		for n := range deliveries {
			d := drivers[n%2]
			wg.Go(func() {
				<-start
				err := again(f.ctx, func() error {
					return d.Transact(f.ctx, func(ctx context.Context, tx TTx) error {
						fresh, _, err := d.Accept(ctx, tx, r)
						if err != nil || !fresh {
							return err
						}
						return f.effect(ctx, tx, r.MessageID)
					})
				})
				if err != nil {
					f.Errorf("delivery %d: %v", n, err)
				}
			})
		}
		close(start)
		wg.Wait()
		f.wantEffects(r.MessageID, 1)
	}
}

func receiptIdentity[TTx any](f *fixture[TTx]) {
	var all []store.Receipt
	for _, consumer := range []string{"c", "C", "c ", "c:s", "strasse", "straße"} {
		for _, source := range []string{"s", "S", "s:m", "/s", "s/"} {
			for _, id := range []string{"m", "M", "m ", "s:m", "caf\u00e9", "cafe\u0301"} {
				all = append(all, store.Receipt{Consumer: consumer, Source: source, MessageID: id, Digest: [32]byte{byte(len(all))}})
			}
		}
	}
	err := f.d.Transact(f.ctx, func(ctx context.Context, tx TTx) error {
		for _, r := range all {
			if fresh, _, err := f.d.Accept(ctx, tx, r); err != nil {
				return err
			} else if !fresh {
				f.Errorf("(%q, %q, %q) was taken for another delivery", r.Consumer, r.Source, r.MessageID)
			}
		}
		return nil
	})
	if err != nil {
		f.Fatalf("transact: %v", err)
	}
	err = f.d.Transact(f.ctx, func(ctx context.Context, tx TTx) error {
		for _, r := range all {
			if fresh, stored, err := f.d.Accept(ctx, tx, r); err != nil {
				return err
			} else if fresh || stored != r.Digest {
				f.Errorf("(%q, %q, %q) is fresh %t with digest %x, want its own", r.Consumer, r.Source, r.MessageID, fresh, stored)
			}
		}
		return nil
	})
	if err != nil {
		f.Fatalf("transact: %v", err)
	}
}

func firstDigestStays[TTx any](f *fixture[TTx]) {
	first := receipt("m-1")
	f.accept(f.d, first)
	second := first
	second.Digest = [32]byte{2}
	for _, d := range f.both() {
		if fresh, stored := f.accept(d, second); fresh || stored != first.Digest {
			f.Errorf("another payload: fresh %t, digest %x; want false, %x", fresh, stored, first.Digest)
		}
		if fresh, stored := f.accept(d, first); fresh || stored != first.Digest {
			f.Errorf("the first payload again: fresh %t, digest %x; want false, %x", fresh, stored, first.Digest)
		}
	}
}

func rolledBackReceipt[TTx any](f *fixture[TTx]) {
	r := receipt("m-1")
	for n := range 4 {
		_, err := call(func() error {
			return f.d.Transact(f.ctx, func(ctx context.Context, tx TTx) error {
				if fresh, _, err := f.d.Accept(ctx, tx, r); err != nil || !fresh {
					f.Errorf("delivery %d: fresh %t, error %v", n, fresh, err)
				}
				if err := f.effect(ctx, tx, r.MessageID); err != nil {
					return err
				}
				if n%2 == 0 {
					panic(errHandler)
				}
				return errHandler
			})
		})
		if n%2 == 1 && !errors.Is(err, errHandler) {
			f.Fatalf("delivery %d: %v", n, err)
		}
	}
	f.wantEffects(r.MessageID, 0)
	second, _ := f.open()
	if fresh, _ := f.accept(second, r); !fresh {
		f.Errorf("after four rolled back deliveries the message is not fresh: its effect would be lost")
	}
}

func purgeReceipts[TTx any](f *fixture[TTx]) {
	const old, age = 11, 48 * time.Hour
	for n := range old {
		f.accept(f.d, receipt(fmt.Sprintf("old-%d", n)))
	}
	f.age(age - time.Hour)
	f.accept(f.d, receipt("young"))
	purged := func(want int) {
		f.Helper()
		if n, err := f.d.PurgeInbox(f.ctx, age, 4); err != nil || n != want {
			f.Errorf("the purge deleted %d receipts, error %v; want %d", n, err, want)
		}
	}
	purged(0)
	f.wantFresh(f.d, receipt("old-0"), false)
	f.age(2 * time.Hour)
	for _, want := range []int{4, 4, 3, 0} {
		purged(want)
	}
	for n := range old {
		f.wantFresh(f.d, receipt(fmt.Sprintf("old-%d", n)), true)
	}
	f.wantFresh(f.d, receipt("young"), false)
}
