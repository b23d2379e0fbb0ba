// SPDX-License-Identifier: Apache-2.0

package command

import (
	"strings"

	"github.com/reprise-go/reprise/cmd/reprise/exit"
)

// databasePath returns the file that a database URL names. flag is where it was
// given.
func databasePath(flag, url string) (string, error) {
	scheme, path, ok := strings.Cut(url, ":")
	switch {
	case !ok:
		return "", exit.Misused("say sqlite:PATH, such as sqlite:shop.db", "%s %q has no scheme", flag, url)
	case scheme != "sqlite":
		return "", exit.Misused("this build knows sqlite:PATH only", "%s %q: there is no driver for %q", flag, url, scheme)
	case path == "":
		return "", exit.Misused("say sqlite:PATH, such as sqlite:shop.db", "%s %q names no file", flag, url)
	}
	return path, nil
}
