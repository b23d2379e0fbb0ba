// SPDX-License-Identifier: Apache-2.0

//go:build !race

package crash_test

const raceDetector = false
