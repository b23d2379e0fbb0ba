// SPDX-License-Identifier: Apache-2.0

package pg

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/reprise-go/reprise/internal/failpoint"
	"github.com/reprise-go/reprise/store"
)

const (
	// planRows is how many messages are put in order at once. Their bodies are read
	// page by page.
	planRows = 100_000
	// deleteChunk is how many delivered messages past their retention one Advance
	// deletes at most.
	deleteChunk = 500
)

// key finds one row of the outbox.
type key struct {
	XID string `json:"x"`
	ID  int64  `json:"i"`
}

// position is how far a slot has come: all that is visible in Seen, and what is
// visible in Upto as far as its id is not greater than After, has been dealt with.
// Only snapshots that the server has really taken stand here; any others could
// part two transactions in an order in which they did not commit.
type position struct {
	N     int64  `json:"n"`
	Seen  string `json:"s"`
	Upto  string `json:"u"`
	After int64  `json:"a"`
}

// plan is what a relay knows to be ahead of it: the keys of a run of messages in
// the order of their ids. It is only a memory of the tables, for one epoch.
type plan struct {
	epoch int64
	position
	known bool
	keys  []key
	more  bool // there may be more up to Upto than the keys
}

// page is a Page's Position.
type page struct {
	Position position `json:"p"` // after the page; N is that of the page's own row
	Keys     []key    `json:"k"`
}

// newRows are the messages between two snapshots, without those that are held,
// which a position that was restored with a dump would find again. $1 is the
// earlier one: what it did not see is of later transactions, or of those that
// were in progress then.
const newRows = `(SELECT id, xid FROM reprise_outbox WHERE xid >= pg_snapshot_xmax($1::pg_snapshot)
UNION ALL
SELECT id, xid FROM reprise_outbox WHERE xid = ANY (ARRAY(SELECT pg_snapshot_xip($1::pg_snapshot)))) AS o
WHERE NOT EXISTS (SELECT FROM reprise_outbox_hold AS h WHERE h.id = o.id)`

// Fetch implements store.Relay.
//
// It reads the difference of two snapshots. No cursor over ids can do that,
// because a transaction may commit an id below one that has been read; and no
// transaction is waited for, because a snapshot says of each whether it is seen.
// Within the difference messages go by id: those of one subject took theirs under
// a lock that is held until COMMIT.
func (r *relay) Fetch(ctx context.Context, slot store.Slot, limit int) (p store.Page, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for range 2 {
		err = r.core.read(ctx, func(conn Conn) (err error) {
			p, err = r.fetch(ctx, conn, slot, limit)
			return err
		})
		if err != nil || len(p.Messages) > 0 || p.Position == "" {
			break
		}
		// Rows that were planned are gone: the plan was another owner's past.
		r.plan = plan{}
	}
	if err != nil {
		r.plan = plan{}
		return store.Page{}, err
	}
	if len(p.Messages) == 0 {
		p.Position = ""
	}
	return p, nil
}

func (r *relay) fetch(ctx context.Context, conn Conn, slot store.Slot, limit int) (store.Page, error) {
	if !r.plan.known || r.plan.epoch != slot.Epoch {
		if err := r.load(ctx, conn, slot); err != nil {
			return store.Page{}, err
		}
	}
	if len(r.plan.keys) == 0 {
		if err := r.look(ctx, conn); err != nil {
			return store.Page{}, err
		}
	}
	n := min(limit, len(r.plan.keys))
	if n == 0 {
		return store.Page{}, nil
	}
	keys := r.plan.keys[:n]
	next := page{Position: r.plan.position, Keys: keys}
	next.Position.N++
	next.Position.After = keys[n-1].ID
	if n == len(r.plan.keys) && !r.plan.more {
		next.Position.Seen, next.Position.Upto, next.Position.After = r.plan.Upto, "", 0
	}
	encoded, err := json.Marshal(next)
	if err != nil {
		return store.Page{}, err
	}
	p := store.Page{Position: string(encoded)}
	return p, r.bodies(ctx, conn, keys, &p)
}

