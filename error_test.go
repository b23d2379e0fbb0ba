// SPDX-License-Identifier: Apache-2.0

package reprise

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

func TestError(t *testing.T) {
	t.Parallel()

	t.Run("W1 is found by its code, however it is wrapped", func(t *testing.T) {
		t.Parallel()
		for code, sentinel := range map[Code]error{
			CodeKeyMissing: ErrKeyMissing, CodeKeyInvalid: ErrKeyInvalid, CodeKeyReused: ErrKeyReused, CodeKeyExpired: ErrKeyExpired,
			CodeInProgress: ErrInProgress, CodeOutcomeUnknown: ErrOutcomeUnknown, CodeStoreUnavailable: ErrStoreUnavailable, CodeLeaseLost: ErrLeaseLost,
		} {
			err := fmt.Errorf("outer: %w", &Error{Code: code, Detail: "more", Err: io.ErrUnexpectedEOF})
			if !errors.Is(err, sentinel) || !errors.Is(err, io.ErrUnexpectedEOF) || CodeOf(err) != code {
				t.Errorf("%v is not found as %v", err, sentinel)
			}
			if errors.Is(err, &Error{Code: "other"}) || errors.Is(errors.New(string(code)), sentinel) {
				t.Errorf("%v is found as something else", err)
			}
		}
	})

	t.Run("says what it knows and no more", func(t *testing.T) {
		t.Parallel()
		for want, err := range map[string]error{
			"internal": &Error{Code: CodeInternal},
			"ledger.Do: key-reused: the key names another request": &Error{Code: CodeKeyReused, Op: "ledger.Do", Detail: "the key names another request"},
			"store-unavailable: EOF":                               &Error{Code: CodeStoreUnavailable, Err: io.EOF},
			"retry.Do: internal: late: EOF":                        &Error{Code: CodeInternal, Op: "retry.Do", Detail: "late", Err: io.EOF},
		} {
			if err.Error() != want {
				t.Errorf("got %q; want %q", err, want)
			}
		}
	})
}

func TestCodeOf(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		err  error
		want Code
	}{
		"nil has none":           {nil, ""},
		"another error":          {io.EOF, CodeInternal},
		"ours":                   {ErrKeyReused, CodeKeyReused},
		"the outer of two":       {&Error{Code: CodeOutcomeUnknown, Err: ErrKeyReused}, CodeOutcomeUnknown},
		"a code of an own":       {&Error{Code: "declined"}, "declined"},
		"joined behind another":  {errors.Join(io.EOF, ErrInProgress), CodeInProgress},
		"wrapped more than once": {fmt.Errorf("a: %w", fmt.Errorf("b: %w", ErrKeyExpired)), CodeKeyExpired},
	} {
		t.Run("W1 "+name, func(t *testing.T) {
			t.Parallel()
			if got := CodeOf(row.err); got != row.want {
				t.Errorf("%v has %q; want %q", row.err, got, row.want)
			}
		})
	}
}
