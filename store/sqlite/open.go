// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/reprise-go/reprise/store"
)

// checkTime is how long the file is checked for damage when it is opened. A
// large one is not read to its end; damage further on is found when it is met.
const checkTime = time.Second

// setUp makes the connection durable and proves that it is.
func (c *connection) setUp(ctx context.Context, busy time.Duration) error {
	deadline := time.Now().Add(busy)
	if err := untilFree(ctx, deadline, c.configure); err != nil {
		return explain(err)
	}
	if err := c.prove(ctx, deadline); err != nil {
		return explain(err)
	}
	return c.check(ctx)
}

// configure sets what a writer needs and reads it back, because a PRAGMA that
// can't be obeyed is not an error to SQLite.
func (c *connection) configure() error {
	file, err := c.pragma("PRAGMA database_list")
	if err != nil {
		return err
	}
	if text(file) == "" {
		return errors.New("sqlite: the database is in memory, and memory alone never holds a key; name a file")
	}
	if mode, err := c.pragma("PRAGMA journal_mode = WAL"); err != nil {
		return err
	} else if text(mode) != "wal" {
		return fmt.Errorf("sqlite: the database stays in journal mode %q; it must be able to use WAL: "+
			"put a file on a local disk and open it with the default VFS", text(mode))
	}
	if encoding, err := c.pragma("PRAGMA encoding"); err != nil {
		return err
	} else if text(encoding) != "UTF-8" {
		return fmt.Errorf("sqlite: the database is encoded in %s, which can't hold keys byte by byte; make a new one in UTF-8", text(encoding))
	}
	// The writer waits for its lock by itself (beginImmediate).
	for _, set := range []string{
		"PRAGMA synchronous = FULL", "PRAGMA busy_timeout = 0", "PRAGMA query_only = OFF",
		// No COMMIT writes the log back, and what a reader has made of it is cut off.
		"PRAGMA wal_autocheckpoint = 0", fmt.Sprintf("PRAGMA journal_size_limit = %d", 4*c.logSize),
	} {
		if _, err := c.pragma(set); err != nil {
			return err
		}
	}
	if page, err := c.pragma("PRAGMA page_size"); err != nil {
		return err
	} else if n, ok := page.(int64); ok {
		c.page = n
	}
	if level, err := c.pragma("PRAGMA synchronous"); err != nil {
		return err
	} else if level != int64(2) {
		return fmt.Errorf("sqlite: PRAGMA synchronous is %v and won't become FULL (2); "+
			"acknowledged commits would be lost with the power", level)
	}
	return nil
}

// prove writes something and takes it back: BEGIN IMMEDIATE alone succeeds on a
// file that is read-only.
func (c *connection) prove(ctx context.Context, deadline time.Time) error {
	if err := c.beginImmediate(ctx, deadline); err != nil {
		return err
	}
	err := c.exec("CREATE TABLE IF NOT EXISTS reprise_probe (x)")
	_, rollback := c.rollback()
	return errors.Join(err, rollback)
}

// check looks for damage, for at most checkTime.
func (c *connection) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	var verdict string
	err := c.Query(ctx, func(row []driver.Value) error {
		verdict = text(row[0])
		return nil
	}, "PRAGMA quick_check(1)")
	switch {
	case ctx.Err() != nil && (err != nil || verdict == ""), code(err) == codeInterrupt:
		return nil
	case err != nil:
		return explain(err)
	case verdict != "ok":
		return fmt.Errorf("sqlite: the database is damaged (%q); restore it from a backup", verdict)
	}
	return nil
}

// explain says what a failure to open means to the one who has to act.
func explain(err error) error {
	var advice string
	switch code(err) {
	case codeBusy, codeLocked:
		advice = "the database is locked by another process; stop that process, or one that was left behind"
	case codeReadOnly:
		advice = "the database can't be written; check the owner and the mode of the file and of its directory, and mode=ro in the name"
	case codeCantOpen:
		advice = "the database can't be opened; check that its directory exists and may be written"
	case codeNotADB:
		advice = "the file is not a SQLite database; check its name"
	case codeCorrupt:
		advice = "the database is damaged; restore it from a backup"
	case codeFull:
		advice = "the disk is full; make room"
	case codeIOErr, codeProtocol:
		advice = "the database can't be read or locked; check the disk, and don't put it on a network file system"
	default:
		if errors.Is(err, store.ErrConflict) || strings.HasPrefix(err.Error(), "sqlite: ") {
			return err
		}
		advice = "the database can't be opened"
	}
	return fmt.Errorf("sqlite: %s: %w", advice, err)
}
