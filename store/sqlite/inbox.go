// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/store"
)

// Accept implements store.Inbox. tx may be the driver's or any other of the
// same database.
func (d *Driver) Accept(ctx context.Context, tx *sql.Tx, r store.Receipt) (fresh bool, stored [32]byte, err error) {
	if r.Consumer == "" || r.MessageID == "" {
		return false, stored, errors.New("sqlite: a receipt needs a consumer and a message id")
	}
	res, err := tx.ExecContext(ctx, "INSERT INTO reprise_inbox (consumer, source, message_id, digest, received_at) "+
		"VALUES (?, ?, ?, ?, ?) ON CONFLICT (consumer, source, message_id) DO NOTHING",
		r.Consumer, r.Source, r.MessageID, r.Digest[:], now().UnixMicro())
	if err != nil {
		return false, stored, classify(err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		return false, stored, err
	}
	if n == 1 {
		return true, r.Digest, nil
	}
	var digest []byte
	err = tx.QueryRowContext(ctx, "SELECT digest FROM reprise_inbox WHERE consumer = ? AND source = ? AND message_id = ?",
		r.Consumer, r.Source, r.MessageID).Scan(&digest)
	if err != nil {
		return false, stored, classify(err)
	}
	if copy(stored[:], digest) != len(stored) {
		return false, stored, fmt.Errorf("sqlite: the receipt of message %q holds %d bytes of digest; the database is damaged",
			r.MessageID, len(digest))
	}
	return false, stored, nil
}

// PurgeInbox implements store.Inbox.
func (d *Driver) PurgeInbox(ctx context.Context, age time.Duration, limit int) (deleted int, err error) {
	if limit < 1 {
		return 0, fmt.Errorf("sqlite: PurgeInbox's limit is %d; it is at least 1", limit)
	}
	err = d.writer.do(ctx, func(s *session) error {
		return s.atomic(func() error {
			n, err := s.conn.Exec(context.Background(), "DELETE FROM reprise_inbox WHERE rowid IN "+
				"(SELECT rowid FROM reprise_inbox WHERE received_at <= ? ORDER BY received_at LIMIT ?)",
				now().Add(-age).UnixMicro(), limit)
			deleted = int(n)
			return classify(err)
		})
	})
	if err != nil {
		return 0, err
	}
	return deleted, nil
}