// load reads the position.
func (r *relay) load(ctx context.Context, conn Conn, slot store.Slot) error {
	p := plan{epoch: slot.Epoch}
	restored := false
	err := conn.Query(ctx, "SELECT n, seen::text, coalesce(upto::text, ''), after, "+
		"pg_snapshot_xmax(coalesce(upto, seen)) > pg_snapshot_xmax(pg_current_snapshot()) "+
		"FROM reprise_outbox_position WHERE slot = $1::bigint ORDER BY n DESC LIMIT 1", func(scan Scan) error {
		p.known = true
		return scan(&p.N, &p.Seen, &p.Upto, &p.After, &restored)
	}, int64(slot.Number))
	if err == nil && !p.known {
		err = errors.New("postgres: reprise_outbox_position is empty; the schema is damaged")
	}
	if restored {
		// The tables were moved to a server that has not come so far: its snapshots
		// say nothing about them. Whatever is there and not held is due again.
		p.Seen, p.Upto, p.After = "1:1:", "", 0
	}
	r.plan = p
	return err
}

// look fills an empty plan.
func (r *relay) look(ctx context.Context, conn Conn) error {
	p := &r.plan
	p.more = false
	if p.Upto != "" {
		err := r.list(ctx, conn, "SELECT '', xid::text, id FROM "+newRows+" AND id > $3::bigint AND pg_visible_in_snapshot(xid, $4::pg_snapshot)"+
			" ORDER BY id LIMIT $2::bigint", p.Seen, int64(planRows), p.After, p.Upto)
		if err != nil || len(p.keys) > 0 {
			return err
		}
		p.Seen, p.Upto, p.After = p.Upto, "", 0
	}
	// The snapshot that is returned is the one that the statement itself reads by.
	return r.list(ctx, conn, "SELECT pg_current_snapshot()::text, xid::text, id FROM "+newRows+" ORDER BY id LIMIT $2::bigint",
		p.Seen, int64(planRows))
}

func (r *relay) list(ctx context.Context, conn Conn, query string, args ...any) error {
	p := &r.plan
	err := conn.Query(ctx, query, func(scan Scan) error {
		var snapshot string
		var k key
		err := scan(&snapshot, &k.XID, &k.ID)
		if snapshot != "" {
			p.Upto = snapshot
		}
		p.keys = append(p.keys, k)
		return err
	}, args...)
	p.more = len(p.keys) == planRows
	return err
}

// bodies reads the messages of keys.
func (r *relay) bodies(ctx context.Context, conn Conn, keys []key, p *store.Page) error {
	xids, ids := arrays(keys)
	return conn.Query(ctx, "SELECT "+messageColumns+" FROM unnest($1::text::xid8[], $2::text::bigint[]) AS k (xid, id) "+
		"JOIN reprise_outbox AS o ON o.xid = k.xid AND o.id = k.id ORDER BY o.id", func(scan Scan) error {
		var s stored
		if err := scan(s.dest()...); err != nil {
			return err
		}
		m, unreadable := s.message()
		if unreadable != nil {
			if p.Unreadable == nil {
				p.Unreadable = map[int]error{}
			}
			p.Unreadable[len(p.Messages)] = unreadable
		}
		p.Messages = append(p.Messages, m)
		return nil
	}, xids, ids)
}

// arrays writes keys as two arrays in text form.
func arrays(keys []key) (xids, ids string) {
	var x, i strings.Builder
	for n, k := range keys {
		sep := ","
		if n == 0 {
			sep = "{"
		}
		x.WriteString(sep + k.XID)
		i.WriteString(sep + strconv.FormatInt(k.ID, 10))
	}
	return x.String() + "}", i.String() + "}"
}

