// SPDX-License-Identifier: Apache-2.0

package command_test

import (
	"context"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/reprise-go/reprise/internal/dbserver/dbtest"
)

// scriptCommand is a command of a script.
type scriptCommand = func(*testscript.TestScript, bool, []string)

// database is the command "database postgres|mysql VARIABLE": it makes an empty
// database and puts its URL into the variable, HOST:PORT into VARIABLE_SERVER and its
// name into VARIABLE_NAME. It is dropped after all scripts.
func database(t *testing.T) scriptCommand {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) != 2 {
			ts.Fatalf("usage: database postgres|mysql VARIABLE")
		}
		var address string
		switch args[0] {
		case "postgres":
			address = dbtest.PostgresDatabase(t)
		case "mysql":
			address = "mysql://" + strings.NewReplacer("tcp(", "", ")", "").Replace(dbtest.MariaDBDatabase(t))
		default:
			ts.Fatalf("database %s: there is no such kind", args[0])
		}
		u, err := url.Parse(address)
		ts.Check(err)
		ts.Setenv(args[1], address)
		ts.Setenv(args[1]+"_SERVER", u.Host)
		ts.Setenv(args[1]+"_NAME", strings.TrimPrefix(u.Path, "/"))
	}
}

// statement is the command "sql URL SQL", and "sql URL -f FILE": it runs SQL in a
// database of the command database, as its administrator.
func statement(t *testing.T) scriptCommand {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) != 2 && (len(args) != 3 || args[1] != "-f") {
			ts.Fatalf("usage: sql URL SQL, or sql URL -f FILE")
		}
		text := args[len(args)-1]
		if len(args) == 3 {
			text = ts.ReadFile(text)
		}
		u, err := url.Parse(args[0])
		ts.Check(err)
		name := strings.TrimPrefix(u.Path, "/")
		if u.Scheme == "mysql" {
			_, err = dbtest.MariaDB(t).Exec(context.Background(), name, text)
		} else {
			_, err = dbtest.Postgres(t).Exec(context.Background(), name, text)
		}
		ts.Check(err)
	}
}

// concurrently is the command "concurrently N COMMAND [ARG...]": it runs a command
// N times at once, and demands that each of them exits with 0.
func concurrently(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: concurrently N COMMAND [ARG...]")
	}
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	path, err := exec.LookPath(args[1])
	ts.Check(err)
	failed := make([]string, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			cmd := exec.Command(path, args[2:]...)
			cmd.Dir = ts.MkAbs(".")
			if out, err := cmd.CombinedOutput(); err != nil {
				failed[i] = err.Error() + ": " + string(out)
			}
		})
	}
	wg.Wait()
	if text := strings.TrimSpace(strings.Join(failed, "\n")); text != "" {
		ts.Fatalf("%s", text)
	}
}
