// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Config is what a ledger promises. The zero value of every field is replaced
// by its default; New refuses a combination that can't be kept. Under ledgerhttp,
// Retention, Tombstone and Wait of the operation's contract, which contract.New
// fills in, always win over those here.
type Config struct {
	// Retention is how long a result is kept and replayed, from completion.
	// Defaults to 24 hours.
	Retention time.Duration
	// Tombstone is how long a key is refused, also from completion (rule L9).
	// It must not be shorter than Retention. Lengthening it is not retroactive: a
	// key that was forgotten under a shorter one is not refused under the longer
	// one, so wait for as long as the old one was before clients rely on the new.
	// Defaults to 30 days, or to Retention if that is longer.
	Tombstone time.Duration
	// ClientDeadline is how long a client may go on trying one intent. A key that
	// is forgotten while its client still tries would be executed again, so
	// Tombstone must be at least ClientDeadline + KeyFuture.
	// Defaults to 0: not known, and not checked.
	ClientDeadline time.Duration
	// Wait is how long a repeat waits for an attempt in progress before it is
	// answered with CodeInProgress (rule L11).
	// Defaults to 2 seconds.
	Wait time.Duration
	// WorkTimeout bounds one execution, re-runs included, from the claim on. It
	// replaces the client's own cancellation, which no longer counts (rule L13).
	// Defaults to 30 seconds.
	WorkTimeout time.Duration
	// Lease is how long a staged run is left alone after a sign of life from its
	// process. It is renewed every third of it. At least 10 milliseconds.
	// Defaults to 30 seconds.
	Lease time.Duration
	// MaxBody is the largest result body that is stored, in bytes. A larger one
	// is answered in full, once; its repeats get CodeKeyExpired with the result's
	// reference, and are never executed (rule L8).
	// Defaults to 1 MiB.
	MaxBody int
	// MaxReruns is how often a transaction that the database ended is run again
	// before the attempt is given up as CodeStoreUnavailable.
	// Defaults to 10.
	MaxReruns int
	// KeyFuture is how far ahead of Now a UUIDv7 key may be minted (rule K8).
	// Defaults to 5 minutes.
	KeyFuture time.Duration
	// CacheFor is how long this process answers repeats of a completed intent from
	// its memory, without asking the store. For as long as that a result is still
	// answered after it was erased in the database by other means, or lost with a
	// server whose standby had not yet received it; never beyond its Retention. At most
	// a minute; a few seconds are enough for clients that hurry.
	// Defaults to 0: every repeat asks the store.
	CacheFor time.Duration
	// CacheEntries and CacheBytes bound what is kept for CacheFor: the oldest goes
	// first.
	// Default to 4096 and 16 MiB.
	CacheEntries, CacheBytes int
	// Headers are fields that belong to a result beside those of StoredHeaders
	// (rule L5). Fields that must never be replayed, such as Set-Cookie, are
	// refused.
	Headers []string
	// RecoverEvery is the pause between two passes of RunRecovery.
	// Defaults to 5 seconds.
	RecoverEvery time.Duration
	// PurgeEvery is the pause between two passes of RunPurge.
	// Defaults to 1 minute.
	PurgeEvery time.Duration
	// PurgeBatch is how many records one transaction of RunPurge changes.
	// Defaults to 500.
	PurgeBatch int
	// Logger receives events. Keys and bodies are never logged.
	// Defaults to slog.Default().
	Logger *slog.Logger
	// Now tells the age of UUIDv7 keys, and nothing else: everything that is
	// stored is dated by the database.
	// Defaults to time.Now.
	Now func() time.Time
}

const (
	defaultRetention = 24 * time.Hour
	defaultTombstone = 30 * 24 * time.Hour
	minLease         = 10 * time.Millisecond
	maxCacheFor      = time.Minute
	// maxLifetime keeps sums of durations far from their overflow.
	maxLifetime = 100 * 365 * 24 * time.Hour
)

