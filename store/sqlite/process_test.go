// SPDX-License-Identifier: Apache-2.0

package sqlite

// childVariable says which part of a re-executed test binary to run.
const childVariable = "REPRISE_SQLITE_TEST_CHILD"

var children = map[string]func(){}
