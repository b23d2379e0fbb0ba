// SPDX-License-Identifier: Apache-2.0

package pg

import (
	"context"
	"errors"
	"fmt"
)

// CheckServer refuses a server or a session that can't keep the guarantee.
func CheckServer(ctx context.Context, conn Conn) error {
	var version int64
	var encoding, synchronous string
	var recovering bool
	err := conn.Query(ctx, "SELECT current_setting('server_version_num')::bigint, current_setting('server_encoding'), "+
		"current_setting('synchronous_commit'), pg_is_in_recovery()",
		func(scan Scan) error { return scan(&version, &encoding, &synchronous, &recovering) })
	switch {
	case err != nil:
		return Classify(err)
	case version < 140000:
		return fmt.Errorf("postgres: the server is version %d; it must be PostgreSQL 14 or later", version/10000)
	case recovering:
		return errors.New("postgres: the server is a standby; name the primary, as with target_session_attrs=read-write")
	case encoding != "UTF8":
		return fmt.Errorf("postgres: the database is encoded in %s; make one in UTF8", encoding)
	case synchronous == "off":
		return errors.New("postgres: synchronous_commit is off, so acknowledged commits would be lost with the server; turn it on for this database")
	}
	return nil
}
