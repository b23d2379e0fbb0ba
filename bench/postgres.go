// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/reprise-go/reprise/internal/dbserver"
)

// hugePages are those of 2 MiB that the server's shared memory takes.
const hugePages = 560

// adviseHugePages says what the figures of a server without huge pages are worth:
// each session then pays for its first touch of each page of the shared memory, in
// a virtual machine more than for the transaction, and a short run is little else.
// The documentation of PostgreSQL advises them too (section 19.4.5).
func adviseHugePages() {
	info, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return // not Linux
	}
	for line := range strings.Lines(string(info)) {
		var free int
		if n, _ := fmt.Sscanf(line, "HugePages_Free: %d", &free); n == 1 && free < hugePages {
			progress("%d huge pages are free, PostgreSQL wants %d: page faults will be part of the figures; run: sysctl -w vm.nr_hugepages=%d", free, hugePages, hugePages+100)
		}
	}
}

// startPostgres starts a server that keeps what it acknowledges, sized so that no
// checkpoint falls into a slice.
func startPostgres(ctx context.Context) (*dbserver.Postgres, string, error) {
	adviseHugePages()
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
