// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"database/sql/driver"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reprise-go/reprise/store/internal/record"
)

// Purge implements store.Ledger. It locks no row but those that it changes, and
// skips those that anybody else holds.
func (d *Driver) Purge(ctx context.Context, limit int) (changed int, err error) {
	if limit < 1 {
		return 0, fmt.Errorf("mysql: Purge's limit is %d; it is at least 1", limit)
	}
	err = d.session(ctx, func(s *session) error {
		s.open = true
		// A tombstone keeps the fingerprint and the reference; inputs and steps hold
		// requests and answers of other systems and go with the body.
		expired, err := s.ids(ctx, s.d.server.begin(due("completed", limit))...)
		if err != nil {
			return err
		}
		if len(expired) > 0 {
			_, err := s.run(ctx, "DELETE FROM reprise_step WHERE ledger_id IN ("+list(expired)+")",
				"UPDATE reprise_run SET input = NULL WHERE id IN ("+list(expired)+")",
				"UPDATE reprise_result SET state = 'tombstone', headers = NULL, body = NULL, due_at = tombstone_until "+
					"WHERE id IN ("+list(expired)+")")
			if err != nil {
				return classify(err)
			}
		}
		var ended [][]byte
		if left := limit - len(expired); left > 0 {
			if ended, err = s.ids(ctx, due("tombstone", left)); err != nil {
				return err
			}
		}
		var last []string
		if len(ended) > 0 {
			for _, table := range []string{"reprise_result", "reprise_run", "reprise_ledger"} {
				last = append(last, "DELETE FROM "+table+" WHERE id IN ("+list(ended)+")")
			}
		}
		if len(expired)+len(ended) == 0 {
			return nil // and is rolled back
		}
		_, err = s.commit(last...)
		changed = len(expired) + len(ended)
		return err
	})
	if err != nil {
		return 0, err
	}
	return changed, nil
}

// due selects records of one state whose time has come.
func due(state string, limit int) string {
	return render("SELECT id FROM reprise_result FORCE INDEX (reprise_result_due) WHERE state = ? AND due_at <= UTC_TIMESTAMP(6) "+
		"ORDER BY due_at LIMIT ? FOR UPDATE SKIP LOCKED", state, limit)
}

// ids runs statements of which the last one selects ids.
func (s *session) ids(ctx context.Context, statements ...string) (ids [][]byte, err error) {
	err = s.rows(ctx, func(row []driver.Value) error {
		c := record.Read(row)
		ids = append(ids, c.Bytes())
		return c.Err()
	}, statements...)
	return ids, classify(err)
}

// list writes ids as literals, in the order of the primary key, so that two that
// lock the same ones don't lock each other out.
func list(ids [][]byte) string {
	literals := make([]string, len(ids))
	for i, id := range ids {
		literals[i] = render("?", id)
	}
	slices.Sort(literals)
	return strings.Join(literals, ", ")
}

// PurgeInbox implements store.Inbox.
func (d *Driver) PurgeInbox(ctx context.Context, age time.Duration, limit int) (deleted int, err error) {
	if limit < 1 {
		return 0, fmt.Errorf("mysql: PurgeInbox's limit is %d; it is at least 1", limit)
	}
	err = d.session(ctx, func(s *session) error {
		a, err := s.write(render("DELETE FROM reprise_inbox WHERE received_at <= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND "+
			"ORDER BY received_at LIMIT ?", age, limit))
		if err == nil {
			deleted = int(a.affected[s.d.server.beginLen()])
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return deleted, nil
}
