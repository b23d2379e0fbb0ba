// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/internal/dbserver/dbtest"
	"github.com/reprise-go/reprise/ledger"
	"github.com/reprise-go/reprise/store/postgres"
)

// ownerVariable makes this test binary the process that owns a key and is killed.
const ownerVariable = "REPRISE_POSTGRES_OWNER"

// ownerSpec says where an owner works, and what it is doing when it is killed.
type ownerSpec struct {
	DSN string `json:"dsn"`
	// Statement is what runs in the database at that moment; none if empty.
	Statement string `json:"statement"`
}

// owner is the main function of that process. It never comes to its COMMIT.
func owner(spec string) int {
	var o ownerSpec
	if err := json.Unmarshal([]byte(spec), &o); err != nil {
		panic(err)
	}
	db, err := sql.Open("pgx", o.DSN)
	if err != nil {
		panic(err)
	}
	d, err := postgres.New(context.Background(), db, nil)
	if err != nil {
		panic(err)
	}
	l, err := ledger.New[*sql.Tx](d, nil)
	if err != nil {
		panic(err)
	}
	s := &shop{db: db, driver: d, ledger: l}
	_, err = s.do("k", func(ctx context.Context, tx *sql.Tx) error {
		fmt.Println("the order is written")
		if o.Statement == "" {
			select {}
		}
		_, err := tx.ExecContext(ctx, o.Statement)
		return err
	})
	panic(fmt.Sprintf("the owner survived: %v", err))
}

// TestTakeover kills the process that owns a key, by SIGKILL in the middle of its
// transaction. The claim dies with the transaction, so the next attempt has nothing
// to wait for: there is no lease.
func TestTakeover(t *testing.T) {
	t.Parallel()
	for name, statement := range map[string]string{
		"between two statements": "",
		"within a statement":     "SELECT pg_sleep(1e6)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := dbtest.PostgresDatabase(t)
			// What a staged run would have to wait for is longer than any test.
			s := openShop(t, dsn, 4, nil, &ledger.Config{Lease: 24 * time.Hour})
			spec, err := json.Marshal(ownerSpec{DSN: dsn, Statement: statement})
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), ownerVariable+"="+string(spec))
			cmd.Stderr = os.Stderr
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			if statement != "" {
				eventually(t, "the owner's statement runs", func() bool {
					return number(t, dsn, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'") == 1
				})
			}
			_, err = s.ledger.Do(t.Context(), order("k"), ledger.Options{Wait: time.Millisecond}, s.ordering("k"))
			if !errors.Is(err, reprise.ErrInProgress) {
				t.Fatalf("beside a living owner: %v, want in progress", err)
			}

			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err == nil {
				t.Fatal("the owner was not killed")
			}
			a, err := s.do("k")
			if err != nil || a.Replayed {
				t.Errorf("after the death of the owner: %+v, %v", a, err)
			}
			effects(t, dsn, 1)
		})
	}
}
