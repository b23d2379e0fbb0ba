// SPDX-License-Identifier: Apache-2.0

// Package crash runs a service against a database that fails at every boundary,
// and judges what the service left behind.
//
// One run is one intent. A client makes an attempt on an instance of the service
// in which a fault strikes at the k-th point, repeats it on other instances as a
// client does, and is answered in the end. k counts up from 1 until a run completes
// without a hit, which is SQLite's rule: a statement that is added later is
// covered without anybody remembering to. Pairs put a second fault into the first
// repeat.
//
// The oracle asks the database itself. What was acknowledged is there, and what is
// there was asked for, once: the number of every effect is exact. What was refused
// for certain has no effect. All answers are one answer. Nothing is stuck: once
// the faults are over, the repeat succeeds. A fault that did not strike proves
// nothing, and fails.
//
// Interleave runs every schedule of two concurrent attempts at one intent.
package crash
