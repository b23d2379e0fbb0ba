// SPDX-License-Identifier: Apache-2.0

package ledgerhttp

import (
	"net/http"
	"testing"
)

func TestJSON(t *testing.T) {
	t.Parallel()

	type order struct {
		Lines  []int          `json:"lines"`
		Labels map[string]int `json:"labels"`
		Amount int            `json:"amount,omitempty"`
		Note   string         `json:"note,omitempty"`
		Tax    int            `json:"tax,omitzero"`
		Text   string         `json:"text"`
	}

	t.Run("v is written as version 2 does", func(t *testing.T) {
		t.Parallel()
		r, err := JSON(http.StatusCreated, order{Text: "<a & b>"})
		if want := `{"lines":[],"labels":{},"amount":0,"text":"<a & b>"}`; err != nil || string(r.Body) != want {
			t.Errorf("got %s, %v; want %s", r.Body, err, want)
		}
	})
	t.Run("the same value is the same bytes", func(t *testing.T) {
		t.Parallel()
		for range 100 {
			r, err := JSON(http.StatusCreated, map[string]int{"c": 3, "a": 1, "b": 2})
			if want := `{"a":1,"b":2,"c":3}`; err != nil || string(r.Body) != want {
				t.Fatalf("got %s, %v; want %s", r.Body, err, want)
			}
		}
	})
	t.Run("what can't be written is an error and no half of a result", func(t *testing.T) {
		t.Parallel()
		r, err := JSON(http.StatusCreated, []any{1, make(chan int)})
		if err == nil || r.Status != 0 || len(r.Body) != 0 {
			t.Errorf("got %+v, %v", r, err)
		}
	})
}
