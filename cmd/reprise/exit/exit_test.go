// SPDX-License-Identifier: Apache-2.0

package exit_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/reprise-go/reprise/cmd/reprise/exit"
)

func TestCodeOf(t *testing.T) {
	t.Parallel()
	for want, err := range map[exit.Code]error{
		exit.OK:          nil,
		exit.Failure:     errors.New("no code of its own"),
		exit.Usage:       fmt.Errorf("wrapped: %w", exit.Misused("", "misused")),
		exit.Environment: errors.Join(exit.Refused("", "refused"), errors.New("and more")),
	} {
		if got := exit.CodeOf(err); got != want {
			t.Errorf("%v: code %d; want %d", err, got, want)
		}
	}
}

func TestErrorKeepsItsCause(t *testing.T) {
	t.Parallel()
	if err := exit.Refused("", "can't start: %w", os.ErrPermission); !errors.Is(err, os.ErrPermission) {
		t.Errorf("%v has lost its cause", err)
	}
}

func ExampleExplain() {
	exit.Explain(os.Stdout, exit.Misused("say sqlite:PATH", "--db %q has no scheme", "shop.db"))
	exit.Explain(os.Stdout, exit.Refused("see that it runs", "no answer:\n\t127.0.0.1: refused\n\t::1: refused"))
	// Output:
	// error: --db "shop.db" has no scheme
	// hint: say sqlite:PATH
	// error: no answer: 127.0.0.1: refused; ::1: refused
	// hint: see that it runs
}
