// SPDX-License-Identifier: Apache-2.0

package pg

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/reprise-go/reprise/store"
)

// hold records that a message of a page is held. Its row stays as it is.
func hold(ctx context.Context, conn Conn, h store.Hold, xids, ids string) error {
	if err := checkHold(h); err != nil {
		return err
	}
	n, err := conn.Exec(ctx, "INSERT INTO reprise_outbox_hold (id, xid, subject, state, attempts, next_at, reason) "+
		"SELECT o.id, o.xid, o.subject, $5::text, $6::bigint, clock_timestamp() + $7::bigint * interval '1 microsecond', $8::text "+
		"FROM unnest($1::text::xid8[], $2::text::bigint[]) AS k (xid, id) JOIN reprise_outbox AS o ON o.xid = k.xid AND o.id = k.id "+
		"WHERE o.source = $3::text AND o.message_id = $4::text",
		xids, ids, h.Message.Source, h.Message.ID, string(h.State), int64(h.Attempts), h.Delay.Microseconds(), reason(h))
	if err == nil && n == 0 {
		err = fmt.Errorf("postgres: message %q of source %q is not in the page", h.Message.ID, h.Message.Source)
	}
	return err
}

func checkHold(h store.Hold) error {
	if h.State == store.HoldRetry || h.State == store.HoldBlocked || h.State == store.HoldParked {
		return nil
	}
	return fmt.Errorf("postgres: message %q can't be held as %q", h.Message.ID, h.State)
}

// Due implements store.Relay.
func (r *relay) Due(ctx context.Context, _ store.Slot, limit int) (holds []store.Hold, err error) {
	err = r.core.read(ctx, func(conn Conn) error {
		holds = nil
		return conn.Query(ctx, "SELECT h.state, h.attempts, h.next_at, h.reason, "+messageColumns+" FROM reprise_outbox_hold AS h "+
			"JOIN reprise_outbox AS o ON o.xid = h.xid AND o.id = h.id "+
			"WHERE h.state = 'retry' AND h.next_at <= statement_timestamp() OR h.state = 'blocked' AND (h.subject = '' OR NOT EXISTS "+
			"(SELECT FROM reprise_outbox_hold AS e WHERE e.subject = h.subject AND e.id < h.id)) ORDER BY h.id LIMIT $1::bigint",
			func(scan Scan) error {
				var s stored
				var h store.Hold
				var state string
				var attempts int64
				if err := scan(append([]any{&state, &attempts, &h.NextAt, &h.Reason}, s.dest()...)...); err != nil {
					return err
				}
				h.State, h.Attempts, h.NextAt = store.HoldState(state), int(attempts), h.NextAt.UTC()
				h.Message, h.Unreadable = s.message()
				holds = append(holds, h)
				return nil
			}, int64(limit))
	})
	return holds, err
}

// Subjects implements store.Relay.
func (r *relay) Subjects(ctx context.Context, _ store.Slot) (subjects map[string]bool, err error) {
	err = r.core.read(ctx, func(conn Conn) error {
		subjects = map[string]bool{}
		return conn.Query(ctx, "SELECT DISTINCT subject FROM reprise_outbox_hold WHERE subject <> ''", func(scan Scan) error {
			var s string
			err := scan(&s)
			subjects[s] = true
			return err
		})
	})
	return subjects, err
}

// Update implements store.Relay.
func (r *relay) Update(ctx context.Context, slot store.Slot, holds []store.Hold) error {
	if len(holds) == 0 {
		return nil
	}
	return r.core.write(ctx, func(conn Conn) error {
		if err := fence(ctx, conn, slot); err != nil {
			return err
		}
		for _, h := range holds {
			if err := r.update(ctx, conn, h); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *relay) update(ctx context.Context, conn Conn, h store.Hold) error {
	const these = " WHERE id = (SELECT id FROM reprise_outbox WHERE message_id = $1::text AND source = $2::text)"
	if h.State == store.HoldDelivered {
		n, err := conn.Exec(ctx, "DELETE FROM reprise_outbox_hold"+these, h.Message.ID, h.Message.Source)
		if err != nil || n == 0 || r.core.options.DeliveredRetention > 0 {
			return err
		}
		_, err = conn.Exec(ctx, "DELETE FROM reprise_outbox WHERE message_id = $1::text AND source = $2::text", h.Message.ID, h.Message.Source)
		return err
	}
	if err := checkHold(h); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, "UPDATE reprise_outbox_hold SET state = $3::text, attempts = $4::bigint, "+
		"next_at = clock_timestamp() + $5::bigint * interval '1 microsecond', reason = $6::text"+these,
		h.Message.ID, h.Message.Source, string(h.State), int64(h.Attempts), h.Delay.Microseconds(), reason(h))
	return err
}

func scanBacklog(b *store.Backlog) Row {
	return func(scan Scan) error {
		var waiting, retry, blocked, parked int64
		var oldest *time.Time
		err := scan(&waiting, &retry, &blocked, &parked, &oldest)
		*b = store.Backlog{Waiting: int(waiting), Retry: int(retry), Blocked: int(blocked), Parked: int(parked), Oldest: utc(oldest)}
		return err
	}
}

// reason is text for people, cut or mended so that it can be stored.
func reason(h store.Hold) string {
	return strings.ReplaceAll(strings.ToValidUTF8(h.Reason, "\uFFFD"), "\x00", "\uFFFD")
}
