// SPDX-License-Identifier: Apache-2.0

package reprise

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
)

// Caller is who asks: the tenant or principal that authentication established.
// It is never taken from a field of the request, because a caller who can name
// another one can read that one's results (rule K4).
type Caller string

// Unscoped is the caller of a service that has only one. It must be spelled
// out; an empty Caller is refused.
const Unscoped Caller = "unscoped"

// Operation is the declared name of an endpoint, such as "create-order". One
// key used on two operations names two intents (rule K3).
type Operation string

// FingerprintVersion is the version of fingerprints made today (rule F1).
const FingerprintVersion = 1

// Fingerprint says what was asked, in 33 bytes: a version and a SHA-256 digest.
// Two requests with the same key must have the same fingerprint, compared under
// the version that was stored. The zero value is no fingerprint.
type Fingerprint [1 + sha256.Size]byte

// Version is the version of the algorithm that made f; 0 means none.
func (f Fingerprint) Version() int { return int(f[0]) }

// String returns f in hexadecimal.
func (f Fingerprint) String() string { return hex.EncodeToString(f[:]) }

// Intent is one thing that one caller wants done once: the unit that the ledger
// recognises. The triple (Caller, Operation, Key) is its identity; the
// fingerprint says what it asked for.
type Intent struct {
	Caller      Caller
	Operation   Operation
	Key         Key
	Fingerprint Fingerprint
}

// Validate reports the first thing that keeps i from being an intent.
func (i Intent) Validate() error {
	switch {
	case i.Caller == "":
		return errors.New("reprise: the intent has no caller; say reprise.Unscoped if there is only one")
	case i.Operation == "":
		return errors.New("reprise: the intent has no operation")
	case i.Fingerprint.Version() == 0:
		return errors.New("reprise: the intent has no fingerprint")
	}
	if err := i.Key.Validate(); err != nil {
		return fmt.Errorf("reprise: intent of operation %q: %w", i.Operation, err)
	}
	return nil
}

// Derive returns the key under which one named step of this intent calls
// another system. It depends on caller, operation, key and step alone, so it is
// the same after a rollback, a re-run, a crash, and even a purge (rule K6).
// It has the form of a UUIDv8 (RFC 9562 section 5.8).
func (i Intent) Derive(step string) Key {
	sum := i.digest(step)
	return Key(formatUUID([16]byte(sum[:16]), 8))
}

// IntentID is the 16-byte primary key of an intent in a store. It is computed
// from the triple alone; the triple itself is stored beside it and compared on
// every hit, so that a collision can never answer for somebody else.
type IntentID [16]byte

// ID returns the identity of the intent. When the key is a UUIDv7, the first
// six bytes are its time, so that new rows land together in an index: random
// keys cost several times the write-ahead log in a large table.
func (i Intent) ID() IntentID {
	sum := i.digest()
	id := IntentID(sum[:16])
	if t, ok := i.Key.MintedAt(); ok {
		var ms [8]byte
		binary.BigEndian.PutUint64(ms[:], uint64(t.UnixMilli())<<16)
		copy(id[:6], ms[:6])
	}
	return id
}

// String returns the id in hexadecimal.
func (id IntentID) String() string { return hex.EncodeToString(id[:]) }

// digest hashes the triple and then parts, each with its length before it, so
// that ("a:b", "c") and ("a", "b:c") can't be confused.
func (i Intent) digest(parts ...string) [sha256.Size]byte {
	b := make([]byte, 0, 256) // Usually enough, and then on the stack.
	b = appendText(b, string(i.Caller))
	b = appendText(b, string(i.Operation))
	b = appendText(b, string(i.Key))
	for _, p := range parts {
		b = appendText(b, p)
	}
	return sha256.Sum256(b)
}

func appendText(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(len(s)))
	return append(b, s...)
}
