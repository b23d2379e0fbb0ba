// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

func recordRules[TTx any]() []rule[TTx] {
	return []rule[TTx]{
		{
			"L4_replay_is_byte_equal",
			"A repeat gets the original result byte for byte: status, every value of every header, body and reference.",
			replayIsEqual[TTx],
		},
		{
			"L4_completed_run_replays_byte_equal",
			"The result that ends a staged run is kept byte for byte, like that of an atomic execution.",
			runReplayIsEqual[TTx],
		},
		{
			"L4_answers_share_no_memory",
			"An answer belongs to who asked: changing it, or the result that work returned, changes no later answer.",
			answersShareNothing[TTx],
		},
		{
			"L6_duplicate_with_other_content_leaves_the_record_alone",
			"An attempt with another fingerprint gets the record that is there; it is not executed and changes nothing of it.",
			mismatchChangesNothing[TTx],
		},
		{
			"L2_record_survives_the_process",
			"A record is on disk when it is answered: the process may end at once.",
			recordSurvives[TTx],
		},
		{
			"L2_entries_list_every_record_in_order",
			"Entries lists each record once, in the order of ids, page by page, by state as of now, without bodies.",
			entriesList[TTx],
		},
	}
}

// results are what a record must be able to hold.
func results() map[string]reprise.Result {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	all := map[string]reprise.Result{
		"nil body":      {Status: 204},
		"empty body":    {Status: 200, Body: []byte{}, Header: map[string][]string{}},
		"NUL bytes":     {Status: 201, Body: []byte("a\x00b\x00")},
		"only NUL":      {Status: 201, Body: []byte{0}},
		"invalid UTF-8": {Status: 201, Body: []byte("\xff\xfe\xc3\x28\x80")},
		"every byte":    {Status: 201, Body: every},
		"JSON as it is": {Status: 200, Body: []byte("{ \"b\":1.0,\r\n\"a\":9007199254740993 ,\"a\":null}\n")},
		"null":          {Status: 200, Body: []byte("null")},
		"1 MiB":         {Status: 200, Body: bytes.Repeat([]byte("0123456789abcde\n"), 1<<16)},
		"headers": {Status: 402, Reference: "/orders/ör d?q=%20'\"", Body: []byte("no"), Header: map[string][]string{
			"Content-Type": {"application/problem+json; charset=utf-8"},
			"Link":         {"</a>; rel=next", "</b>; rel=prev", "</a>; rel=next"},
			"Etag":         {`"v\1"`},
			"X-Empty":      {""},
			"X-Blank":      {" ", "", "\t"},
			"X-Bytes":      {"caf\xe9 \x80\xff"},
			"X-Text":       {"€ ☃ \u2028"},
			"X-Long":       {strings.Repeat("h", 8<<10)},
		}},
	}
	for _, status := range []int{200, 201, 202, 204, 303, 400, 402, 404, 409, 410, 422, 499} {
		all[fmt.Sprintf("status %d", status)] = reprise.Result{Status: status, Body: []byte("x")}
	}
	return all
}

func replayIsEqual[TTx any](f *fixture[TTx]) {
	second, _ := f.open()
	for name, want := range results() {
		in := intent(reprise.Key(name))
		e := f.mustExecute(f.d, in, func(c *store.Completion) { c.Result = want })
		f.wantResult(name+", as executed", want, e.Result)
		f.wantResult(name+", found", want, f.mustFind(f.d, in).Result)
		f.wantResult(name+", repeated", want, f.mustReplay(f.d, in).Result)
		f.wantResult(name+", repeated in another process", want, f.mustReplay(second, in).Result)
	}
}

func runReplayIsEqual[TTx any](f *fixture[TTx]) {
	second, _ := f.open()
	for name, want := range results() {
		in := intent(reprise.Key(name))
		e := f.mustBegin(f.d, in, nil)
		f.mustPhase(f.d, own(e), store.PhaseWrites{
			Complete: &store.Completion{Result: want, Retention: retention, Tombstone: tombstone},
		})
		f.wantResult(name+", found", want, f.mustFind(second, in).Result)
		f.wantResult(name+", repeated", want, f.mustReplay(f.d, in).Result)
	}
}

func answersShareNothing[TTx any](f *fixture[TTx]) {
	in := intent("k-1")
	var given reprise.Result
	e := f.mustExecute(f.d, in, func(c *store.Completion) { given = c.Result })
	want := given
	want.Body = bytes.Clone(given.Body)
	want.Header = map[string][]string{}
	for name, values := range given.Header {
		want.Header[name] = slices.Clone(values)
	}
	spoil := func(r reprise.Result) {
		for i := range r.Body {
			r.Body[i] = '!'
		}
		for _, values := range r.Header {
			values[0] = "spoiled"
		}
		delete(r.Header, "Location")
	}
	spoil(given)
	f.wantResult("after the handler changed its result", want, f.mustFind(f.d, in).Result)
	spoil(e.Result)
	f.wantResult("after the executed answer was changed", want, f.mustReplay(f.d, in).Result)
	spoil(f.mustReplay(f.d, in).Result)
	f.wantResult("after a repeated answer was changed", want, f.mustReplay(f.d, in).Result)
	spoil(f.mustFind(f.d, in).Result)
	f.wantResult("after a found answer was changed", want, f.mustFind(f.d, in).Result)
}

