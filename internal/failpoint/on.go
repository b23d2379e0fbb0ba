// SPDX-License-Identifier: Apache-2.0

//go:build failpoint

package failpoint

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// Enabled reports whether this build can die at its failpoints.
const Enabled = true

// Variable is the environment variable that arms failpoints.
const Variable = "REPRISE_FAILPOINT"

var armed = sync.OnceValue(func() map[string]*atomic.Int64 {
	places, err := parse(os.Getenv(Variable))
	if err != nil {
		panic(err) // a crash test with a typing error must not look like one that passed
	}
	return places
})

// parse reads "name:n,name:n" into the number of hits left until death.
func parse(spec string) (map[string]*atomic.Int64, error) {
	places := map[string]*atomic.Int64{}
	for item := range strings.SplitSeq(spec, ",") {
		if item == "" {
			continue
		}
		name, count, ok := strings.Cut(item, ":")
		n, err := strconv.ParseInt(count, 10, 64)
		if !ok || err != nil || n < 1 || name == "" {
			return nil, fmt.Errorf("failpoint: %s holds %q; write NAME:N with N from 1", Variable, item)
		}
		left := new(atomic.Int64)
		left.Store(n)
		places[name] = left
	}
	return places, nil
}

// Hit kills this process if the place is armed and this is its hit. It is safe
// for concurrent use.
func Hit(name string) {
	left, ok := armed()[name]
	if !ok || left.Add(-1) != 0 {
		return
	}
	fmt.Fprintf(os.Stderr, "failpoint: dying at %s\n", name)
	p, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		panic(err)
	}
	select {} // the kill is on its way; not one instruction more of the caller
}
