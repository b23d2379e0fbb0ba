// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"slices"
	"strings"

	"github.com/reprise-go/reprise/store"
)

// Error numbers of MySQL and MariaDB that are told apart here.
const (
	errNotNull     = 1048
	errDuplicate   = 1062
	errNoSuchTable = 1146
	errWrite       = 1026 // a file could not be written; at COMMIT it may be the binary log, in part
	errDuringWrite = 1180 // an error during COMMIT itself
	errNoLogging   = 1598 // the binary log failed, and the server may abort with the transaction prepared
	errLockWait    = 1205
	errDeadlock    = 1213
	errNoWait      = 3572
)

// conflicts end a transaction, or one statement of it, in favour of another one.
var conflicts = []int{
	1020,        // the row has changed since the snapshot
	errLockWait, // only the statement was rolled back
	errDeadlock, // the transaction was rolled back; in Galera also what COMMIT answers the loser
	1317,        // the statement was killed
	1412,        // the table was altered since the snapshot
	1615,        // prepare the statement again
	errNoWait,
}

// outages say that the server is not there, or can't write.
var outages = []int{
	1021, errWrite, 1030, 1114, // disk full, write errors, table full
	1040, 1203, // too many connections
	1044, 1045, 1049, // no access, no database
	1047,             // Galera: the node is not part of the cluster now
	1053, 1927, 4031, // shutdown, connection killed, connection timed out
	1129, 1130, // the host is not let in
	1152, 1153, 1158, 1159, 1160, 1161, 1184, // the connection broke
	1290, 1792, 1836, // read only
	1637, // too many transactions
}

// unclear are answers to a message that ends in COMMIT which don't say whether it
// was carried out.
var unclear = []int{
	errWrite, errDuringWrite, errNoLogging, // a restart commits what the binary log has
	1047, 1053, 1105, 1152, 1158, 1159, 1160, 1161, 1317, 1927, 1969, 3024, 4031,
}

// number returns the server's error number of err, 0 if err is not the
// server's. go-sql-driver's error type has it in a field and the library doesn't link the driver.
func number(err error) int {
	for _, e := range chain(err) {
		v := reflect.ValueOf(e)
		if v.Kind() == reflect.Pointer && !v.IsNil() {
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct {
			continue
		}
		for _, name := range []string{"Number", "Code"} {
			if f := v.FieldByName(name); f.IsValid() && f.Kind() == reflect.Uint16 {
				return int(f.Uint())
			}
		}
	}
	return 0
}

// chain lists err and all that it wraps.
func chain(err error) []error {
	if err == nil {
		return nil
	}
	all := []error{err}
	switch u := err.(type) { //nolint:errorlint // this is what errors.As does.
	case interface{ Unwrap() error }:
		all = append(all, chain(u.Unwrap())...)
	case interface{ Unwrap() []error }:
		for _, e := range u.Unwrap() {
			all = append(all, chain(e)...)
		}
	}
	return all
}

// severed reports whether err means that the connection is not usable any more.
func severed(err error) bool {
	if err == nil || number(err) != 0 {
		return slices.Contains([]int{1053, 1153, 1927, 4031}, number(err))
	}
	if errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	text := err.Error()
	return slices.ContainsFunc([]string{
		"invalid connection", "the connection is gone", "bad connection", "malformed packet",
		"commands out of sync", "busy buffer", "use of closed network connection",
	}, func(s string) bool { return strings.Contains(text, s) })
}

// classify gives an error of the database the sentinel of package store that it
// means, or returns it as it is.
func classify(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	for _, known := range []error{
		store.ErrConflict, store.ErrUnavailable, store.ErrCommitUnknown, store.ErrBusy,
		store.ErrLeaseLost, store.ErrNotFound, store.ErrDuplicateMessage,
	} {
		if errors.Is(err, known) {
			return err
		}
	}
	n := number(err)
	switch {
	case slices.Contains(conflicts, n):
		return fmt.Errorf("%w: %w", store.ErrConflict, err)
	case slices.Contains(outages, n), severed(err):
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	case n == errNoSuchTable && strings.Contains(err.Error(), ".reprise_"):
		return fmt.Errorf("%w: the schema is missing; run \"reprise migrate up\" or call migrate.Up: %w", store.ErrUnavailable, err)
	case n == errDuplicate && strings.Contains(err.Error(), "reprise_outbox_message"):
		return fmt.Errorf("%w: give each event an id of its own, or none: %w", store.ErrDuplicateMessage, err)
	}
	return err
}

// committed says what an error means that answered a message which ends in
// COMMIT. The server stops at the first statement that fails, so an error that
// it reports comes from before COMMIT or refuses it, but for those that are
// unclear, and for no answer at all.
func committed(err error) error {
	n := number(err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, driver.ErrBadConn):
		return classify(err) // by the contract of database/sql nothing was sent
	case n == 0 && strings.Contains(err.Error(), "packet for query is too large"):
		return err // refused before it was sent
	case n == errNotNull && strings.Contains(err.Error(), "'status'"):
		return fmt.Errorf("%w: the claim was gone when it was to be completed: %w", store.ErrCommitUnknown, err)
	case n == 0 || slices.Contains(unclear, n):
		return fmt.Errorf("%w: %w", store.ErrCommitUnknown, err)
	}
	return classify(err)
}
