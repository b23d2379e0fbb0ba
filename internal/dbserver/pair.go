// SPDX-License-Identifier: Apache-2.0

package dbserver

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"
)

// PostgresPair is a primary whose COMMIT waits for its standby.
type PostgresPair struct {
	Primary, Standby *Postgres
}

// standbyName is what the primary knows the standby by.
const standbyName = "standby"

// StartPostgresPair starts both and returns when replication is synchronous.
func StartPostgresPair(ctx context.Context, o PostgresOptions) (*PostgresPair, error) {
	primary, err := StartPostgres(ctx, o)
	if err != nil {
		return nil, err
	}
	pair := &PostgresPair{Primary: primary}
	pair.Standby, err = startPostgres(ctx, func(p *Postgres) error {
		_, err := run(ctx, p.as, p.dir.path, "", filepath.Join(p.bin, "pg_basebackup"), "-D", p.data(),
			"-d", "host="+primary.dir.path+" port="+strconv.Itoa(primary.port)+" user=postgres application_name="+standbyName,
			"--write-recovery-conf", "--create-slot", "--slot="+standbyName, "--checkpoint=fast", "--wal-method=stream", "--no-sync")
		return err
	})
	if err == nil {
		err = pair.synchronise(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, pair.Stop())
	}
	return pair, nil
}

// synchronise makes every COMMIT of the primary wait for the standby.
func (p *PostgresPair) synchronise(ctx context.Context) error {
	_, err := p.Primary.Exec(ctx, "postgres",
		"ALTER SYSTEM SET synchronous_standby_names = '"+standbyName+"'; SELECT pg_reload_conf()")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		state, err := p.Primary.Exec(ctx, "postgres", "SELECT sync_state FROM pg_stat_replication")
		if err != nil || state == "sync" {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("dbserver: the standby is %q, not synchronous: %w", state, ctx.Err())
		case <-time.After(pollInterval):
		}
	}
}

// Promote makes the standby a primary that waits for nobody, and returns when it
// is one. The old primary is left as it is: end it first, unless two of them are
// what is wanted.
func (p *PostgresPair) Promote(ctx context.Context) error {
	promoted, err := p.Standby.Exec(ctx, "postgres", "SELECT pg_promote(true, 60)")
	if err == nil && promoted != "t" {
		err = errors.New("dbserver: the standby was not promoted in 60 s")
	}
	return err
}

// Stop ends both and removes their directories.
func (p *PostgresPair) Stop() error {
	var err error
	if p.Standby != nil {
		err = p.Standby.Stop()
	}
	return errors.Join(err, p.Primary.Stop())
}
