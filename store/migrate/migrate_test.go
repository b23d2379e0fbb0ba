// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/reprise-go/reprise/store/migrate"
)

// memory is a database that only remembers what was applied.
type memory struct {
	files   fstest.MapFS
	applied []int
	said    []string
	err     error
}

func (m *memory) Dialect() string   { return "memory" }
func (m *memory) Migrations() fs.FS { return m.files }

func (m *memory) AppliedMigrations(context.Context) ([]int, error) { return m.applied, m.err }

func (m *memory) ApplyMigration(_ context.Context, version int, statements string) error {
	if statements == "fail" {
		return errors.New("does not work")
	}
	m.applied = append(m.applied, version)
	m.said = append(m.said, statements)
	return nil
}

func database(statements ...string) *memory {
	m := &memory{files: fstest.MapFS{}}
	for i, s := range statements {
		m.files[fmt.Sprintf("%03d_step.up.sql", i+1)] = &fstest.MapFile{Data: []byte(s)}
	}
	return m
}

func TestUp(t *testing.T) {
	t.Parallel()

	t.Run("applies what is missing, in order, once", func(t *testing.T) {
		t.Parallel()
		all := make([]string, 12) // 010 comes after 009
		for i := range all {
			all[i] = fmt.Sprint("s", i+1)
		}
		m := database(all...)
		m.applied = []int{1, 2}
		for range 2 {
			if err := migrate.Up(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := strings.Join(m.said, " "), strings.Join(all[2:], " "); got != want {
			t.Errorf("applied %q, want %q", got, want)
		}
		if err := migrate.Verify(t.Context(), m); err != nil {
			t.Error(err)
		}
	})

	t.Run("stops at the first that fails, and names it", func(t *testing.T) {
		t.Parallel()
		m := database("a", "fail", "c")
		if err := migrate.Up(t.Context(), m); err == nil || !strings.Contains(err.Error(), "002_step") {
			t.Errorf("error %v", err)
		}
		if len(m.said) != 1 {
			t.Errorf("applied %q", m.said)
		}
	})

	t.Run("changes nothing in a schema that is newer", func(t *testing.T) {
		t.Parallel()
		m := database("a", "b")
		m.applied = []int{1, 3}
		if err := migrate.Up(t.Context(), m); !errors.Is(err, migrate.ErrNewer) || len(m.said) != 0 {
			t.Errorf("error %v, applied %q", err, m.said)
		}
	})

	t.Run("does not take a failed look for an empty database", func(t *testing.T) {
		t.Parallel()
		m := database("a")
		m.err = errors.New("unreachable")
		if err := migrate.Up(t.Context(), m); !errors.Is(err, m.err) || len(m.said) != 0 {
			t.Errorf("error %v, applied %q", err, m.said)
		}
	})
}

func TestVerify(t *testing.T) {
	t.Parallel()
	m := database("a", "b")
	m.applied = []int{1}
	err := migrate.Verify(t.Context(), m)
	if !errors.Is(err, migrate.ErrBehind) || !strings.Contains(err.Error(), "002_step") || !strings.Contains(err.Error(), "reprise migrate up") {
		t.Errorf("error %v, want ErrBehind with the name and the command", err)
	}
	if len(m.said) != 0 {
		t.Errorf("it applied %q", m.said)
	}
}

func TestSQL(t *testing.T) {
	t.Parallel()
	script, err := migrate.SQL(database("first;\n", "second;"))
	if want := "-- 001_step\nfirst;\n-- 002_step\nsecond;\n"; script != want || err != nil {
		t.Errorf("%q, %v, want %q", script, err, want)
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	for name, files := range map[string][]string{
		"none":         {},
		"a gap":        {"001_a.up.sql", "003_c.up.sql"},
		"a double":     {"001_a.up.sql", "001_b.up.sql"},
		"no name":      {"001.up.sql"},
		"no number":    {"first_a.up.sql"},
		"not from one": {"000_a.up.sql"},
	} {
		t.Run(name+" is refused", func(t *testing.T) {
			t.Parallel()
			m := &memory{files: fstest.MapFS{}}
			for _, f := range files {
				m.files[f] = &fstest.MapFile{}
			}
			if _, err := migrate.Status(t.Context(), m); err == nil {
				t.Error("no error")
			}
		})
	}
}
