// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/reprise-go/reprise"
)

// Stats counts what a ledger did since it was made. Every call of Do is counted
// under exactly one of the first nine.
type Stats struct {
	// Executed: this attempt did the work and its result is stored.
	Executed uint64 `json:"executed"`
	// Replayed: the result of an earlier or another attempt was answered.
	Replayed uint64 `json:"replayed"`
	// Refused: the work or the request was answered without anything being
	// stored, by a result or by an error with a code of its own, or its caller left
	// before it began.
	Refused uint64 `json:"refused"`
	// Reused, InProgress, Expired, Unknown and Unavailable count the errors of
	// these codes.
	Reused      uint64 `json:"reused"`
	InProgress  uint64 `json:"in_progress"`
	Expired     uint64 `json:"expired"`
	Unknown     uint64 `json:"unknown"`
	Unavailable uint64 `json:"unavailable"`
	// Failed counts CodeInternal and panics.
	Failed uint64 `json:"failed"`

	// Cached counts those of Replayed and Reused that were answered from memory
	// (Config.CacheFor).
	Cached uint64 `json:"cached"`
	// Reruns counts transactions that were run again after a lost conflict.
	Reruns uint64 `json:"reruns"`
	// Recovered counts runs that recovery completed, LeasesLost drives of runs
	// that were fenced off, and Purged changed records.
	Recovered  uint64 `json:"recovered"`
	LeasesLost uint64 `json:"leases_lost"`
	Purged     uint64 `json:"purged"`
}

type counts struct {
	executed, replayed, refused, reused, inProgress, expired, unknown, unavailable, failed atomic.Uint64
	cached, reruns, recovered, leasesLost, purged                                          atomic.Uint64
}

// Stats returns the counts of this process. It is safe for concurrent use; the
// counts are not read at one moment.
func (l *Ledger[TTx]) Stats() Stats {
	c := &l.counts
	return Stats{
		Executed: c.executed.Load(), Replayed: c.replayed.Load(), Refused: c.refused.Load(),
		Reused: c.reused.Load(), InProgress: c.inProgress.Load(), Expired: c.expired.Load(),
		Unknown: c.unknown.Load(), Unavailable: c.unavailable.Load(), Failed: c.failed.Load(),
		Cached: c.cached.Load(), Reruns: c.reruns.Load(), Recovered: c.recovered.Load(), LeasesLost: c.leasesLost.Load(), Purged: c.purged.Load(),
	}
}

// observe counts and logs the end of one call. The intent is logged by its id:
// a key opens the stored answer to its caller, so it has no place in a log.
func (l *Ledger[TTx]) observe(ctx context.Context, in reprise.Intent, a Answer, refused bool, err error) {
	c, level, event := &l.counts.failed, slog.LevelError, "failed"
	switch {
	case err == nil && a.Result.Status == 0:
		event = "panicked"
	case err == nil && a.Replayed:
		c, level, event = &l.counts.replayed, slog.LevelDebug, "replayed"
	case err == nil && refused:
		c, level, event = &l.counts.refused, slog.LevelDebug, "refused"
	case err == nil:
		c, level, event = &l.counts.executed, slog.LevelDebug, "executed"
	default:
		switch reprise.CodeOf(err) {
		case reprise.CodeKeyReused:
			c, level, event = &l.counts.reused, slog.LevelInfo, "key reused"
		case reprise.CodeInProgress:
			c, level, event = &l.counts.inProgress, slog.LevelInfo, "in progress"
		case reprise.CodeKeyExpired:
			c, level, event = &l.counts.expired, slog.LevelInfo, "key expired"
		case reprise.CodeOutcomeUnknown:
			c, level, event = &l.counts.unknown, slog.LevelWarn, "outcome unknown"
		case reprise.CodeStoreUnavailable:
			c, level, event = &l.counts.unavailable, slog.LevelWarn, "store unavailable"
		case reprise.CodeInternal:
			if errors.Is(err, errGone) {
				c, level, event = &l.counts.refused, slog.LevelDebug, "caller gone"
			}
		default:
			// A code of the application or of the request: an answer, not a fault.
			c, level, event = &l.counts.refused, slog.LevelDebug, "refused"
		}
	}
	c.Add(1)
	if !l.config.Logger.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{slog.String("operation", string(in.Operation)), slog.String("intent", in.ID().String())}
	if err != nil {
		attrs = append(attrs, slog.Any("error", err))
	} else {
		attrs = append(attrs, slog.Int("status", a.Result.Status))
	}
	l.config.Logger.LogAttrs(ctx, level, "ledger: "+event, attrs...)
}
