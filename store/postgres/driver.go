// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"database/sql/driver"
	"fmt"
	"reflect"
	"runtime/debug"
	"strconv"
	"strings"
)

// checkDriver refuses client libraries that are known to run a statement again by
// themselves after its answer was lost: the row of an INSERT that is not in a
// transaction is then there twice, without an error. lib/pq does so (its issue
// 939), and pgx did before v5.13.0.
func checkDriver(d driver.Driver) error {
	t := reflect.TypeOf(d)
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil {
		return nil
	}
	const advice = "statements of yours outside of a transaction may then take effect twice; " +
		"use github.com/jackc/pgx/v5/stdlib v5.13.0 or later, or accept it with Options.AcceptReruns"
	switch path := t.PkgPath(); {
	case path == "github.com/lib/pq":
		return fmt.Errorf("postgres: lib/pq runs statements again whose answer was lost: %s", advice)
	case strings.HasPrefix(path, "github.com/jackc/pgx/v4"):
		return fmt.Errorf("postgres: pgx v4 runs statements again whose answer was lost: %s", advice)
	case path == "github.com/jackc/pgx/v5/stdlib":
		if info, ok := debug.ReadBuildInfo(); ok {
			for _, m := range info.Deps {
				if m.Path == "github.com/jackc/pgx/v5" && before(m.Version, 5, 13) {
					return fmt.Errorf("postgres: pgx %s runs statements again whose answer was lost: %s", m.Version, advice)
				}
			}
		}
	}
	return nil
}

// before compares a version vMAJOR.MINOR.PATCH with major.minor.
func before(version string, major, minor int) bool {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 3 {
		return false
	}
	x, err1 := strconv.Atoi(parts[0])
	y, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (x < major || x == major && y < minor)
}
