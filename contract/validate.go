// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// What New fills in for operations that take a key and leave the field zero.
const (
	DefaultRetention = 24 * time.Hour
	DefaultTombstone = 30 * 24 * time.Hour
	DefaultWait      = 2 * time.Second
)

// NoWait is the Operation.Wait under which a repeat does not wait for an attempt in
// progress: it is answered 409 at once, and the document says 0 milliseconds. It
// has a value of its own because a Wait of zero is filled in.
const NoWait time.Duration = 1

// MaxNameLen is the longest name of an operation or an effect, in bytes.
const MaxNameLen = 64

// Pattern returns the pattern of the operation for http.ServeMux, such as
// "POST /orders/{id}/payments".
func (op Operation) Pattern() string { return op.Method + " " + op.Path }

func (op Operation) clone() Operation {
	op.Effects = slices.Clone(op.Effects)
	op.FingerprintHeaders = slices.Clone(op.FingerprintHeaders)
	op.Volatile = slices.Clone(op.Volatile)
	return op
}

// withDefaults returns a copy that spells out what its zero values mean. Safety
// has no default: it must be declared.
func (op Operation) withDefaults() Operation {
	op = op.clone()
	if op.Key == "" {
		op.Key = KeyNone
	}
	if op.Precondition == "" {
		op.Precondition = PreconditionNone
	}
	if op.Mode == "" {
		op.Mode = ModeNone
	}
	if op.Key == KeyNone {
		return op
	}
	if op.Retention == 0 {
		op.Retention = DefaultRetention
	}
	if op.Tombstone == 0 {
		op.Tombstone = max(DefaultTombstone, op.Retention)
	}
	if op.Wait == 0 {
		op.Wait = DefaultWait
	}
	return op
}

// Validate reports everything that keeps op from being a promise that can be
// kept, each with what to do about it. New calls it after filling in defaults.
func (op Operation) Validate() error {
	var errs []error
	refuse := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("contract: operation %q: "+format, append([]any{op.Name}, args...)...))
	}
	op.validateAddress(refuse)
	op.validateEffects(refuse)
	if op.validateWords(refuse) { // The rest can't be judged without them.
		op.validateSafety(refuse)
		op.validateMode(refuse)
		op.validateLifetimes(refuse)
		op.validateFingerprint(refuse)
	}
	return errors.Join(errs...)
}

type refuseFunc func(format string, args ...any)

func (op Operation) validateAddress(refuse refuseFunc) {
	if !validName(string(op.Name)) {
		refuse("Name is not valid; use 1 to %d letters, digits, '-', '_' and '.', such as \"create-order\"", MaxNameLen)
	}
	if op.Method == "" || strings.ToUpper(op.Method) != op.Method || !validName(op.Method) {
		refuse("Method %q is not valid; use an HTTP method in upper case, such as POST", op.Method)
	}
	if !strings.HasPrefix(op.Path, "/") || strings.ContainsAny(op.Path, " \t?#") {
		refuse("Path %q is not valid; use the path of an http.ServeMux pattern, from its first slash, without host or query", op.Path)
	} else if err := register(op.Path); err != nil {
		refuse("Path %q is not a pattern of http.ServeMux: %v", op.Path, err)
	}
}

// validateWords reports whether the fields that choose among a few words hold
// one of them.
func (op Operation) validateWords(refuse refuseFunc) bool {
	ok := true
	check := func(known bool, format string, args ...any) {
		if !known {
			ok = false
			refuse(format, args...)
		}
	}
	if op.Safety == "" {
		check(false, "Safety is not declared; say contract.Unsafe if nothing keeps a second execution from doing it twice")
	} else {
		check(slices.Contains([]Safety{Safe, Idempotent, Keyed, Unsafe}, op.Safety),
			"Safety %q is not known; use safe, idempotent, keyed or unsafe", op.Safety)
	}
	check(slices.Contains([]KeyRule{KeyNone, KeyOptional, KeyRequired}, op.Key),
		"Key %q is not known; use none, optional or required", op.Key)
	check(slices.Contains([]Precondition{PreconditionNone, IfMatch}, op.Precondition),
		"Precondition %q is not known; use none or if-match", op.Precondition)
	check(slices.Contains([]Mode{ModeNone, Atomic, Staged}, op.Mode),
		"Mode %q is not known; use none, atomic or staged", op.Mode)
	return ok
}

func (op Operation) validateSafety(refuse refuseFunc) {
	reads := op.Method == http.MethodGet || op.Method == http.MethodHead || op.Method == http.MethodOptions || op.Method == http.MethodTrace
	if reads && op.Safety != Safe {
		refuse("Safety is %s, but clients and proxies repeat a %s by themselves (RFC 9110 section 9.2); declare it safe, or use POST", op.Safety, op.Method)
	}
	switch {
	case op.Safety == Keyed && op.Key == KeyNone:
		refuse("Safety is keyed and Key is none; let the operation take a key (required, or optional), or declare it unsafe")
	case op.Safety == Safe && op.Key != KeyNone:
		refuse("Safety is safe and Key is %s; an operation without an effect needs no key, so leave Key out", op.Key)
	case op.Safety == Unsafe && op.Key != KeyNone:
		refuse("Safety is unsafe and Key is %s; with a key it is safe to repeat, so declare it keyed", op.Key)
	case op.Safety == Safe && op.Precondition == IfMatch:
		refuse("Safety is safe and Precondition is if-match; a read changes no version, so leave Precondition out")
	}
}

