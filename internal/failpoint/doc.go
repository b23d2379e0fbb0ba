// SPDX-License-Identifier: Apache-2.0

// Package failpoint names the places where a process may die between two facts,
// and lets a test kill it there.
//
// Code calls Hit with a name of the form "package/place". In an ordinary build
// Hit is empty and leaves nothing behind in the binary. Built with the tag
// failpoint, it reads the environment variable REPRISE_FAILPOINT once, a
// comma-separated list of NAME:N, and the process kills itself, without any
// clean-up, when it comes to the place NAME for the Nth time (from 1).
//
// The names are stable: a crash test that asks for one that is never reached
// must fail, because a fault that did not fire proves nothing.
package failpoint
