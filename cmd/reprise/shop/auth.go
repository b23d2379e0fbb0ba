// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/cmd/reprise/exit"
)

// devPrefix begins the tokens of dev-auth: "dev-NAME" is caller NAME.
const devPrefix = "dev-"

// maxCaller is the longest name of a caller, in bytes.
const maxCaller = 255

func isCaller(name string) bool { return name != "" && len(name) <= maxCaller && isText(name) }

var errNoCredentials = errors.New("no credentials, or none that hold")

// tokens knows who calls. It is safe for concurrent use.
type tokens struct {
	// file holds lines "TOKEN CALLER [revoked]"; empty if there is none.
	file string
	// dev says whether dev-auth is on.
	dev bool
	// known maps the digest of a token to its caller, which is empty if the token is
	// revoked, so that looking one up takes the same time whatever it begins with.
	known atomic.Pointer[map[[sha256.Size]byte]reprise.Caller]
}

func newTokens(file string, dev bool) (*tokens, error) {
	t := &tokens{file: file, dev: dev}
	return t, t.reload()
}

// reload reads the file again. If it can't be read, what was known before stays
// in force.
func (t *tokens) reload() error {
	known := make(map[[sha256.Size]byte]reprise.Caller)
	if t.file != "" {
		text, err := os.ReadFile(t.file)
		if err != nil {
			return exit.Refused("see that the file is there and can be read", "the tokens can't be read: %w", err)
		}
		if err := readTokens(text, known); err != nil {
			return exit.Misused("each line is TOKEN CALLER, and revoked if it no longer holds", "%s: %w", t.file, err)
		}
	}
	t.known.Store(&known)
	return nil
}

// readTokens adds the tokens to known, those that are revoked without a caller: the
// file decides on every token in it, also against dev-auth. Empty lines and lines that begin
// with # are nothing.
func readTokens(text []byte, known map[[sha256.Size]byte]reprise.Caller) error {
	seen := make(map[string]bool)
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		revoked := len(fields) == 3 && fields[2] == "revoked"
		if len(fields) != 2 && !revoked {
			return fmt.Errorf("line %d is not TOKEN CALLER [revoked]", n)
		}
		if !isCaller(fields[1]) {
			return fmt.Errorf("line %d: a caller is a text of at most %d bytes", n, maxCaller)
		}
		if seen[fields[0]] {
			return fmt.Errorf("line %d has the token of an earlier line", n)
		}
		seen[fields[0]] = true
		caller := reprise.Caller(fields[1])
		if revoked {
			caller = ""
		}
		known[sha256.Sum256([]byte(fields[0]))] = caller
	}
	return lines.Err()
}

// caller says who sent r. Any error means that nobody did.
func (t *tokens) caller(r *http.Request) (reprise.Caller, error) {
	token, ok := bearer(r)
	if !ok {
		return "", errNoCredentials
	}
	switch c, listed := (*t.known.Load())[sha256.Sum256([]byte(token))]; {
	case c != "":
		return c, nil
	case listed:
		return "", errNoCredentials
	}
	if name, ok := strings.CutPrefix(token, devPrefix); ok && t.dev && isCaller(name) {
		return reprise.Caller(name), nil
	}
	return "", errNoCredentials
}

// bearer returns the token of the one Authorization field (RFC 6750 section 2.1).
func bearer(r *http.Request) (token string, ok bool) {
	lines := r.Header.Values("Authorization")
	if len(lines) != 1 {
		return "", false
	}
	scheme, token, _ := strings.Cut(lines[0], " ")
	token = strings.TrimLeft(token, " ")
	return token, strings.EqualFold(scheme, "Bearer") && token != "" && !strings.ContainsAny(token, " \t")
}
