// SPDX-License-Identifier: Apache-2.0

package outbox_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise"
)

// recorder is a sink that notes every delivery it is asked for, and does what
// its test says.
type recorder struct {
	// answer decides about a delivery; nil confirms all of them. n counts the
	// deliveries of this message, from 1.
	answer func(ctx context.Context, m reprise.Message, n int) error

	mu        sync.Mutex
	tries     []try
	counts    map[string]int
	confirmed []string // ids, in the order of confirmation
	underWay  map[string]int
	width     int      // the most deliveries under way at once
	overlaps  []string // subjects that had two under way
}

type try struct {
	id string
	at time.Time
}

func (s *recorder) Deliver(ctx context.Context, m reprise.Message) error {
	n := s.begin(m)
	defer s.end(m)
	if s.answer != nil {
		if err := s.answer(ctx, m, n); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.confirmed = append(s.confirmed, m.ID)
	return nil
}

func (s *recorder) begin(m reprise.Message) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts == nil {
		s.counts, s.underWay = make(map[string]int), make(map[string]int)
	}
	s.tries = append(s.tries, try{m.ID, time.Now()})
	s.counts[m.ID]++
	s.underWay[m.Subject]++
	if m.Subject != "" && s.underWay[m.Subject] > 1 {
		s.overlaps = append(s.overlaps, m.Subject)
	}
	width := 0
	for _, n := range s.underWay {
		width += n
	}
	s.width = max(s.width, width)
	return s.counts[m.ID]
}

func (s *recorder) end(m reprise.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.underWay[m.Subject]--
}

// count returns how often delivery of the message was tried.
func (s *recorder) count(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[id]
}

// times returns when delivery of the message was tried.
func (s *recorder) times(id string) (at []time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tries {
		if t.id == id {
			at = append(at, t.at)
		}
	}
	return at
}

// tally returns how often delivery of each message was tried.
func (s *recorder) tally() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.counts)
}

// tried returns how many deliveries there were.
func (s *recorder) tried() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tries)
}

// widest returns the most deliveries that were under way at once since it was
// called last.
func (s *recorder) widest() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	width := s.width
	s.width = 0
	return width
}

// overlapped returns the subjects that had two deliveries under way at once.
func (s *recorder) overlapped() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.overlaps)
}

// done returns the confirmed messages in the order of their confirmation.
func (s *recorder) done() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.confirmed)
}

// msg is a message of a subject; ids are unique by their number.
func msg(subject string, n int) reprise.Message {
	return reprise.Message{
		ID: fmt.Sprintf("%s%d", subject, n), Source: "/test", Type: "test.made", Subject: subject,
		Time: time.Now(), ContentType: "application/json", Data: []byte("{}"),
	}
}

// msgs are n messages of a subject, numbered from 1.
func msgs(subject string, n int) (all []reprise.Message) {
	for i := range n {
		all = append(all, msg(subject, i+1))
	}
	return all
}

// loose are n messages without a subject.
func loose(n int) []reprise.Message {
	all := msgs("loose", n)
	for i := range all {
		all[i].Subject = ""
	}
	return all
}

func ids(messages []reprise.Message) (all []string) {
	for _, m := range messages {
		all = append(all, m.ID)
	}
	return all
}
