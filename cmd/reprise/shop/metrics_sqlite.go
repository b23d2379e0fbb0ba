// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/reprise-go/reprise/store/sqlite"
)

// sqliteStats is what only the driver of SQLite counts: how writes share commits,
// and how its log stands.
type sqliteStats struct{ driver *sqlite.Driver }

var (
	writesDesc = prometheus.NewDesc("reprise_sqlite_writes_total",
		"Writes that were committed.", nil, nil)
	commitsDesc = prometheus.NewDesc("reprise_sqlite_commits_total",
		"COMMITs that the writes shared.", nil, nil)
	logSizeDesc = prometheus.NewDesc("reprise_sqlite_log_bytes",
		"Size of the write-ahead log when it was last looked at.", nil, nil)
	logRenewalsDesc = prometheus.NewDesc("reprise_sqlite_log_renewals_total",
		"How often the write-ahead log was made to begin anew.", nil, nil)
	logHeldDesc = prometheus.NewDesc("reprise_sqlite_log_held_seconds",
		"For how long a reader has kept the log from beginning anew; 0 if none does.", nil, nil)
)

// Describe implements prometheus.Collector.
func (s sqliteStats) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{writesDesc, commitsDesc, logSizeDesc, logRenewalsDesc, logHeldDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s sqliteStats) Collect(ch chan<- prometheus.Metric) {
	stats := s.driver.Stats()
	held := 0.0
	if !stats.LogHeldSince.IsZero() {
		held = time.Since(stats.LogHeldSince).Seconds()
	}
	counter, gauge := prometheus.CounterValue, prometheus.GaugeValue
	ch <- prometheus.MustNewConstMetric(writesDesc, counter, float64(stats.Requests))
	ch <- prometheus.MustNewConstMetric(commitsDesc, counter, float64(stats.Commits))
	ch <- prometheus.MustNewConstMetric(logSizeDesc, gauge, float64(stats.LogSize))
	ch <- prometheus.MustNewConstMetric(logRenewalsDesc, counter, float64(stats.LogRenewals))
	ch <- prometheus.MustNewConstMetric(logHeldDesc, gauge, held)
}
