// SPDX-License-Identifier: Apache-2.0

package pg

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/reprise-go/reprise/store"
)

// SQLState returns the five characters by which the server says what went wrong
// (https://www.postgresql.org/docs/current/errcodes-appendix.html), or "" if err
// is not the server's.
func SQLState(err error) string {
	if e, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return e.SQLState()
	}
	return ""
}

// sentinels are the errors of package store that Classify gives.
var sentinels = []error{
	store.ErrConflict, store.ErrUnavailable, store.ErrCommitUnknown, store.ErrBusy, store.ErrNotFound,
	store.ErrLeaseLost, store.ErrDuplicateMessage, store.ErrTxMisuse,
}

// Classify gives an error of the database, of a transaction that will be rolled
// back, the sentinel of package store that it means, or returns it as it is. It
// is not for errors of COMMIT: see CommitError.
func Classify(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	for _, known := range sentinels {
		if errors.Is(err, known) {
			return err
		}
	}
	switch state := SQLState(err); {
	case state == "" && lost(err), unavailable(state):
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	case state == "40001", state == "40P01", state == "55P03":
		// Serialisation failure, deadlock, a lock that could not be had in time.
		return fmt.Errorf("%w: %w", store.ErrConflict, err)
	case state == "23505" && strings.Contains(err.Error(), "reprise_outbox_message"):
		return fmt.Errorf("%w: give each event an id of its own, or none: %w", store.ErrDuplicateMessage, err)
	case state == "42P01" && strings.Contains(err.Error(), "reprise_"):
		return fmt.Errorf("%w: the schema is missing, or not in the search path; "+
			"run \"reprise migrate up\" or call migrate.Up: %w", store.ErrUnavailable, err)
	}
	return err
}

// unavailable says whether the server can't do what was asked, or not now, for
// reasons that are not in the statement.
func unavailable(state string) bool {
	switch state {
	case "25006", // read only: a standby, or a primary that was demoted
		"57014",                            // statement_timeout
		"57P01", "57P02", "57P03", "57P05", // shutting down, crashed, starting, idle for too long
		"25P03", // idle in the transaction for too long
		"3D000", // the database is gone
		"XX001", "XX002":
		return true
	}
	// Connection, authorisation, resources (connections, disk, memory), system.
	return len(state) == 5 && slices.Contains([]string{"08", "28", "53", "58"}, state[:2])
}

// lost says whether an error that is not the server's is the connection's.
func lost(err error) bool {
	_, network := errors.AsType[net.Error](err)
	_, operation := errors.AsType[*net.OpError](err)
	_, sending := errors.AsType[interface {
		error
		SafeToRetry() bool
	}](err)
	return network || operation || sending || errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}

// ErrGone is for an attempt that met a record which can't be found any more.
var ErrGone = fmt.Errorf("%w: the record that was in the way is gone", store.ErrConflict)

// Taken says whether err is the unique index of the ledger, which has the last
// word: another attempt at the intent was committed in the meantime.
func Taken(err error) bool {
	return SQLState(err) == "23505" && strings.Contains(err.Error(), "reprise_ledger_id")
}

// CommitError says what an error of a message that ends in COMMIT means. alive
// reports that a ROLLBACK sent after it on the same connection was answered.
//
// The server's own error means that nothing was kept, with an exception: one that
// ends the session may come after the commit, when a backend that waits for a
// standby is told to stop, or from a proxy that has lost the server. And an error
// that is not the server's proves nothing.
func CommitError(err error, alive bool) error {
	state := SQLState(err)
	final := strings.HasPrefix(state, "40") || strings.HasPrefix(state, "23") || state == "25P02"
	session := strings.HasPrefix(state, "08") || strings.HasPrefix(state, "57P")
	if state == "" || session || !final && !alive {
		return fmt.Errorf("%w: %w", store.ErrCommitUnknown, err)
	}
	return Classify(err)
}
