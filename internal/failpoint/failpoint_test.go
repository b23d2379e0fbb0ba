// SPDX-License-Identifier: Apache-2.0

package failpoint_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// build compiles testdata/die with the given flags.
func build(t *testing.T, flags ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "die")
	args := append(append([]string{"build", "-o", program}, flags...), "./testdata/die")
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

func run(program, armed string) (lines []string, exit *exec.ExitError) {
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "REPRISE_FAILPOINT="+armed)
	out, err := cmd.Output()
	exit, _ = errors.AsType[*exec.ExitError](err)
	return strings.Split(strings.TrimSpace(string(out)), "\n"), exit
}

func TestHit(t *testing.T) {
	t.Parallel()
	program := build(t, "-tags", "failpoint")

	for name, c := range map[string]struct {
		armed string
		lines int
	}{
		"dies at the first hit":          {"die/first:1", 0},
		"dies at the third hit":          {"die/first:3", 4},
		"dies at the place that is next": {"die/first:3,die/second:2", 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines, exit := run(program, c.armed)
			if lines[0] == "" {
				lines = nil
			}
			if exit == nil || exit.ExitCode() != -1 {
				t.Fatalf("it was not killed: %v", exit)
			}
			if len(lines) != c.lines {
				t.Errorf("it said %q before it died", lines)
			}
		})
	}

	t.Run("lives when the place is not armed, or not reached that often", func(t *testing.T) {
		t.Parallel()
		for _, armed := range []string{"", "die/elsewhere:1", "die/first:4"} {
			if lines, exit := run(program, armed); exit != nil || len(lines) != 6 {
				t.Errorf("%q: %v after %q", armed, exit, lines)
			}
		}
	})

	t.Run("does not take a typing error for a pass", func(t *testing.T) {
		t.Parallel()
		for _, armed := range []string{"die/first", "die/first:0", "die/first:x", ":1", "die/first;1"} {
			if _, exit := run(program, armed); exit == nil || exit.ExitCode() != 2 {
				t.Errorf("%q: %v, want a panic", armed, exit)
			}
		}
	})

	t.Run("is not in an ordinary build", func(t *testing.T) {
		t.Parallel()
		ordinary := build(t)
		if lines, exit := run(ordinary, "die/first:1"); exit != nil || len(lines) != 6 {
			t.Errorf("%v after %q", exit, lines)
		}
		for program, want := range map[string]bool{ordinary: false, program: true} {
			image, err := os.ReadFile(program)
			if err != nil {
				t.Fatal(err)
			}
			for _, trace := range []string{"REPRISE_FAILPOINT", "die/first"} {
				if got := bytes.Contains(image, []byte(trace)); got != want {
					t.Errorf("%s contains %q: %v, want %v", filepath.Base(filepath.Dir(program)), trace, got, want)
				}
			}
		}
	})
}
