// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/reprise-go/reprise/store"
)

// Result codes of SQLite (https://www.sqlite.org/rescode.html) that are told apart here.
const (
	codeBusy       = 5
	codeLocked     = 6
	codeNoMem      = 7
	codeReadOnly   = 8
	codeInterrupt  = 9
	codeIOErr      = 10
	codeCorrupt    = 11
	codeFull       = 13
	codeCantOpen   = 14
	codeProtocol   = 15
	codeConstraint = 19
	codeNotADB     = 26

	extendedFsync    = codeIOErr | 4<<8
	extendedDirFsync = codeIOErr | 5<<8
)

// texts are SQLite's own names of the codes, for drivers whose errors have no
// Code method of this form.
var texts = map[string]int{
	"database is locked":                   codeBusy,
	"database table is locked":             codeLocked,
	"out of memory":                        codeNoMem,
	"attempt to write a readonly database": codeReadOnly,
	"interrupted":                          codeInterrupt,
	"disk I/O error":                       codeIOErr,
	"database disk image is malformed":     codeCorrupt,
	"database or disk is full":             codeFull,
	"unable to open database file":         codeCantOpen,
	"locking protocol":                     codeProtocol,
	"constraint failed":                    codeConstraint,
	"file is not a database":               codeNotADB,
}

// extendedCode returns SQLite's result code of err, extended where the driver
// tells, and 0 if err is not SQLite's.
func extendedCode(err error) int {
	if err == nil {
		return 0
	}
	if c, ok := errors.AsType[interface {
		error
		Code() int
	}](err); ok {
		return c.Code()
	}
	message := err.Error()
	for text, code := range texts {
		if strings.Contains(message, text) {
			return code
		}
	}
	return 0
}

// code is the primary result code.
func code(err error) int { return extendedCode(err) & 0xff }

// classify gives an error of the database the sentinel of package store that it
// means, or returns it as it is.
func classify(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	for _, known := range []error{store.ErrConflict, store.ErrUnavailable, store.ErrCommitUnknown} {
		if errors.Is(err, known) {
			return err
		}
	}
	switch code(err) {
	case codeBusy, codeLocked, codeInterrupt:
		return fmt.Errorf("%w: %w", store.ErrConflict, err)
	case codeNoMem, codeReadOnly, codeIOErr, codeCorrupt, codeFull, codeCantOpen, codeProtocol, codeNotADB:
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	if strings.Contains(err.Error(), "no such table: reprise_") {
		return fmt.Errorf("%w: the schema is missing; run \"reprise migrate up\" or call migrate.Up: %w", store.ErrUnavailable, err)
	}
	return err
}
