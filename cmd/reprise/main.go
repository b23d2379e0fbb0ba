// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/reprise-go/reprise"
	_ "modernc.org/sqlite"
)

func main() { fmt.Println(reprise.NewKey()) }
