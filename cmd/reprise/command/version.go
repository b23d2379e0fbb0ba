// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/reprise-go/reprise"
)

// build is what "reprise version" says of the program.
type build struct {
	Version     string `json:"version"`
	Revision    string `json:"revision,omitempty"`
	Go          string `json:"go"`
	Fingerprint int    `json:"fingerprint_version"`
}

func newVersion() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Say which build this is",
		Args:  cobra.NoArgs,
		RunE: run(func(c *cobra.Command) error {
			b := readBuild()
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(b)
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "reprise %s (%s, fingerprint v%d)\n", b.Version, b.Go, b.Fingerprint)
			return err
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one line of JSON")
	return c
}

func readBuild() build {
	b := build{Version: "unknown", Fingerprint: reprise.FingerprintVersion}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version, b.Go = info.Main.Version, info.GoVersion
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Revision = s.Value
		}
	}
	return b
}
