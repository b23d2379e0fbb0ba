// SPDX-License-Identifier: Apache-2.0

package reprise

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"
)

// MaxKeyLen is the longest key, in bytes (rule K1).
const MaxKeyLen = 255

// Key is the name of one intent: one business operation that its caller wants
// to happen once. It is chosen before the first byte is sent, reused by every
// attempt, and never derived from the request's parameters, because two equal
// requests may be two purchases (rules K1 to K5).
//
// Keys are compared byte by byte; case counts.
type Key string

// NewKey returns a key for a new intent: a UUIDv7 (RFC 9562 section 5.7), 48
// bits of Unix milliseconds and 74 random bits. The time in it lets a server
// refuse a key that is older than its memory instead of running it again
// (rule L9). Safe for concurrent use.
func NewKey() Key { return newKeyAt(time.Now()) }

func newKeyAt(now time.Time) Key {
	var u [16]byte
	binary.BigEndian.PutUint64(u[:8], uint64(now.UnixMilli())<<16)
	// crypto/rand.Read never fails: it ends the process instead (Go 1.24).
	_, _ = rand.Read(u[6:])
	return Key(formatUUID(u, 7))
}

// Validate reports whether k is a key: 1 to MaxKeyLen bytes, all of them
// printable ASCII from ' ' to '~', which is what an RFC 9651 string can hold.
// The error is an *Error with CodeKeyMissing or CodeKeyInvalid.
func (k Key) Validate() error {
	if k == "" {
		return &Error{
			Code: CodeKeyMissing, Outcome: NotProcessed,
			Detail: "an idempotency key has at least one byte; make one with reprise.NewKey",
		}
	}
	if len(k) > MaxKeyLen {
		return invalidKey(fmt.Sprintf("the key has %d bytes; the limit is %d", len(k), MaxKeyLen))
	}
	for i := range len(k) {
		if k[i] < ' ' || k[i] > '~' {
			return invalidKey(fmt.Sprintf("byte %d of the key is not printable ASCII", i+1))
		}
	}
	return nil
}

func invalidKey(detail string) error {
	return &Error{Code: CodeKeyInvalid, Outcome: NotProcessed, Detail: detail}
}

// MintedAt returns the time inside a UUIDv7 key, in either case, to the
// millisecond. ok is false for every other key: those have no age.
func (k Key) MintedAt() (t time.Time, ok bool) {
	u, ok := parseUUID(string(k))
	if !ok || u[6]>>4 != 7 || u[8]>>6 != 0b10 {
		return time.Time{}, false
	}
	ms := int64(binary.BigEndian.Uint64(u[:8]) >> 16)
	return time.UnixMilli(ms).UTC(), true
}

// formatUUID writes u in the 8-4-4-4-12 form after setting version and variant.
func formatUUID(u [16]byte, version byte) string {
	u[6] = u[6]&0x0f | version<<4
	u[8] = u[8]&0x3f | 0x80
	var b [36]byte
	hex.Encode(b[0:8], u[0:4])
	hex.Encode(b[9:13], u[4:6])
	hex.Encode(b[14:18], u[6:8])
	hex.Encode(b[19:23], u[8:10])
	hex.Encode(b[24:36], u[10:16])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

// parseUUID reads the 8-4-4-4-12 form, in either case.
func parseUUID(s string) (u [16]byte, ok bool) {
	if len(s) != 36 {
		return u, false
	}
	n := 0
	for i := 0; i < len(s); {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if s[i] != '-' {
				return u, false
			}
			i++
			continue
		}
		hi, ok1 := hexDigit(s[i])
		lo, ok2 := hexDigit(s[i+1])
		if !ok1 || !ok2 {
			return u, false
		}
		u[n] = hi<<4 | lo
		n++
		i += 2
	}
	return u, true
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}
