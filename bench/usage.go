// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// usage is processor time in seconds: as a reading since the start of the machine,
// as a difference (since) during a slice.
type usage struct {
	// self is this process.
	self float64
	// children are its children by process id, each with all that descend from it.
	children map[int]float64
	// busy is the whole machine, and whole what it could have done.
	busy, whole float64
}

// tick is the unit of /proc: USER_HZ, which is 100 on every Linux that Go runs on.
const tick = 0.01

// readUsage reads /proc. Elsewhere than on Linux all is zero.
func readUsage() (u usage) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return u
	}
	u.children = make(map[int]float64)
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	for i, f := range strings.Fields(string(line))[1:] {
		v, _ := strconv.ParseFloat(f, 64)
		// user nice system idle iowait irq softirq steal: all but the two in the middle
		// are work. guest and guest_nice are part of user and nice.
		if i != 3 && i != 4 && i < 8 {
			u.busy += v * tick
		}
	}
	self := os.Getpid()
	processes := readProcesses()
	for pid, p := range processes {
		if pid == self {
			u.self = p.own
			continue
		}
		for child := pid; ; child = processes[child].parent {
			parent := processes[child].parent
			if parent == self {
				u.children[child] += p.own + p.dead
			}
			if parent == self || parent == 0 {
				break
			}
		}
	}
	return u
}

type process struct {
	parent int
	// own is its processor time, dead that of children it has waited for.
	own, dead float64
}

func readProcesses() map[int]process {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	found := make(map[int]process, len(files))
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // It has ended meanwhile.
		}
		// The command's name, in parentheses, may contain anything.
		head, tail, ok := bytes.Cut(text, []byte(" "))
		end := bytes.LastIndexByte(tail, ')')
		if !ok || end < 0 {
			continue
		}
		pid, _ := strconv.Atoi(string(head))
		f := strings.Fields(string(tail[end+1:])) // from the third field, the state, on
		if len(f) < 15 {
			continue
		}
		number := func(i int) float64 { v, _ := strconv.ParseFloat(f[i-3], 64); return v }
		found[pid] = process{int(number(4)), (number(14) + number(15)) * tick, (number(16) + number(17)) * tick}
	}
	return found
}

// since is what happened after an earlier reading.
func (u usage) since(before usage, took time.Duration) usage {
	d := usage{
		self: u.self - before.self, busy: u.busy - before.busy, whole: took.Seconds() * float64(runtime.NumCPU()),
		children: make(map[int]float64),
	}
	for pid, v := range u.children {
		d.children[pid] = max(0, v-before.children[pid])
	}
	return d
}

// foreign is the share of the machine, 0 to 1, that was used by something else than
// what was measured: the doubt that a slice deserves. Children that were only
// standing by count as something else.
func (u usage) foreign(idle map[int]bool) float64 {
	ours := u.self
	for pid, v := range u.children {
		if !idle[pid] {
			ours += v
		}
	}
	if u.whole == 0 {
		return 0
	}
	return max(0, u.busy-ours) / u.whole
}
