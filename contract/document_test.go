// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"flag"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/reprise-go/reprise/contract"
)

var update = flag.Bool("update", false, "rewrite golden files")

func TestDocument(t *testing.T) {
	t.Parallel()
	const golden = "testdata/shop.json"
	got, err := json.Marshal(mustNew(t, shop()...), jsontext.Multiline(true), jsontext.WithIndent("  "))
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	if *update {
		if err := os.WriteFile(golden, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("the document is\n%s\nand not\n%s", got, want)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()

	t.Run("gives back what was served", func(t *testing.T) {
		t.Parallel()
		served := mustNew(t, shop()...)
		text, err := served.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		read, err := contract.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		want := served.Operations()
		for i := range want {
			want[i].FingerprintHeaders, want[i].Volatile = nil, nil // Not served.
		}
		if got := read.Operations(); !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	})

	t.Run("keeps what it says and fills in nothing", func(t *testing.T) {
		t.Parallel()
		text := `{"version":1,"more":true,"operations":[{"name":"a","method":"POST","path":"/a","safety":"keyed","key":"required",
			"precondition":"none","mode":"atomic","retention_seconds":5,"tombstone_seconds":5,"wait_ms":0,"effects":[],"since":"2026"}]}`
		c, err := contract.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		op, _ := c.Operation("a")
		if op.Wait != 0 || op.Retention != 5*time.Second || op.Tombstone != 5*time.Second {
			t.Errorf("read %+v", op)
		}
	})

	valid := `{"version":1,"operations":[{"name":"a","method":"POST","path":"/a","safety":"keyed","key":"required",` +
		`"precondition":"none","mode":"atomic","retention_seconds":60,"tombstone_seconds":60,"wait_ms":0,"effects":[]}]}`
	if _, err := contract.Parse([]byte(valid)); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct{ old, new, want string }{
		"another version":       {`"version":1`, `"version":2`, "version 2"},
		"no version":            {`"version":1,`, ``, "version 0"},
		"no operations":         {`"operations":[`, `"operation":[`, `no member "operations"`},
		"null operations":       {`[{"name"`, `null,"x":[{"name"`, `no member "operations"`},
		"not JSON":              {`]}`, `]`, "not a contract document"},
		"a member twice":        {`"name":"a"`, `"name":"a","name":"b"`, "not a contract document"},
		"a second document":     {`]}`, `]}{}`, "not a contract document"},
		"half a second":         {`"retention_seconds":60`, `"retention_seconds":0.5`, "not a contract document"},
		"an unknown safety":     {`"keyed"`, `"commutative"`, "not known"},
		"an unknown mode":       {`"atomic"`, `"ATOMIC"`, "not known"},
		"no retention":          {`"retention_seconds":60,`, ``, "positive number"},
		"a negative time":       {`"wait_ms":0`, `"wait_ms":-1000`, "outside 0 to"},
		"a time that overflows": {`"tombstone_seconds":60`, `"tombstone_seconds":9223372036854775807`, "outside 0 to"},
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(valid, row.old, row.new, 1)
			if text == valid {
				t.Fatal("the row changes nothing")
			}
			_, err := contract.Parse([]byte(text))
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("error %v does not say %q", err, row.want)
			}
		})
	}
}

// TestSchema keeps spec/retry-contract.schema.json and the document together:
// the same members, all of them required, and the same values.
func TestSchema(t *testing.T) {
	t.Parallel()
	type object struct {
		Required   []string                  `json:"required"`
		Properties map[string]jsontext.Value `json:"properties"`
	}
	type members = map[string]jsontext.Value
	var schema struct {
		Required   []string `json:"required"`
		Properties members  `json:"properties"`
		Defs       struct {
			Operation object `json:"operation"`
			Effect    object `json:"effect"`
		} `json:"$defs"`
	}
	text, err := os.ReadFile("../spec/retry-contract.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	unmarshal(t, text, &schema)

	text, err = mustNew(t, shop()...).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var document members
	var operations, effects []members
	unmarshal(t, text, &document)
	unmarshal(t, document["operations"], &operations)
	unmarshal(t, operations[0]["effects"], &effects)

	for _, level := range []struct {
		name   string
		schema object
		served members
	}{
		{"document", object{schema.Required, schema.Properties}, document},
		{"operation", schema.Defs.Operation, operations[0]},
		{"effect", schema.Defs.Effect, effects[0]},
	} {
		served := slices.Sorted(maps.Keys(level.served))
		described := slices.Sorted(maps.Keys(level.schema.Properties))
		required := slices.Sorted(slices.Values(level.schema.Required))
		if !slices.Equal(served, described) || !slices.Equal(served, required) {
			t.Errorf("%s: served %v, described %v, required %v", level.name, served, described, required)
		}
	}

	for member, want := range map[string][]string{
		"safety":       {string(contract.Safe), string(contract.Idempotent), string(contract.Keyed), string(contract.Unsafe)},
		"key":          {string(contract.KeyRequired), string(contract.KeyOptional), string(contract.KeyNone)},
		"precondition": {string(contract.PreconditionNone), string(contract.IfMatch)},
		"mode":         {string(contract.Atomic), string(contract.Staged), string(contract.ModeNone)},
		"by":           {string(contract.ByOutbox), string(contract.ByDownstreamKey), string(contract.ByProbe)},
	} {
		from := schema.Defs.Operation.Properties[member]
		if member == "by" {
			from = schema.Defs.Effect.Properties[member]
		}
		var allowed struct {
			Enum []string `json:"enum"`
		}
		unmarshal(t, from, &allowed)
		if !slices.Equal(allowed.Enum, want) {
			t.Errorf("the schema allows %v for %s; the contract %v", allowed.Enum, member, want)
		}
	}
}

func unmarshal(t *testing.T, text []byte, to any) {
	t.Helper()
	if err := json.Unmarshal(text, to); err != nil {
		t.Fatal(err)
	}
}

func FuzzParse(f *testing.F) {
	c, err := contract.New(shop()...)
	if err != nil {
		f.Fatal(err)
	}
	text, err := c.MarshalJSON()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"version":1,"operations":[]}`))
	f.Add([]byte(`{"version":1,"operations":[{"name":"a","method":"GET","path":"/{a...}","safety":"safe","key":"none","precondition":"none","mode":"none"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := contract.Parse(text)
		if err != nil {
			return
		}
		served, err := c.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		again, err := contract.Parse(served)
		if err != nil {
			t.Fatalf("what was parsed is served as %s, and refused: %v", served, err)
		}
		if !reflect.DeepEqual(again.Operations(), c.Operations()) {
			t.Errorf("got  %+v\nwant %+v", again.Operations(), c.Operations())
		}
	})
}
