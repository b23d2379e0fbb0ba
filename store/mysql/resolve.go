// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/internal/backoff"
	"github.com/reprise-go/reprise/store"
)

// resolvePatience is how long Resolve waits for a transaction that holds the
// intent, with pauses in which it holds no connection.
const (
	resolvePatience = time.Second
	resolvePause    = 5 * time.Millisecond
)

// Resolve implements store.Ledger. A transaction that may still commit holds the
// lock on the row of its claim, and one that was answered nothing holds it until
// the server has committed or rolled it back; so who gets the lock knows. In a
// cluster a node can't see the locks of the others: there the answer that nothing
// was kept is made true by a write that every transaction which is not certified
// yet collides with.
func (d *Driver) Resolve(ctx context.Context, i reprise.Intent) (e store.Entry, err error) {
	for deadline := time.Now().Add(resolvePatience); ; {
		found := false
		err = d.session(ctx, func(s *session) (err error) {
			found, e, err = s.resolve(ctx, i)
			return err
		})
		switch {
		case err == nil && found:
			return e, nil
		case err == nil:
			return store.Entry{}, store.ErrNotFound
		case !errors.Is(err, store.ErrBusy) || time.Now().After(deadline):
			return store.Entry{}, err
		}
		if err := backoff.Sleep(ctx, resolvePause); err != nil {
			return store.Entry{}, err
		}
	}
}

func (s *session) resolve(ctx context.Context, i reprise.Intent) (found bool, e store.Entry, err error) {
	id := i.ID()
	s.open = true
	_, err = s.run(ctx, s.d.server.begin(render("SELECT COUNT(*) FROM reprise_ledger AS l LEFT JOIN reprise_run AS r ON r.id = l.id WHERE l.id = ? FOR UPDATE NOWAIT", id[:]))...)
	if n := number(err); n == errLockWait || n == errNoWait {
		return false, e, fmt.Errorf("%w: %w", store.ErrBusy, err)
	}
	if err != nil {
		return false, e, classify(err)
	}
	found, gone, e, err := s.find(ctx, i)
	s.rollback()
	if err != nil || found || !s.d.server.galera {
		return found && !gone, e, err
	}
	token := store.NewToken()
	_, err = s.write(render(claimSQL, id[:], string(i.Caller), string(i.Operation), string(i.Key), i.Fingerprint[:], token[:]),
		render("DELETE FROM reprise_ledger WHERE id = ? AND token = ?", id[:], token[:]))
	if number(err) == errDuplicate {
		err = fmt.Errorf("%w: %w", store.ErrBusy, err)
	}
	return false, e, err
}
