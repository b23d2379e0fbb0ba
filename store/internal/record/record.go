// SPDX-License-Identifier: Apache-2.0

// Package record is what a stored record is, whatever database holds it: how its
// header fields are written, how long it lives, and whose it is.
package record

import (
	"errors"
	"fmt"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

// Damaged is the error for a stored record that holds what no driver writes.
func Damaged(what string) error {
	return fmt.Errorf("store: a stored record holds %s; the database is damaged, or was written by something else", what)
}

// Own keeps the record of one intent from answering for another with the same
// id, and refuses the second one.
func Own(stored, asked reprise.Intent) error {
	stored.Fingerprint = asked.Fingerprint
	if stored != asked {
		return errors.New("store: two intents have one id, or the stored one was changed; nothing was done for the second")
	}
	return nil
}

// Complete puts the result of c into e. When it expires is the database's to say
// (see Lifetimes).
func Complete(e *store.Entry, c store.Completion) {
	e.State, e.Result = reprise.StateCompleted, c.Result
	if c.OmitBody {
		e.State = reprise.StateTombstone
		e.Result.Header, e.Result.Body = nil, nil
	} else if e.Result.Body == nil {
		e.Result.Body = []byte{}
	}
}

// Lifetimes are how long the body and the tombstone of c last from completion.
// The tombstone is what stays, so it never goes first.
func Lifetimes(c store.Completion) (body, tombstone time.Duration) {
	if !c.OmitBody {
		body = c.Retention
	}
	return body, max(c.Retention, c.Tombstone)
}

// Expire judges e at the time now: a completed record past its retention is a
// tombstone, and gone says that one past its tombstone doesn't exist (rule L9).
func Expire(e *store.Entry, now time.Time) (gone bool) {
	if e.State != reprise.StateCompleted && e.State != reprise.StateTombstone {
		return false
	}
	if !now.Before(e.TombstoneUntil) {
		return true
	}
	if e.State == reprise.StateCompleted && !now.Before(e.ExpiresAt) {
		e.State = reprise.StateTombstone
	}
	if e.State == reprise.StateTombstone {
		e.Result.Header, e.Result.Body, e.Input = nil, nil, nil
	}
	return false
}
