// SPDX-License-Identifier: Apache-2.0

package command_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/reprise-go/reprise/cmd/reprise/command"
	"github.com/reprise-go/reprise/internal/dbserver/dbtest"
)

func TestMain(m *testing.M) {
	testscript.Main(dbtest.Suite{M: m}, map[string]func(){
		"reprise": func() { os.Exit(command.Main(os.Args[1:], os.Stdout, os.Stderr)) },
	})
}

// TestScript runs testdata/script, one file for each command.
func TestScript(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Condition: func(cond string) (bool, error) {
			if cond != "race" {
				return false, fmt.Errorf("unknown condition %q", cond)
			}
			return raceDetector, nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":        exits,
			"occupy":       occupy,
			"drains":       drains,
			"database":     database(t),
			"sql":          statement(t),
			"concurrently": concurrently,
		},
	})
}

// exits runs a command that must end with exactly the given code, as in
// "exits 3 reprise psp --listen nowhere". What it printed can be looked at with
// "stdout" and "stderr".
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARG...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		e, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = e.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d; want %d", got, want)
	}
}

// occupy listens on a free port until the script ends, and puts its address into
// a variable.
func occupy(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: occupy VARIABLE")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { _ = l.Close() })
	ts.Setenv(args[0], l.Addr().String())
}

// drains starts a command, waits until it has announced the given number of
// listeners, asks it to end with SIGTERM, and demands that it exits with 0. Its
// standard output and error are left in the files "stdout" and "stderr".
func drains(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: drains LISTENERS COMMAND [ARG...]")
	}
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	path, err := exec.LookPath(args[1])
	ts.Check(err)
	cmd := exec.Command(path, args[2:]...)
	cmd.Dir = ts.MkAbs(".")
	stderr, err := os.Create(ts.MkAbs("stderr"))
	ts.Check(err)
	defer func() { _ = stderr.Close() }()
	cmd.Stderr = stderr
	stdout, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	watchdog := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer watchdog.Stop()

	var out strings.Builder
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		out.WriteString(lines.Text() + "\n")
		if n--; n == 0 {
			ts.Check(cmd.Process.Signal(syscall.SIGTERM))
		}
	}
	err = cmd.Wait()
	ts.Check(os.WriteFile(ts.MkAbs("stdout"), []byte(out.String()), 0o600))
	if err != nil || n > 0 {
		text, _ := os.ReadFile(ts.MkAbs("stderr"))
		ts.Fatalf("ended with %v, %d announcements short\n%s%s", err, max(n, 0), out.String(), text)
	}
}
