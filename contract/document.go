// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/reprise-go/reprise"
)

// Version is the version of the contract document (rule W7).
const Version = 1

// document is the JSON form of a contract, as spec/retry-contract.schema.json
// describes it.
type document struct {
	Version    int         `json:"version"`
	Operations []operation `json:"operations"`
}

type operation struct {
	Name             reprise.Operation `json:"name"`
	Method           string            `json:"method"`
	Path             string            `json:"path"`
	Safety           Safety            `json:"safety"`
	Key              KeyRule           `json:"key"`
	Precondition     Precondition      `json:"precondition"`
	Mode             Mode              `json:"mode"`
	RetentionSeconds int64             `json:"retention_seconds"`
	TombstoneSeconds int64             `json:"tombstone_seconds"`
	WaitMS           int64             `json:"wait_ms"`
	Effects          []effect          `json:"effects"`
}

type effect struct {
	Name string `json:"name"`
	By   Means  `json:"by"`
}

// MarshalJSON returns the contract document.
func (c *Contract) MarshalJSON() ([]byte, error) {
	doc := document{Version: Version, Operations: make([]operation, len(c.operations))}
	for i, op := range c.operations {
		o := operation{
			Name: op.Name, Method: op.Method, Path: op.Path,
			Safety: op.Safety, Key: op.Key, Precondition: op.Precondition, Mode: op.Mode,
			RetentionSeconds: int64(op.Retention / time.Second),
			TombstoneSeconds: int64(op.Tombstone / time.Second),
			WaitMS:           op.Wait.Milliseconds(),
			Effects:          make([]effect, len(op.Effects)),
		}
		for j, e := range op.Effects {
			o.Effects[j] = effect(e)
		}
		doc.Operations[i] = o
	}
	return json.Marshal(doc)
}

// maxSeconds is the longest lifetime that is read: a hundred years.
const maxSeconds = 100 * 366 * 24 * 3600

// Parse reads a contract document, of this or another implementation, and
// validates it as New does; nothing is filled in. Members that it does not know
// are ignored, so that documents can grow.
func Parse(text []byte) (*Contract, error) {
	var doc document
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("contract: not a contract document: %w", err)
	}
	if doc.Version != Version {
		return nil, fmt.Errorf("contract: the document has version %d and this reader knows %d; use a newer one", doc.Version, Version)
	}
	if doc.Operations == nil {
		return nil, errors.New(`contract: the document has no member "operations"`)
	}
	ops := make([]Operation, len(doc.Operations))
	for i, o := range doc.Operations {
		for _, n := range []int64{o.RetentionSeconds, o.TombstoneSeconds, o.WaitMS / 1000} {
			if n < 0 || n > maxSeconds {
				return nil, fmt.Errorf("contract: operation %q has a time outside 0 to %d seconds", o.Name, maxSeconds)
			}
		}
		ops[i] = Operation{
			Name: o.Name, Method: o.Method, Path: o.Path,
			Safety: o.Safety, Key: o.Key, Precondition: o.Precondition, Mode: o.Mode,
			Retention: time.Duration(o.RetentionSeconds) * time.Second,
			Tombstone: time.Duration(o.TombstoneSeconds) * time.Second,
			Wait:      time.Duration(o.WaitMS) * time.Millisecond,
		}
		for _, e := range o.Effects {
			ops[i].Effects = append(ops[i].Effects, Effect(e))
		}
	}
	return build(ops)
}