// complete returns a copy of c in which nothing is left to default, or the first
// thing that is wrong with it.
func (c *Config) complete() (Config, error) {
	var d Config
	if c != nil {
		d = *c
	}
	for _, f := range []struct {
		name  string
		field *time.Duration
		value time.Duration
	}{
		{"Retention", &d.Retention, defaultRetention},
		{"Tombstone", &d.Tombstone, max(defaultTombstone, d.Retention)},
		{"ClientDeadline", &d.ClientDeadline, 0},
		{"Wait", &d.Wait, 2 * time.Second},
		{"WorkTimeout", &d.WorkTimeout, 30 * time.Second},
		{"Lease", &d.Lease, 30 * time.Second},
		{"KeyFuture", &d.KeyFuture, 5 * time.Minute},
		{"CacheFor", &d.CacheFor, 0},
		{"RecoverEvery", &d.RecoverEvery, 5 * time.Second},
		{"PurgeEvery", &d.PurgeEvery, time.Minute},
	} {
		if *f.field < 0 {
			return d, fmt.Errorf("ledger: Config.%s is %v; it must not be negative", f.name, *f.field)
		}
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	for _, f := range []struct {
		name  string
		field *int
		value int
	}{
		{"MaxBody", &d.MaxBody, 1 << 20},
		{"MaxReruns", &d.MaxReruns, 10},
		{"PurgeBatch", &d.PurgeBatch, 500},
		{"CacheEntries", &d.CacheEntries, 4096},
		{"CacheBytes", &d.CacheBytes, 16 << 20},
	} {
		if *f.field < 0 {
			return d, fmt.Errorf("ledger: Config.%s is %d; it must not be negative", f.name, *f.field)
		}
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	if d.Logger == nil {
		d.Logger = slog.Default()
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	return d, d.check()
}

// check reports a promise that can't be kept.
func (c *Config) check() error {
	if err := checkLifetimes(c.Retention, c.Tombstone); err != nil {
		return err
	}
	if err := c.checkDeadline(c.Tombstone); err != nil {
		return err
	}
	if c.Lease < minLease {
		return fmt.Errorf("ledger: Config.Lease is %v; at less than %v it lapses between two renewals", c.Lease, minLease)
	}
	if c.CacheFor > maxCacheFor {
		return fmt.Errorf("ledger: Config.CacheFor is %v; for more than %v a result would outlive what is done to it in the database", c.CacheFor, maxCacheFor)
	}
	for _, name := range c.Headers {
		if err := checkHeaderName(name); err != nil {
			return err
		}
	}
	return nil
}

// checkDeadline reports a tombstone that ends while clients still try.
func (c *Config) checkDeadline(tombstone time.Duration) error {
	if need := c.ClientDeadline + c.KeyFuture; c.ClientDeadline > 0 && tombstone < need {
		return fmt.Errorf("ledger: keys are forgotten after %v (Tombstone) while clients go on trying for %v (Config.ClientDeadline), "+
			"and a forgotten key is executed again; set Tombstone to at least %v, which allows for clocks that differ by KeyFuture",
			tombstone, c.ClientDeadline, need)
	}
	return nil
}

func checkLifetimes(retention, tombstone time.Duration) error {
	if tombstone < retention {
		return fmt.Errorf("ledger: the tombstone (%v) ends before the result it stands for (retention %v); "+
			"both count from completion, so Tombstone must be at least Retention", tombstone, retention)
	}
	if tombstone > maxLifetime {
		return fmt.Errorf("ledger: a tombstone of %v is longer than the longest, %v", tombstone, maxLifetime)
	}
	return nil
}

// Options are the promises of one operation where they differ from the
// ledger's. Zero fields take the ledger's value.
type Options struct {
	// Retention, Tombstone and Wait are those of Config.
	Retention, Tombstone, Wait time.Duration
	// Number is the client's count of this attempt, from 1; 0 when unknown. The
	// store may use it to choose its first statement, never to decide.
	Number int
}

// terms are Options with nothing left to default.
type terms Options

func (c *Config) terms(o Options) (terms, error) {
	if o.Retention < 0 || o.Tombstone < 0 || o.Wait < 0 {
		return terms{}, errors.New("ledger: a negative duration in Options")
	}
	if o.Retention == 0 {
		o.Retention = c.Retention
	}
	if o.Tombstone == 0 {
		o.Tombstone = max(c.Tombstone, o.Retention)
	}
	if o.Wait == 0 {
		o.Wait = c.Wait
	}
	if err := checkLifetimes(o.Retention, o.Tombstone); err != nil {
		return terms{}, err
	}
	return terms(o), c.checkDeadline(o.Tombstone)
}