func mismatchChangesNothing[TTx any](f *fixture[TTx]) {
	second, _ := f.open()
	in := intent("k-1")
	before := f.mustExecute(f.d, in)
	for _, d := range []store.Driver[TTx]{f.d, second} {
		f.wantSame("the answer to other content", before, f.mustReplay(d, other(in)))
		f.wantSame("the record after other content", before, f.mustFind(d, in))
		f.wantSame("found by other content", before, f.mustFind(d, other(in)))
	}
	if _, owned, err := f.d.Begin(f.ctx, claim(other(in)), []byte("other"), lease); err != nil || owned {
		f.Errorf("a staged run with other content: owned %t, error %v", owned, err)
	}
	f.wantSame("the record after a staged run with other content", before, f.mustFind(f.d, in))

	run := intent("k-2")
	before = f.mustBegin(f.d, run, []byte("input"))
	f.wantSame("a run in progress asked for with other content", before, f.mustReplay(second, other(run)))
	f.wantSame("a run in progress after other content", before, f.mustFind(second, run))

	gone := intent("k-3")
	f.mustExecute(f.d, gone)
	f.age(retention + time.Hour)
	before = f.mustFind(f.d, gone)
	f.wantSame("a tombstone asked for with other content", before, f.mustReplay(second, other(gone)))
	if e := f.mustFind(f.d, gone); e.Intent != gone {
		f.Errorf("the tombstone's fingerprint is %s after other content, want %s", e.Intent.Fingerprint, gone.Fingerprint)
	}
}

func recordSurvives[TTx any](f *fixture[TTx]) {
	d, stop := f.open()
	in, run := intent("k-1"), intent("k-2")
	before := f.mustExecute(d, in)
	begun := f.mustBegin(d, run, []byte("in\x00put\xff"))
	stop()
	next, _ := f.open()
	f.wantSame("the record after a restart", before, f.mustReplay(next, in))
	f.wantSame("the run after a restart", begun, f.mustFind(next, run))
	f.wantEffects(effectOf(in), 1)
}

func entriesList[TTx any](f *fixture[TTx]) {
	const completed, staged = 23, 7
	want := map[reprise.IntentID]reprise.State{}
	for n := range completed {
		key := reprise.Key(fmt.Sprintf("k-%d", n))
		if n%2 == 0 {
			key = reprise.NewKey()
		}
		in := intent(key)
		f.mustExecute(f.d, in, func(c *store.Completion) {
			if n%3 == 0 {
				c.Retention = time.Hour
			}
		})
		want[in.ID()] = reprise.StateCompleted
		if n%3 == 0 {
			want[in.ID()] = reprise.StateTombstone
		}
	}
	for n := range staged {
		in := intent(reprise.Key(fmt.Sprintf("r-%d", n)))
		f.mustBegin(f.d, in, []byte("input"))
		want[in.ID()] = reprise.StateInProgress
	}
	f.mustExecute(f.d, intent("forgotten"), func(c *store.Completion) { c.Retention, c.Tombstone = time.Hour, time.Hour })
	f.age(2 * time.Hour)

	f.wantEntries(want, store.EntryFilter{})
	for _, limit := range []int{1, 4, completed + staged, 1000} {
		f.wantEntries(want, store.EntryFilter{Limit: limit})
	}
	for _, state := range []reprise.State{reprise.StateCompleted, reprise.StateTombstone, reprise.StateInProgress, reprise.StateUnsettled} {
		some := map[reprise.IntentID]reprise.State{}
		for id, s := range want {
			if s == state {
				some[id] = s
			}
		}
		f.wantEntries(some, store.EntryFilter{State: state, Limit: 5})
	}
}

// wantEntries reads all pages of a listing.
func (f *fixture[TTx]) wantEntries(want map[reprise.IntentID]reprise.State, filter store.EntryFilter) {
	f.Helper()
	got, limit := 0, filter.Limit
	if limit == 0 {
		limit = 100
	}
	for {
		page, err := f.d.Entries(f.ctx, filter)
		if err != nil {
			f.Fatalf("entries %+v: %v", filter, err)
		}
		if len(page) > limit {
			f.Errorf("entries %+v: a page of %d", filter, len(page))
		}
		for _, e := range page {
			if bytes.Compare(e.ID[:], filter.After[:]) <= 0 {
				f.Errorf("entries %+v: %s is out of order", filter, e.ID)
			}
			filter.After = e.ID
			got++
			if state, ok := want[e.ID]; !ok || state != e.State || e.Intent.ID() != e.ID {
				f.Errorf("entries %+v: %q in state %q, want state %q", filter, e.Intent.Key, e.State, state)
			}
			if len(e.Result.Body)+len(e.Input)+len(e.Result.Header) != 0 {
				f.Errorf("entries %+v: %q carries its content", filter, e.Intent.Key)
			}
			if filter.Limit == 0 {
				whole := f.mustFind(f.d, e.Intent)
				whole.Input, whole.Result.Header, whole.Result.Body = nil, nil, nil
				f.wantSame("a listed record", whole, e)
			}
		}
		if len(page) < limit {
			break
		}
	}
	if got != len(want) {
		f.Errorf("entries %+v: %d records, want %d", filter, got, len(want))
	}
}
