// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os/exec"
	"testing"
	"time"
)

func TestMeasureStopsAtAnError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	n := 0
	_, err := measure(t.Context(), 1, time.Hour, func(context.Context) error {
		if n++; n == 3 {
			return broken
		}
		return nil
	})
	if !errors.Is(err, broken) || n != 3 {
		t.Errorf("after %d calls: %v", n, err)
	}
}

// A child that burns the processor is seen, as foreign if it is said to be idle.
func TestUsageSeesChildren(t *testing.T) {
	t.Parallel()
	child := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
	before, start := readUsage(), time.Now()
	if before.children == nil {
		t.Fatal("there is no /proc")
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	pid := child.Process.Pid
	var used usage
	for used.children[pid] < 0.1 && time.Since(start) < time.Minute {
		time.Sleep(10 * time.Millisecond) // The kernel counts in ticks of this length.
		used = readUsage().since(before, time.Since(start))
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	if used.children[pid] < 0.1 || used.busy < used.children[pid] {
		t.Errorf("the child burnt a tenth of a second, and the reading is %+v", used)
	}
	if as, ours := used.foreign(map[int]bool{pid: true}), used.foreign(nil); as < ours {
		t.Errorf("foreign is %v with the child left out, and %v with it", as, ours)
	}
}

// A pair is compared within its round.
func TestSeriesOver(t *testing.T) {
	t.Parallel()
	fast := series{{rate: 10}, {rate: 100}, {rate: 30}}
	slow := series{{rate: 5}, {rate: 50}, {rate: 10}}
	ratios := fast.over(slow)
	if len(ratios) != 3 || ratios[0] != 2 || ratios[1] != 2 || ratios[2] != 3 || median(ratios) != 2 {
		t.Errorf("ratios %v", ratios)
	}
}
