// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"context"
	"database/sql"
	"net/http"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/inbox"
	"github.com/reprise-go/reprise/outbox"
	"github.com/reprise-go/reprise/store"
	"github.com/reprise-go/reprise/wire"
)

// sinkBuiltin is the only sink this build has, as a label.
const sinkBuiltin = "builtin"

// metrics are the counts that an operator watches. No label holds a key, a
// caller or an id: they would be as many series.
type metrics struct {
	registry  *prometheus.Registry
	requests  *prometheus.CounterVec
	messages  *prometheus.CounterVec
	published *prometheus.CounterVec
	publish   *prometheus.HistogramVec
	success   prometheus.Gauge
}

func newMetrics(schema int) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "reprise_server_requests_total",
			Help: "Requests by operation and by what became of them.",
		}, []string{"operation", "outcome"}),
		messages: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "reprise_inbox_messages_total",
			Help: "Messages that reached a consumer, by what its inbox made of them.",
		}, []string{"source", "result"}),
		published: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "reprise_outbox_publish_total",
			Help: "Deliveries by the relay of this process.",
		}, []string{"topic", "sink", "result"}),
		publish: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "reprise_outbox_publish_duration_seconds",
			Help: "How long a sink took to confirm or refuse a message.",
		}, []string{"sink"}),
		success: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "reprise_outbox_relay_last_success_timestamp_seconds",
			Help: "When the relay of this process last had a message confirmed; 0 for never.",
		}),
	}
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "reprise_build_info",
		Help: "Always 1; the labels say which build this is.",
	}, []string{"version", "go", "schema"})
	m.registry.MustRegister(m.requests, m.messages, m.published, m.publish, m.success, info,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	info.WithLabelValues(buildVersion(), runtime.Version(), strconv.Itoa(schema)).Set(1)
	return m
}

func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return info.Main.Version
}

// operation counts the requests of one operation.
func (m *metrics) operation(op reprise.Operation, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		h.ServeHTTP(s, r)
		m.requests.WithLabelValues(string(op), outcome(s.status, s.Header())).Inc()
	})
}

// outcome names what became of a request, by its answer.
func outcome(status int, h http.Header) string {
	switch {
	case h.Get(wire.HeaderReplayed) != "":
		return "replayed"
	case status < 300:
		return "executed"
	case status == http.StatusUnprocessableEntity:
		return "mismatch"
	case status == http.StatusConflict && h.Get("Retry-After") != "":
		return "in_flight"
	case status == http.StatusConflict || status == http.StatusPreconditionFailed:
		return "conflict"
	case status < 500:
		return "rejected"
	case status == http.StatusServiceUnavailable && wire.ReadRetryContext(h).Processed == nil:
		return "in_doubt"
	}
	return "error"
}

// received counts a message that reached the consumer.
func (m *metrics) received(msg reprise.Message, done inbox.Disposition, err error) {
	result := "rejected"
	switch {
	case err != nil:
	case done == inbox.Duplicate:
		result = "duplicate"
	default:
		result = "applied"
	}
	m.messages.WithLabelValues(msg.Source, result).Inc()
}

// delivered counts what the relay did with a message.
func (m *metrics) delivered(d outbox.Delivery) {
	result := "confirmed"
	if d.Err != nil {
		result = "failed"
	}
	m.published.WithLabelValues(d.Message.Type, sinkBuiltin, result).Inc()
	m.publish.WithLabelValues(sinkBuiltin).Observe(d.Took.Seconds())
	if d.Err == nil {
		m.success.SetToCurrentTime()
	}
}

// statusWriter remembers the status of an answer.
type statusWriter struct {
	http.ResponseWriter

	status int
}

func (s *statusWriter) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the connection.
func (s *statusWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// gauges are read from the database at the moment they are asked for.
type gauges struct {
	ledger store.Driver[*sql.Tx]
	relay  *outbox.Relay
}

// gaugeTimeout bounds what one look at the metrics may cost.
const gaugeTimeout = 2 * time.Second

var (
	operationsDesc = prometheus.NewDesc("reprise_server_operations",
		"Intents in the ledger that are not finished, by state.", []string{"state"}, nil)
	pendingDesc = prometheus.NewDesc("reprise_outbox_pending",
		"Events that are committed and not delivered yet, held ones included.", nil, nil)
	deadDesc = prometheus.NewDesc("reprise_outbox_dead",
		"Events whose delivery was given up until somebody decides.", nil, nil)
	oldestDesc = prometheus.NewDesc("reprise_outbox_oldest_pending_age_seconds",
		"Age of the oldest event that is not delivered; 0 if there is none.", nil, nil)
	leaseDesc = prometheus.NewDesc("reprise_outbox_relay_lease_held",
		"Parts of the outbox that the relay of this process delivers.", nil, nil)
)

// Describe implements prometheus.Collector.
func (g gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{operationsDesc, pendingDesc, deadDesc, oldestDesc, leaseDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g gauges) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), gaugeTimeout)
	defer cancel()
	gauge := func(d *prometheus.Desc, v float64, err error, labels ...string) {
		if err != nil {
			ch <- prometheus.NewInvalidMetric(d, err)
			return
		}
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, state := range []reprise.State{reprise.StateInProgress, reprise.StateUnsettled} {
		n, err := g.count(ctx, state)
		gauge(operationsDesc, float64(n), err, string(state))
	}
	b, err := g.relay.Backlog(ctx)
	age := 0.0
	if !b.Oldest.IsZero() {
		age = max(0, time.Since(b.Oldest).Seconds())
	}
	gauge(pendingDesc, float64(b.Waiting+b.Retry+b.Blocked), err)
	gauge(deadDesc, float64(b.Parked), err)
	gauge(oldestDesc, age, err)
	stats := g.relay.Stats()
	gauge(leaseDesc, float64(stats.Taken)-float64(stats.Lost), nil)
}

// count counts the intents in a state that is left again soon, so that they are
// few.
func (g gauges) count(ctx context.Context, state reprise.State) (int, error) {
	f := store.EntryFilter{State: state, Limit: maxLimit}
	for n := 0; ; {
		found, err := g.ledger.Entries(ctx, f)
		if err != nil {
			return 0, err
		}
		n += len(found)
		if len(found) < maxLimit {
			return n, nil
		}
		f.After = found[len(found)-1].ID
	}
}
