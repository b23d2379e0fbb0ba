// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

// program is one running peer.
type program struct {
	ready ready
	pid   int
	stdin io.Closer
	cmd   *exec.Cmd
	// stderr may be read once the program has ended.
	stderr *bytes.Buffer
}

// ready is the line that a peer prints (bench/peers/job).
type ready struct {
	Address  string   `json:"address"`
	Path     string   `json:"path"`
	Versions []string `json:"versions"`
	Events   string   `json:"events"`
}

// peersDirectory is where the peers' module lies, which is no part of the
// workspace.
func peersDirectory(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/reprise-go/reprise/bench").Output()
	if err != nil {
		return "", fmt.Errorf("the source of the peers is needed, so run this inside of the repository: %w", err)
	}
	return filepath.Join(string(bytes.TrimSpace(out)), "peers"), nil
}

// buildPeers builds all peers into dir.
func buildPeers(ctx context.Context, source, dir string) error {
	progress("building the peers; the first time fetches their modules")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", dir+string(filepath.Separator), "./...") //nolint:gosec // A directory of our own.
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "GOWORK=off")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build the peers: %w", err)
	}
	return nil
}

// restateServer returns the program of the Restate server. It comes as an npm
// package with the binary inside; the lock file pins it.
func restateServer(ctx context.Context, source string) (string, error) {
	if found, err := exec.LookPath("restate-server"); err == nil {
		return found, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "reprise-bench", "restate")
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	binary := filepath.Join(dir, "node_modules", "@restatedev", "restate-server-"+runtime.GOOS+"-"+arch, "bin", "restate-server")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	current := true
	for _, name := range []string{"package.json", "package-lock.json"} {
		want, err := os.ReadFile(filepath.Join(source, "restate", name))
		if err != nil {
			return "", err
		}
		have, _ := os.ReadFile(filepath.Join(dir, name))
		current = current && bytes.Equal(want, have)
		if err := os.WriteFile(filepath.Join(dir, name), want, 0o600); err != nil { //nolint:gosec // The same.
			return "", err
		}
	}
	if _, err := os.Stat(binary); err == nil && current {
		return binary, nil
	}
	progress("fetching restate-server with npm")
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("restate-server is not on the PATH, and npm can't install it (Debian package npm): %w\n%s", err, out)
	}
	return binary, nil
}

// startProgram starts a peer and waits until it serves.
func startProgram(ctx context.Context, path string, args ...string) (*program, error) {
	p := &program{cmd: exec.CommandContext(ctx, path, args...), stderr: new(bytes.Buffer)}
	p.cmd.Stderr = p.stderr
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.stdin, p.pid = stdin, p.cmd.Process.Pid
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &p.ready)
	}
	if err != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		return nil, fmt.Errorf("%s did not start: %w: %s", filepath.Base(path), err, bytes.TrimSpace(p.stderr.Bytes()))
	}
	return p, nil
}

// stop ends the program, which ends when its standard input does.
func (p *program) stop() error {
	_ = p.stdin.Close()
	late := time.AfterFunc(15*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	if err := p.cmd.Wait(); err != nil {
		return errors.Join(err, errors.New(string(bytes.TrimSpace(p.stderr.Bytes()))))
	}
	return nil
}