// Advance implements store.Relay.
func (r *relay) Advance(ctx context.Context, slot store.Slot, p store.Page, holds []store.Hold) error {
	if p.Position == "" && len(p.Messages) == 0 {
		return nil
	}
	var to page
	if err := json.Unmarshal([]byte(p.Position), &to); err != nil || len(to.Keys) == 0 {
		return fmt.Errorf("postgres: %.100q is not a position that Fetch returned", p.Position)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.core.write(ctx, func(conn Conn) error { return r.advance(ctx, conn, slot, to, holds) })
	current := r.plan.known && r.plan.epoch == slot.Epoch && r.plan.N+1 == to.Position.N &&
		len(r.plan.keys) >= len(to.Keys) && slices.Equal(r.plan.keys[:len(to.Keys)], to.Keys)
	if err != nil || !current {
		r.plan = plan{}
		return err
	}
	r.plan.position, r.plan.keys = to.Position, r.plan.keys[len(to.Keys):]
	return nil
}

func (r *relay) advance(ctx context.Context, conn Conn, slot store.Slot, to page, holds []store.Hold) error {
	if err := fence(ctx, conn, slot); err != nil {
		return err
	}
	xids, ids := arrays(to.Keys)
	for _, h := range holds {
		if err := hold(ctx, conn, h, xids, ids); err != nil {
			return err
		}
	}
	failpoint.Hit("postgres/advance")
	delivered, args := "DELETE FROM reprise_outbox AS o USING unnest($1::text::xid8[], $2::text::bigint[]) AS k (xid, id) "+
		"WHERE o.xid = k.xid AND o.id = k.id AND NOT EXISTS (SELECT FROM reprise_outbox_hold AS h WHERE h.id = o.id)", []any{xids, ids}
	if retention := r.core.options.DeliveredRetention; retention > 0 {
		// The oldest that no position can ask for any more.
		delivered, args = "DELETE FROM reprise_outbox WHERE (xid, id) IN (SELECT xid, id FROM reprise_outbox AS o "+
			"WHERE xid < pg_snapshot_xmax($1::pg_snapshot) AND pg_visible_in_snapshot(xid, $1::pg_snapshot) "+
			"AND enqueued_at <= clock_timestamp() - $2::bigint * interval '1 microsecond' "+
			"AND NOT EXISTS (SELECT FROM reprise_outbox_hold AS h WHERE h.id = o.id) ORDER BY xid, id LIMIT $3::bigint)",
			[]any{to.Position.Seen, retention.Microseconds(), int64(deleteChunk)}
	}
	if _, err := conn.Exec(ctx, delivered, args...); err != nil {
		return err
	}
	// The primary key keeps a page from being advanced over twice.
	_, err := conn.Exec(ctx, "INSERT INTO reprise_outbox_position (slot, n, seen, upto, after) "+
		"VALUES ($1::bigint, $2::bigint, $3::pg_snapshot, nullif($4::text, '')::pg_snapshot, $5::bigint)",
		int64(slot.Number), to.Position.N, to.Position.Seen, to.Position.Upto, to.Position.After)
	if err == nil {
		_, err = conn.Exec(ctx, "DELETE FROM reprise_outbox_position WHERE slot = $1::bigint AND n < $2::bigint",
			int64(slot.Number), to.Position.N)
	}
	return err
}

// Backlog implements store.Relay.
func (r *relay) Backlog(ctx context.Context) (b store.Backlog, err error) {
	err = r.core.read(ctx, func(conn Conn) error {
		var p position
		err := conn.Query(ctx, "SELECT CASE WHEN pg_snapshot_xmax(coalesce(upto, seen)) > pg_snapshot_xmax(pg_current_snapshot()) "+
			"THEN '1:1:' ELSE seen::text END, coalesce(upto::text, '1:1:'), after FROM reprise_outbox_position WHERE slot = 0 "+
			"ORDER BY n DESC LIMIT 1", func(scan Scan) error { return scan(&p.Seen, &p.Upto, &p.After) })
		if err != nil {
			return err
		}
		return conn.Query(ctx, `SELECT
			(SELECT count(*) FROM `+newRows+` AND NOT (id <= $2::bigint AND pg_visible_in_snapshot(xid, $3::pg_snapshot))),
			(SELECT count(*) FROM reprise_outbox_hold WHERE state = 'retry'),
			(SELECT count(*) FROM reprise_outbox_hold WHERE state = 'blocked'),
			(SELECT count(*) FROM reprise_outbox_hold WHERE state = 'parked'),
			least((SELECT min(enqueued_at) FROM `+strings.ReplaceAll(newRows, "SELECT id, xid FROM", "SELECT id, xid, enqueued_at FROM")+`
				AND NOT (id <= $2::bigint AND pg_visible_in_snapshot(xid, $3::pg_snapshot))),
				(SELECT min(enqueued_at) FROM reprise_outbox AS o JOIN reprise_outbox_hold AS h ON o.xid = h.xid AND o.id = h.id))`,
			scanBacklog(&b), p.Seen, p.After, p.Upto)
	})
	return b, err
}
