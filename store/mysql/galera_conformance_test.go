// SPDX-License-Identifier: Apache-2.0

//go:build galera

package mysql_test

import (
	"database/sql"
	"sync/atomic"
	"testing"

	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/store/storetest"
)

// TestGaleraConformance has the processes of each rule speak to different nodes.
func TestGaleraConformance(t *testing.T) {
	t.Parallel()
	nodes := cluster(t)
	var turn atomic.Int64
	storetest.Run(t, storetest.Harness[*sql.Tx]{
		Create: func(tb testing.TB) string { tb.Helper(); return clusterDatabase(tb, nodes) },
		Open: func(tb testing.TB, name string) (store.Driver[*sql.Tx], func()) {
			tb.Helper()
			d := newDriver(tb, nodes[int(turn.Add(1))%len(nodes)](name)+together)
			return d, func() { _ = d.Close() }
		},
		Plain: func(tb testing.TB, name string) storetest.Plain[*sql.Tx] {
			tb.Helper()
			return storetest.PlainSQL(openDB(tb, nodes[0](name)+causal))
		},
		Age: age,
	})
}
