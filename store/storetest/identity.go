// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"strings"

	"github.com/reprise-go/reprise"
)

func identityRules[TTx any]() []rule[TTx] {
	return []rule[TTx]{
		{
			"K2_keys_are_compared_byte_by_byte",
			"Keys are compared byte by byte: case, spaces, prefixes and the last of 255 bytes count.",
			func(f *fixture[TTx]) { allDiffer(f, keysThatDiffer()) },
		},
		{
			"K3_triple_is_the_identity",
			"Caller, operation and key together name an intent: one key of another caller or operation is another intent.",
			func(f *fixture[TTx]) { allDiffer(f, triplesThatDiffer()) },
		},
		{
			"K3_parts_of_the_triple_do_not_run_into_each_other",
			"The parts of an identity are kept apart: (a:b, c) is not (a, b:c), whatever separates them.",
			func(f *fixture[TTx]) { allDiffer(f, separatorsThatDiffer()) },
		},
		{
			"K4_no_caller_finds_the_record_of_another",
			"A record is found under its own triple only, so that nobody learns that somebody else's key exists.",
			strangersFindNothing[TTx],
		},
	}
}

func keysThatDiffer() []reprise.Intent {
	long := strings.Repeat("k", reprise.MaxKeyLen-1)
	keys := []reprise.Key{
		"abc", "ABC", "Abc", "abc ", " abc", "abc  ", "ab", "a", "abcd", "abc\"", `abc\`, "abc'", "abc%", "ab_", "a c",
		"0", "00", "0.0", "1", "1.0", "1e0", "null", "~", "-",
		reprise.Key(long + "x"), reprise.Key(long + "y"), reprise.Key(long),
		// Two UUIDv7 of one millisecond, and the first in the other case.
		"019add1c-8e00-7abc-8def-0123456789ab", "019add1c-8e00-7abc-8def-0123456789ac", "019ADD1C-8E00-7ABC-8DEF-0123456789AB",
		"00000000-0000-0000-0000-000000000000",
	}
	all := make([]reprise.Intent, len(keys))
	for i, k := range keys {
		all[i] = intent(k)
	}
	return all
}

func triplesThatDiffer() (all []reprise.Intent) {
	for _, caller := range []reprise.Caller{"alice", "Alice", "alice ", "bob", "straße", "strasse", "caf\u00e9", "cafe\u0301", "cafe"} {
		for _, op := range []reprise.Operation{"create-order", "create-Order", "create-order "} {
			for _, key := range []reprise.Key{"k-1", "k-2"} {
				all = append(all, reprise.Intent{Caller: caller, Operation: op, Key: key, Fingerprint: fingerprint(1)})
			}
		}
	}
	return all
}

func separatorsThatDiffer() (all []reprise.Intent) {
	for _, sep := range []string{":", "/", "|", " ", "\t", "\x1f", ","} {
		key := sep
		if sep < " " {
			key = "" // Not printable, so a key can't hold it.
		}
		all = append(all,
			reprise.Intent{Caller: reprise.Caller("a" + sep + "b"), Operation: "c", Key: reprise.Key("d" + key)},
			reprise.Intent{Caller: "a", Operation: reprise.Operation("b" + sep + "c"), Key: reprise.Key("d" + key)},
			reprise.Intent{Caller: reprise.Caller("a" + sep + "b" + sep + "c"), Operation: "d", Key: reprise.Key("e" + key)},
			reprise.Intent{Caller: "a", Operation: reprise.Operation("b" + sep), Key: reprise.Key("c" + key + "d")},
			reprise.Intent{Caller: reprise.Caller("a" + sep), Operation: "b", Key: reprise.Key(key + "c" + key + "d")},
		)
	}
	for i := range all {
		all[i].Fingerprint = fingerprint(byte(i))
	}
	return all
}

// allDiffer executes intents that differ in little. Each must execute, and each
// must then be answered with its own record.
func allDiffer[TTx any](f *fixture[TTx], all []reprise.Intent) {
	other, _ := f.open()
	for _, in := range all {
		e, executed, err := f.execute(f.d, in)
		switch {
		case err != nil:
			f.Fatalf("executing (%q, %q, %q): %v", in.Caller, in.Operation, in.Key, err)
		case !executed:
			f.Errorf("(%q, %q, %q) was answered with the record of (%q, %q, %q)",
				in.Caller, in.Operation, in.Key, e.Intent.Caller, e.Intent.Operation, e.Intent.Key)
		}
		if e.Intent != in {
			f.Errorf("the record of (%q, %q, %q) is kept as (%q, %q, %q)",
				in.Caller, in.Operation, in.Key, e.Intent.Caller, e.Intent.Operation, e.Intent.Key)
		}
	}
	seen := map[string]reprise.Intent{}
	for _, in := range all {
		e := f.mustReplay(other, in)
		if e.Intent != in {
			f.Errorf("(%q, %q, %q) is answered with the record of (%q, %q, %q)",
				in.Caller, in.Operation, in.Key, e.Intent.Caller, e.Intent.Operation, e.Intent.Key)
		}
		if twin, ok := seen[string(e.Result.Body)]; ok {
			f.Errorf("%q and %q have one result", twin.Key, in.Key)
		}
		seen[string(e.Result.Body)] = in
		f.wantEffects(effectOf(in), 1)
	}
}

func strangersFindNothing[TTx any](f *fixture[TTx]) {
	mine := intent("k-1")
	f.mustExecute(f.d, mine)
	run := intent("k-2")
	f.mustBegin(f.d, run, nil)
	for _, known := range []reprise.Intent{mine, run} {
		for _, change := range []func(*reprise.Intent){
			func(in *reprise.Intent) { in.Caller = "mallory" },
			func(in *reprise.Intent) { in.Caller = "ALICE" },
			func(in *reprise.Intent) { in.Operation = "pay-order" },
			func(in *reprise.Intent) { in.Key += " " },
			func(in *reprise.Intent) { in.Key = "K" + in.Key[1:] },
		} {
			stranger := known
			change(&stranger)
			f.wantAbsent(f.d, stranger)
		}
		f.mustFind(f.d, known)
	}
}
