// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/store"
)

// decision is the evidence of a call that the other system decided against.
type decision struct {
	Code      reprise.Code `json:"code"`
	Detail    string       `json:"detail,omitempty"`
	Reference string       `json:"reference,omitempty"`
	Response  []byte       `json:"response,omitempty"`
}

// evidence is what is recorded of a call that was decided against.
func evidence(response []byte, e *reprise.Error) []byte {
	// A decision is strings and bytes, which can always be encoded.
	b, _ := json.Marshal(decision{Code: e.Code, Detail: e.Detail, Reference: e.Reference, Response: response})
	return b
}

// recorded returns what the handler is told of a step that is done: the same on
// the drive that made the call and on every later one.
func recorded(s store.Step) ([]byte, error) {
	if s.Outcome != reprise.Rejected {
		return bytes.Clone(s.Response), nil
	}
	var d decision
	if err := json.Unmarshal(s.Response, &d); err != nil {
		return nil, outcomeUnknown("ledger.Call", fmt.Errorf("the recorded decision of step %q can't be read: %w", s.Name, err))
	}
	return d.Response, &reprise.Error{
		Code: d.Code, Op: "ledger.Call", Detail: d.Detail, Reference: d.Reference, Outcome: reprise.Rejected,
	}
}

// sealVersion is the first byte of a sealed input.
const sealVersion = 1

// seal joins a run's input with the lifetimes that its client was promised,
// because recovery ends a run without the options of its client.
func seal(t terms, input []byte) []byte {
	b := []byte{sealVersion}
	b = binary.BigEndian.AppendUint64(b, uint64(t.Retention))
	b = binary.BigEndian.AppendUint64(b, uint64(t.Tombstone))
	return append(b, input...)
}

func unseal(b []byte) (terms, []byte, error) {
	const head = 1 + 8 + 8
	if len(b) < head || b[0] != sealVersion {
		return terms{}, nil, errors.New("the input of this run was written by another version of the library")
	}
	t := terms{
		Retention: time.Duration(binary.BigEndian.Uint64(b[1:])),
		Tombstone: time.Duration(binary.BigEndian.Uint64(b[9:])),
	}
	return t, b[head:], nil
}
