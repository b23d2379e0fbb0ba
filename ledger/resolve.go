// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

// resolveTimeout bounds the search for an attempt whose COMMIT was not answered.
// A database that restarts is often back within it.
const resolveTimeout = 5 * time.Second

// resolve establishes whether an attempt was committed (rule L7): the record,
// whoever wrote it, or store.ErrNotFound when it is certain that nothing was
// kept. Any other error means that it is still unknown. It has its own deadline,
// because the one of the work may be what broke the COMMIT.
func (l *Ledger[TTx]) resolve(ctx context.Context, in reprise.Intent) (store.Entry, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resolveTimeout)
	defer cancel()
	for n := 0; ; n++ {
		e, err := l.driver.Resolve(ctx, in)
		if err == nil || errors.Is(err, store.ErrNotFound) || !pause(ctx, spaced(n, 10*time.Millisecond, time.Second)) {
			return e, err
		}
	}
}
