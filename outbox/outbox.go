// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"mime"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

// ErrInvalid is matched by the error of Enqueue when a message can't be taken:
// the transaction is untouched and may go on.
var ErrInvalid = errors.New("outbox: invalid message")

// Limits of a message that are the same everywhere, in bytes: what every
// database can index and every broker can carry.
const (
	maxAttribute = 255
	maxHeaders   = 64
)

// Config holds the options of an Outbox.
type Config struct {
	// Source names this system, such as "/shop", and is given to messages that have
	// none of their own. It is required, and at most 255 bytes.
	Source string
	// MaxMessage is the largest message in bytes, attributes and headers counted
	// in. It should be what the smallest destination takes: a message that only
	// the broker refuses is found after the commit, when it can't be undone.
	// Defaults to 256 KiB.
	MaxMessage int
}

// Outbox adds messages to transactions. It is safe for concurrent use.
type Outbox[TTx any] struct {
	driver store.Outbox[TTx]
	config Config
}

// New returns an outbox on d. c must name the source; the error says what is
// wrong.
func New[TTx any](d store.Outbox[TTx], c *Config) (*Outbox[TTx], error) {
	o := &Outbox[TTx]{driver: d}
	if c != nil {
		o.config = *c
	}
	switch {
	case d == nil:
		return nil, errors.New("outbox: the store is nil")
	case o.config.Source == "":
		return nil, errors.New("outbox: Config.Source is empty; name this system, such as \"/shop\"")
	case o.config.MaxMessage < 0:
		return nil, fmt.Errorf("outbox: Config.MaxMessage is %d; give a positive number of bytes, or 0 for 256 KiB", o.config.MaxMessage)
	case o.config.MaxMessage == 0:
		o.config.MaxMessage = 256 << 10
	}
	if err := checkAttribute("source", o.config.Source); err != nil {
		return nil, fmt.Errorf("outbox: Config.Source: %w", err)
	}
	return o, nil
}

// Enqueue adds messages to tx, in this order. They are delivered if tx commits,
// and never otherwise.
//
// ID, Source, Time and ContentType are filled in where they are empty, and Data
// and Header are copied, so that the caller may reuse them (rule O2). All
// messages are checked before any of them is added; the error matches ErrInvalid
// and says which message is wrong and what to do. A message under the source and
// id of one that is still in the outbox fails its transaction, with
// store.ErrDuplicateMessage: here, or instead of its commit.
func (o *Outbox[TTx]) Enqueue(ctx context.Context, tx TTx, messages ...reprise.Message) error {
	if len(messages) == 0 {
		return nil
	}
	complete := make([]reprise.Message, len(messages))
	for i, m := range messages {
		o.complete(&m)
		if err := o.check(m); err != nil {
			return fmt.Errorf("%w: message %d of %d (type %q): %w", ErrInvalid, i+1, len(messages), m.Type, err)
		}
		m.Data = slices.Clone(m.Data)
		m.Header = maps.Clone(m.Header)
		complete[i] = m
	}
	return o.driver.Enqueue(ctx, tx, complete...)
}

// complete fills in what m leaves open. Time is cut to microseconds, which is
// what databases keep, so that a message reads the same before and after.
func (o *Outbox[TTx]) complete(m *reprise.Message) {
	if m.ID == "" {
		m.ID = string(reprise.NewKey())
	}
	if m.Source == "" {
		m.Source = o.config.Source
	}
	if m.Time.IsZero() {
		m.Time = time.Now()
	}
	m.Time = m.Time.UTC().Truncate(time.Microsecond)
	if m.ContentType == "" {
		m.ContentType = "application/json"
	}
}

// check reports the first thing that would keep m from being delivered, while
// its transaction can still be given up.
func (o *Outbox[TTx]) check(m reprise.Message) error {
	switch {
	case m.Type == "":
		return errors.New("it has no type; say what happened, such as \"order.created\"")
	case m.Time.Year() < 1 || m.Time.Year() > 9999:
		return fmt.Errorf("its time is in the year %d, which no consumer can read", m.Time.Year())
	}
	for _, a := range []struct{ name, value string }{
		{"id", m.ID}, {"source", m.Source}, {"type", m.Type}, {"subject", m.Subject}, {"content type", m.ContentType},
	} {
		if err := checkAttribute(a.name, a.value); err != nil {
			return err
		}
	}
	if err := reprise.Key(m.ID).Validate(); err != nil {
		return fmt.Errorf("its id is not printable ASCII: %w", err)
	}
	if _, _, err := mime.ParseMediaType(m.ContentType); err != nil {
		return fmt.Errorf("its content type %q is not a media type: %w", m.ContentType, err)
	}
	if err := checkHeader(m.Header); err != nil {
		return err
	}
	if n := size(m); n > o.config.MaxMessage {
		return fmt.Errorf("it has %d bytes and the limit is %d; keep the content elsewhere and send a reference to it",
			n, o.config.MaxMessage)
	}
	return nil
}

func checkAttribute(name, value string) error {
	if len(value) > maxAttribute {
		return fmt.Errorf("its %s has %d bytes; the limit is %d", name, len(value), maxAttribute)
	}
	if !printable(value) {
		return fmt.Errorf("its %s holds control characters or is not valid UTF-8", name)
	}
	return nil
}

// attributes are the names that the envelope itself uses (CloudEvents 1.0
// section 3). A header of such a name would replace the attribute in a broker
// that carries both as headers.
var attributes = []string{
	"id", "source", "type", "subject", "time", "specversion", "datacontenttype", "dataschema", "data", "data_base64",
	"content-type",
}

// checkHeader checks names against RFC 9110 section 5.1 (token), the narrowest
// form among the carriers, and refuses two names that differ in case alone:
// carriers do not keep them apart.
func checkHeader(header map[string]string) error {
	if len(header) > maxHeaders {
		return fmt.Errorf("it has %d headers; the limit is %d", len(header), maxHeaders)
	}
	seen := make(map[string]string, len(header))
	for name, value := range header {
		lower := strings.ToLower(name)
		switch {
		case !token(name):
			return fmt.Errorf("its header name %q is not a token; use letters, digits and hyphens", name)
		case len(name) > maxAttribute:
			return fmt.Errorf("its header name %.20q... has %d bytes; the limit is %d", name, len(name), maxAttribute)
		case slices.Contains(attributes, lower):
			return fmt.Errorf("its header %q has the name of an attribute; set the field of the message", name)
		case seen[lower] != "":
			return fmt.Errorf("its headers %q and %q differ in case alone", seen[lower], name)
		case !printable(value):
			return fmt.Errorf("its header %q holds control characters or is not valid UTF-8", name)
		}
		seen[lower] = name
	}
	return nil
}

func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// size is what m weighs on a carrier, without the carrier's own framing.
func size(m reprise.Message) int {
	n := len(m.ID) + len(m.Source) + len(m.Type) + len(m.Subject) + len(m.ContentType) + len(m.Data)
	for name, value := range m.Header {
		n += len(name) + len(value)
	}
	return n
}
