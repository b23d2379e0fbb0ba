// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

func TestSeconds(t *testing.T) {
	t.Parallel()
	for ms := range 30_000 {
		text, err := json.Marshal(seconds(time.Duration(ms)*time.Millisecond + 400*time.Microsecond))
		var back float64
		if _, serr := fmt.Sscan(fmt.Sprintf("%d.%03d", ms/1000, ms%1000), &back); err != nil || serr != nil {
			t.Fatal(err, serr)
		}
		if want, _ := json.Marshal(back); string(text) != string(want) {
			t.Fatalf("%d ms: %s; want %s", ms, text, want)
		}
	}
}
