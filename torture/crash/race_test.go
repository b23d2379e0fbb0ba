// SPDX-License-Identifier: Apache-2.0

//go:build race

package crash_test

// raceDetector makes a process ten times as slow, and what is looked for here is
// no race: under it fewer modes are tried.
const raceDetector = true
