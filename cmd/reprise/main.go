// SPDX-License-Identifier: Apache-2.0

// Reprise makes retries safe from end to end; see "reprise --help".
package main

import (
	"os"

	"github.com/reprise-go/reprise/cmd/reprise/command"
)

func main() { os.Exit(command.Main(os.Args[1:], os.Stdout, os.Stderr)) }
