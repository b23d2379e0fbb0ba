// SPDX-License-Identifier: Apache-2.0

// Command die comes to two places three times each.
package main

import (
	"fmt"

	"github.com/reprise-go/reprise/internal/failpoint"
)

func main() {
	for i := range 3 {
		failpoint.Hit("die/first")
		fmt.Println("first", i+1)
		failpoint.Hit("die/second")
		fmt.Println("second", i+1)
	}
}
