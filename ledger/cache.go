// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"sync"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

// cache holds completed records for a moment, so that a key which is repeated in a
// hurry costs the store nothing. A completed record never changes before its body
// goes, so what is in here is what the store would say; what it can't see is that
// a record was taken away there, which is why the moment is short.
type cache struct {
	// ttl is how long a record stays; 0 switches the cache off. margin is how far
	// before the end of its retention it goes, because the clocks of this process
	// and of the database may differ.
	ttl, margin time.Duration
	// maxEntries and maxBytes bound it.
	maxEntries, maxBytes int
	// now is the clock of the retention, and clock that of the ttl.
	now, clock func() time.Time

	mu      sync.Mutex
	entries map[flightKey]*cached
	// queue holds the entries in the order in which they came, which is the order in
	// which they go. One that was replaced is no longer the one in entries.
	queue []*cached
	bytes int
}

// cached is one record.
type cached struct {
	key   flightKey
	entry store.Entry
	size  int
	until time.Time
}

func newCache(c Config) *cache {
	return &cache{
		ttl: c.CacheFor, margin: c.KeyFuture, maxEntries: c.CacheEntries, maxBytes: c.CacheBytes,
		now: c.Now, clock: time.Now, entries: make(map[flightKey]*cached),
	}
}

func keyOf(in reprise.Intent) flightKey { return flightKey{in.Caller, in.Operation, in.Key} }

// get returns the record of an intent, with a result that is the caller's own.
func (c *cache) get(in reprise.Intent) (store.Entry, bool) {
	if c.ttl == 0 {
		return store.Entry{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire()
	known := c.entries[keyOf(in)]
	if known == nil || c.over(known.entry) {
		return store.Entry{}, false
	}
	e := known.entry
	e.Result = copyResult(e.Result)
	return e, true
}

// over says that the retention of a record has ended, or may have.
func (c *cache) over(e store.Entry) bool { return !c.now().Add(c.margin).Before(e.ExpiresAt) }

// put keeps a record that the store has just returned, if it is one that nothing
// but its expiry will change.
func (c *cache) put(e store.Entry) {
	if c.ttl == 0 || e.State != reprise.StateCompleted || c.over(e) {
		return
	}
	size := sizeOf(e)
	if size > c.maxBytes {
		return
	}
	e.Input = nil
	e.Result = copyResult(e.Result)
	c.mu.Lock()
	defer c.mu.Unlock()
	k := &cached{key: keyOf(e.Intent), entry: e, size: size, until: c.clock().Add(c.ttl)}
	c.entries[k.key] = k
	c.queue = append(c.queue, k)
	c.bytes += size
	c.expire()
	for len(c.queue) > c.maxEntries || c.bytes > c.maxBytes {
		c.drop()
	}
}

// expire drops what has been here for long enough. c.mu is held.
func (c *cache) expire() {
	for now := c.clock(); len(c.queue) > 0 && !now.Before(c.queue[0].until); {
		c.drop()
	}
}

// drop forgets the oldest. c.mu is held.
func (c *cache) drop() {
	k := c.queue[0]
	c.queue[0] = nil
	c.queue = c.queue[1:]
	c.bytes -= k.size
	if c.entries[k.key] == k {
		delete(c.entries, k.key)
	}
}

// overhead is about what a record takes beside its texts.
const overhead = 512

func sizeOf(e store.Entry) int {
	n := overhead + len(e.Intent.Caller) + len(e.Intent.Operation) + len(e.Intent.Key) + len(e.Result.Body) + len(e.Result.Reference)
	for name, values := range e.Result.Header {
		n += len(name)
		for _, v := range values {
			n += len(v)
		}
	}
	return n
}
