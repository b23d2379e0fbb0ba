// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"sync"
	"testing"

	"github.com/reprise-go/reprise/internal/dbserver/dbtest"
	"github.com/reprise-go/reprise/store/migrate"
)

// TestMigrateTogether migrates one empty database from several processes' worth of
// drivers at once. Each has looked for the schema before, on the connection that it
// migrates with: what a backend remembers of that look is out of date when it is
// its turn.
func TestMigrateTogether(t *testing.T) {
	t.Parallel()
	name := dbtest.PostgresDatabase(t)
	var looked, wg sync.WaitGroup
	for range 8 {
		db := openDB(t, name)
		db.SetMaxOpenConns(1)
		d := mustNew(t, db, nil)
		looked.Add(1)
		wg.Go(func() {
			_, err := migrate.Status(t.Context(), d)
			looked.Done()
			looked.Wait()
			if err == nil {
				err = migrate.Up(t.Context(), d)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := migrate.Verify(t.Context(), mustNew(t, openDB(t, name), nil)); err != nil {
		t.Error(err)
	}
}
