// SPDX-License-Identifier: Apache-2.0

package pg

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/store"
)

// Accept inserts a receipt into the transaction of conn, which may be the
// driver's or any other of the same database.
func Accept(ctx context.Context, conn Conn, r store.Receipt) (fresh bool, digest [32]byte, err error) {
	if r.Consumer == "" || r.MessageID == "" {
		return false, digest, errors.New("postgres: a receipt needs a consumer and a message id")
	}
	// It waits for a transaction that has inserted the same, and goes by its outcome.
	n, err := conn.Exec(ctx, "INSERT INTO reprise_inbox (consumer, source, message_id, digest) "+
		"VALUES ($1::text, $2::text, $3::text, $4::bytea) ON CONFLICT DO NOTHING", r.Consumer, r.Source, r.MessageID, r.Digest[:])
	if err != nil {
		return false, digest, Classify(err)
	}
	if n == 1 {
		return true, r.Digest, nil
	}
	var found []byte
	err = conn.Query(ctx, "SELECT digest FROM reprise_inbox WHERE consumer = $1::text AND source = $2::text AND message_id = $3::text",
		func(scan Scan) error { return scan(&found) }, r.Consumer, r.Source, r.MessageID)
	if err != nil {
		return false, digest, Classify(err)
	}
	if copy(digest[:], found) != len(digest) || len(found) != len(digest) {
		return false, digest, fmt.Errorf("postgres: the receipt of message %q holds %d bytes of digest; it was purged at this moment, or is damaged",
			r.MessageID, len(found))
	}
	return false, digest, nil
}

// PurgeInbox implements store.Inbox.
func (c *Core) PurgeInbox(ctx context.Context, age time.Duration, limit int) (deleted int, err error) {
	if limit < 1 {
		return 0, fmt.Errorf("postgres: PurgeInbox's limit is %d; it is at least 1", limit)
	}
	err = c.write(ctx, func(conn Conn) error {
		n, err := conn.Exec(ctx, `WITH old AS MATERIALIZED (SELECT consumer, source, message_id FROM reprise_inbox
			WHERE received_at <= statement_timestamp() - $1::bigint * interval '1 microsecond'
			ORDER BY received_at LIMIT $2::bigint FOR UPDATE SKIP LOCKED)
			DELETE FROM reprise_inbox AS i USING old WHERE i.consumer = old.consumer AND i.source = old.source AND i.message_id = old.message_id`,
			age.Microseconds(), int64(limit))
		deleted = int(n)
		return err
	})
	if err != nil {
		return 0, err
	}
	return deleted, nil
}
