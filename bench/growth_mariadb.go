// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/reprise-go/reprise/internal/dbserver"
	"github.com/reprise-go/reprise/store/migrate"
	"github.com/reprise-go/reprise/store/mysql"
)

// mariadbFill fills a ledger from row %[1]d to %[2]d of %[3]d. %[4]d is now, in
// milliseconds since 1970.
const mariadbFill = `
CREATE TEMPORARY TABLE filling AS
SELECT seq, h, seq <= %[3]d DIV 5 AS old, seq <= %[3]d DIV 10 AS gone, UNHEX(CONCAT(LPAD(HEX(ms), 12, '0'), SUBSTR(h, 1, 20))) AS id,
    TIMESTAMPADD(MICROSECOND, ms * 1000, '1970-01-01') AS at,
    LOWER(CONCAT_WS('-', LPAD(HEX(ms DIV 65536), 8, '0'), LPAD(HEX(ms %% 65536), 4, '0'), SUBSTR(h, 1, 4), SUBSTR(h, 5, 4), SUBSTR(h, 9, 12))) AS ref
FROM (SELECT seq, MD5(seq) AS h, %[4]d - (%[3]d - seq) * 30 AS ms FROM seq_%[1]d_to_%[2]d) AS a;
INSERT INTO reprise_ledger (id, caller, operation, ` + "`key`" + `, fingerprint, token, claimed_at)
SELECT id, CONCAT('customer-', seq %% 1000), 'create-order', ref, CONCAT(0x01, UNHEX(h), UNHEX(h)), id, at FROM filling ORDER BY id;
INSERT INTO reprise_result (id, state, status, headers, body, reference, completed_at, expires_at, tombstone_until, due_at)
SELECT id, IF(gone, 'tombstone', 'completed'), 201,
    IF(gone, NULL, CONCAT('{"Content-Type":["application/json"],"Location":["/orders/', ref, '"]}')),
    IF(gone, NULL, CONCAT('{"id":"', ref, '","ref":"', ref,
        '","sku":"coffee-500g","quantity":3,"amount":3600,"currency":"EUR","note":"leave it with the neighbour, please","status":"open"}')),
    CONCAT('/orders/', ref), at, IF(old, at, at + INTERVAL 400 DAY), IF(gone, at, at + INTERVAL 400 DAY), IF(old, at, at + INTERVAL 400 DAY)
FROM filling ORDER BY id;`

// fillMariaDB fills an empty ledger, and waits until what was written is on disk.
func fillMariaDB(ctx context.Context, m *dbserver.MariaDB, database string, rows int) error {
	const chunk = 50_000
	now := time.Now()
	for from := 1; from <= rows; from += chunk {
		to := min(from+chunk-1, rows)
		if _, err := m.Exec(ctx, database, fmt.Sprintf(mariadbFill, from, to, rows, now.UnixMilli())); err != nil {
			return err
		}
		if rows > 4*chunk && from%(4*chunk) == 1 {
			progress("%d of %d rows after %.0f s", to, rows, time.Since(now).Seconds())
		}
	}
	if _, err := m.Exec(ctx, database, "ANALYZE TABLE reprise_ledger, reprise_result; SET GLOBAL innodb_max_dirty_pages_pct = 0"); err != nil {
		return err
	}
	for {
		dirty, err := mariadbStatus(ctx, m, "Innodb_buffer_pool_pages_dirty")
		if err != nil {
			return err
		}
		if dirty < 100 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	_, err := m.Exec(ctx, database, "SET GLOBAL innodb_max_dirty_pages_pct = 90")
	return err
}

// mariadbStatus reads a number of SHOW STATUS.
func mariadbStatus(ctx context.Context, m *dbserver.MariaDB, name string) (int64, error) {
	out, err := m.Exec(ctx, "mysql", "SHOW GLOBAL STATUS LIKE '"+name+"'")
	if err != nil {
		return 0, err
	}
	_, value, _ := strings.Cut(strings.TrimSpace(out), "\t")
	return strconv.ParseInt(value, 10, 64)
}

// growMariaDB is benchGrowth on MariaDB.
func growMariaDB(ctx context.Context, r *report, o options) (err error) {
	m, err := startMariaDB(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Stop()) }()
	g := growth[*sql.Tx]{name: "mariadb", rows: o.size(someRows), written: func(ctx context.Context) (int64, error) {
		return mariadbStatus(ctx, m, "Innodb_os_log_written")
	}}
	for i, rows := range []int{fewRows, g.rows} {
		name := []string{"few", "many"}[i]
		s, err := newMariaDB(ctx, m, name)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.close()) }()
		progress("filling a ledger with %d rows", rows)
		if err := fillMariaDB(ctx, m, name, rows); err != nil {
			return err
		}
		if i == 0 {
			g.few = s
			continue
		}
		g.many = s
		if err := mariadbStorage(ctx, r, m, name, rows); err != nil {
			return err
		}
	}
	return g.measure(ctx, r, o)
}

// newMariaDB makes a database with the library's tables and those of a service.
func newMariaDB(ctx context.Context, m *dbserver.MariaDB, name string) (*service[*sql.Tx], error) {
	if err := m.CreateDatabase(ctx, name); err != nil {
		return nil, err
	}
	for _, statement := range mariadbSchema {
		if _, err := m.Exec(ctx, name, statement); err != nil {
			return nil, err
		}
	}
	s, _, err := openMariaDB(ctx, m.DSN(name)+riding)
	if err != nil {
		return nil, err
	}
	if err := migrate.Up(ctx, s.driver.(*mysql.Driver)); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// mariadbStorage says what a key takes up.
func mariadbStorage(ctx context.Context, r *report, m *dbserver.MariaDB, database string, rows int) error {
	out, err := m.Exec(ctx, database, "SELECT table_name, data_length, index_length FROM information_schema.tables "+
		"WHERE table_schema = DATABASE() AND table_name IN ('reprise_ledger', 'reprise_result') ORDER BY table_name")
	if err != nil {
		return err
	}
	var whole float64
	var parts []string
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) != 3 {
			return fmt.Errorf("unexpected sizes: %q", out)
		}
		data, err := strconv.ParseFloat(f[1], 64)
		if err != nil {
			return err
		}
		index, err := strconv.ParseFloat(f[2], 64)
		if err != nil {
			return err
		}
		whole += data + index
		parts = append(parts, fmt.Sprintf("%s %.0f and its index %.0f", f[0], data/float64(rows), index/float64(rows)))
	}
	r.add(row{
		Bench: "growth", Row: "mariadb: storage of one key, bytes", Ratio: whole / float64(rows), Runs: 1,
		Detail: fmt.Sprintf("%d keys with bodies of about 220 B, a tenth of them tombstones; %s", rows, strings.Join(parts, ", ")),
	})
	return nil
}
