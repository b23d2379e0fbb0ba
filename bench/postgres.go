// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"

	"github.com/reprise-go/reprise/internal/dbserver"
)

// startPostgres starts a server that keeps what it acknowledges, sized so that no
// checkpoint falls into a slice.
func startPostgres(ctx context.Context) (*dbserver.Postgres, string, error) {
	progress("starting PostgreSQL")
	p, err := dbserver.StartPostgres(ctx, dbserver.PostgresOptions{Durable: true, Settings: map[string]string{
		"shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "15min", "max_connections": "700",
		"wal_level": "replica", "synchronous_commit": "on", "full_page_writes": "on", "autovacuum": "on",
	}})
	if err != nil {
		return nil, "", err
	}
	version, err := p.Exec(ctx, "postgres", "SHOW server_version")
	if err != nil {
		_ = p.Stop()
		return nil, "", err
	}
	version, _, _ = strings.Cut(strings.TrimSpace(version), " ")
	return p, "PostgreSQL " + version, nil
}
