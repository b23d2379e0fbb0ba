// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/reprise-go/reprise/store"
)

// Accept implements store.Inbox. tx may be the driver's or any other of the same
// database.
//
// Of two deliveries at the same moment the second waits for the first. INSERT
// IGNORE says by the number of rows whether it was first, whatever the DSN has
// that number mean; the look behind it is a locking one, because a transaction of
// the application may read from a snapshot that is older than the receipt.
func (d *Driver) Accept(ctx context.Context, tx *sql.Tx, r store.Receipt) (fresh bool, stored [32]byte, err error) {
	if r.Consumer == "" || r.MessageID == "" {
		return false, stored, errors.New("mysql: a receipt needs a consumer and a message id")
	}
	if err := fits("an attribute of a receipt", 512, r.Consumer, r.Source, r.MessageID); err != nil {
		return false, stored, err
	}
	res, err := tx.ExecContext(ctx, render("INSERT IGNORE INTO reprise_inbox (consumer, source, message_id, digest, received_at) "+
		"VALUES (?, ?, ?, ?, UTC_TIMESTAMP(6))", r.Consumer, r.Source, r.MessageID, r.Digest[:]))
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
	err = tx.QueryRowContext(ctx, render("SELECT digest FROM reprise_inbox WHERE consumer = ? AND source = ? AND message_id = ? LOCK IN SHARE MODE",
		r.Consumer, r.Source, r.MessageID)).Scan(&digest)
	if err != nil {
		return false, stored, classify(err)
	}
	if copy(stored[:], digest) != len(stored) {
		return false, stored, fmt.Errorf("mysql: the receipt of message %q holds %d bytes of digest; the database is damaged",
			r.MessageID, len(digest))
	}
	return false, stored, nil
}
