// SPDX-License-Identifier: Apache-2.0

//go:build race

package command_test

// raceDetector says whether the test runs under the race detector.
const raceDetector = true
