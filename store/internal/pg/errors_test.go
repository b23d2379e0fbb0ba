// SPDX-License-Identifier: Apache-2.0

package pg

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/reprise-go/reprise/store"
)

// serverError is an error as client libraries report it.
type serverError struct{ state, message string }

func (e *serverError) Error() string    { return e.message }
func (e *serverError) SQLState() string { return e.state }

// errRolledBack stands for an error that means a rollback and has no sentinel.
var errRolledBack = errors.New("")

func TestClassify(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want error
	}{
		{&serverError{state: "40001"}, store.ErrConflict},
		{&serverError{state: "40P01"}, store.ErrConflict},
		{&serverError{state: "55P03"}, store.ErrConflict},
		{fmt.Errorf("wrapped: %w", &serverError{state: "40001"}), store.ErrConflict},
		{&serverError{state: "25006"}, store.ErrUnavailable},
		{&serverError{state: "53100"}, store.ErrUnavailable},
		{&serverError{state: "53300"}, store.ErrUnavailable},
		{&serverError{state: "57P01"}, store.ErrUnavailable},
		{&serverError{state: "57014"}, store.ErrUnavailable},
		{&serverError{state: "25P03"}, store.ErrUnavailable},
		{&serverError{state: "08006"}, store.ErrUnavailable},
		{&serverError{state: "58030"}, store.ErrUnavailable},
		{&serverError{state: "28P01"}, store.ErrUnavailable},
		{&serverError{state: "42P01", message: `relation "reprise_ledger" does not exist`}, store.ErrUnavailable},
		{&serverError{state: "23505", message: `violates unique constraint "reprise_outbox_message"`}, store.ErrDuplicateMessage},
		{io.ErrUnexpectedEOF, store.ErrUnavailable},
		{driver.ErrBadConn, store.ErrUnavailable},
		{&net.OpError{Op: "read", Err: errors.New("reset")}, store.ErrUnavailable},
		{&serverError{state: "23505", message: `violates unique constraint "orders_ref"`}, errRolledBack},
		{&serverError{state: "42P01", message: `relation "orders" does not exist`}, errRolledBack},
		{&serverError{state: "23503"}, errRolledBack},
		{errors.New("the handler's own"), errRolledBack},
		{context.Canceled, errRolledBack},
		{fmt.Errorf("%w: 40001", store.ErrTxMisuse), store.ErrTxMisuse},
	} {
		got := Classify(c.err)
		check(t, c.err, got, c.want)
		if !errors.Is(got, c.err) {
			t.Errorf("%v: the database's own error is lost", c.err)
		}
	}
	if Classify(nil) != nil {
		t.Error("no error became one")
	}
}

func check(t *testing.T, err, got, want error) {
	t.Helper()
	for _, sentinel := range sentinels {
		if is := errors.Is(got, sentinel); is != (sentinel == want) {
			t.Errorf("%q (%s) became %v; is it %q: %t", err, SQLState(err), got, sentinel, is)
		}
	}
}

func TestCommitError(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		state string
		alive bool
		want  error
	}{
		{"40001", true, store.ErrConflict},
		{"40001", false, store.ErrConflict},
		{"40P01", true, store.ErrConflict},
		{"23505", false, errRolledBack},
		{"23514", true, errRolledBack},
		{"25P02", true, errRolledBack},
		{"53100", true, store.ErrUnavailable},
		{"53100", false, store.ErrCommitUnknown},
		{"XX000", true, errRolledBack},
		{"XX000", false, store.ErrCommitUnknown},
		{"57P01", false, store.ErrCommitUnknown},
		{"57P01", true, store.ErrCommitUnknown},
		{"08006", true, store.ErrCommitUnknown},
		{"08P01", false, store.ErrCommitUnknown},
		{"", true, store.ErrCommitUnknown},
		{"", false, store.ErrCommitUnknown},
	} {
		err := error(&serverError{state: c.state})
		if c.state == "" {
			err = driver.ErrBadConn
		}
		check(t, err, CommitError(err, c.alive), c.want)
	}
}