func (op Operation) validateMode(refuse refuseFunc) {
	if op.Mode == ModeNone && op.Key != KeyNone {
		refuse("Key is %s and Mode is none; a key is remembered by the ledger, so use atomic, or staged if the operation calls other systems", op.Key)
	}
	if op.Mode != ModeNone && op.Key == KeyNone {
		refuse("Mode is %s and Key is none; the ledger recognises requests by their keys, so let the operation take one or leave Mode out", op.Mode)
	}
	calls := slices.ContainsFunc(op.Effects, func(e Effect) bool { return e.By == ByDownstreamKey || e.By == ByProbe })
	if op.Mode == Staged && !calls {
		refuse("Mode is staged and no effect is kept single by downstream-key or probe; declare each call to another system in Effects, or use atomic")
	}
	if op.Mode == Atomic && calls {
		refuse("Mode is atomic and an effect is a call to another system; such a call cannot be rolled back, so use staged, or outbox for the effect")
	}
}

func (op Operation) validateLifetimes(refuse refuseFunc) {
	if op.Key == KeyNone {
		if op.Retention != 0 || op.Tombstone != 0 || op.Wait != 0 {
			refuse("Retention, Tombstone and Wait speak of remembered keys, and the operation takes none; leave them out")
		}
		return
	}
	switch {
	case op.Retention <= 0 || op.Retention%time.Second != 0:
		refuse("Retention is %v; use a positive number of whole seconds", op.Retention)
	case op.Tombstone%time.Second != 0:
		refuse("Tombstone is %v; use a number of whole seconds", op.Tombstone)
	case op.Tombstone < op.Retention:
		refuse("Tombstone (%v) is shorter than Retention (%v); a key must be refused at least as long as its result is kept, so make Tombstone longer", op.Tombstone, op.Retention)
	}
	if op.Wait < 0 || op.Wait%time.Millisecond != 0 && op.Wait != NoWait {
		refuse("Wait is %v; use a number of whole milliseconds that is not negative, or NoWait", op.Wait)
	}
}

func (op Operation) validateEffects(refuse refuseFunc) {
	if op.Safety == Safe && len(op.Effects) > 0 {
		refuse("Safety is safe and there are Effects; an operation with effects is not safe, so declare what it is")
	}
	for i, e := range op.Effects {
		if !validName(e.Name) {
			refuse("Effects[%d].Name %q is not valid; use 1 to %d letters, digits, '-', '_' and '.'", i, e.Name, MaxNameLen)
		} else if slices.ContainsFunc(op.Effects[:i], func(other Effect) bool { return other.Name == e.Name }) {
			refuse("Effects[%d].Name %q is given twice; give each effect its own name", i, e.Name)
		}
		if !slices.Contains([]Means{ByOutbox, ByDownstreamKey, ByProbe}, e.By) {
			refuse("Effects[%d].By %q is not known; say how %q is kept from happening twice: outbox, downstream-key or probe", i, e.By, e.Name)
		}
	}
}

// perAttempt are fields that change from attempt to attempt, or are not part of
// what is asked: in a fingerprint they would refuse every honest retry.
var perAttempt = []string{"If-Match", "If-None-Match", "Idempotency-Key", "Retry-Context", "Authorization", "Date", "Content-Type"}

func (op Operation) validateFingerprint(refuse refuseFunc) {
	if op.Key == KeyNone && len(op.FingerprintHeaders)+len(op.Volatile) > 0 {
		refuse("FingerprintHeaders and Volatile shape the fingerprint of a keyed request, and the operation takes no key; leave them out")
	}
	for i, name := range op.FingerprintHeaders {
		switch canonical := http.CanonicalHeaderKey(name); {
		case name == "" || strings.ContainsAny(canonical, " \t:,;\"\r\n"):
			refuse("FingerprintHeaders[%d] %q is not the name of a header field", i, name)
		case slices.Contains(perAttempt, canonical):
			refuse("FingerprintHeaders[%d] is %s, which never is one of the chosen fields (rules F2 and F6); leave it out", i, canonical)
		}
	}
	for i, name := range op.Volatile {
		if name == "" || slices.Contains(op.Volatile[:i], name) {
			refuse("Volatile[%d] %q is empty or given twice; name each top-level JSON member once", i, name)
		}
	}
}

func validName(s string) bool {
	if s == "" || len(s) > MaxNameLen {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' {
			continue
		}
		return false
	}
	return true
}
