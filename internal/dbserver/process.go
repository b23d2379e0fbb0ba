// SPDX-License-Identifier: Apache-2.0

package dbserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// startLimit bounds a start whose context has no deadline, and a stop. It is for what
// hangs, not for what is slow.
const startLimit = 5 * time.Minute

// pollInterval is between two looks at a server that has no way to call back. A
// look may cost a process, on a machine that is busy starting servers.
const pollInterval = 20 * time.Millisecond

// process is one running server.
type process struct {
	name string
	log  string // The file that has its stderr.
	cmd  *exec.Cmd
	// done is closed when it has ended, after err was set.
	done chan struct{}
	err  error
}

// start runs a program as a child that gets the signal death when this process
// ends in whatever way.
func start(as *account, death syscall.Signal, log, program string, args ...string) (*process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	// The child must outlive the context of the call that starts it.
	cmd := exec.Command(program, args...) //nolint:noctx // See above.
	cmd.Stdout, cmd.Stderr = file, file
	cmd.Dir = filepath.Dir(log)
	cmd.Env = environment(cmd.Dir)
	cmd.SysProcAttr = as.attributes(death)
	p := &process{name: filepath.Base(program), log: log, cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The kernel ties the signal at a parent's death to the thread that forked.
		// This one lives as long as its child: nothing else runs on it, so the
		// runtime can't end it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("dbserver: %w", err)
	}
	return p, nil
}

// environment is that of this process without what would steer the servers or
// their clients elsewhere, and with UTC, which also spares initdb a search.
func environment(dir string) []string {
	env := []string{"TZ=UTC", "LC_ALL=C", "TMPDIR=" + dir}
	for _, e := range os.Environ() {
		switch name, _, _ := strings.Cut(e, "="); {
		case strings.HasPrefix(name, "PG"), strings.HasPrefix(name, "MYSQL"), strings.HasPrefix(name, "MARIADB"),
			strings.HasPrefix(name, "LC_"), name == "LANG", name == "LANGUAGE", name == "TZ", name == "TMPDIR":
		default:
			env = append(env, e)
		}
	}
	return env
}

// ready waits until the server listens on its socket and answers the probe.
func (p *process) ready(ctx context.Context, network, address string, probe func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	err := errors.New("it doesn't listen")
	for {
		// A connection costs less than a client program; it comes first.
		c, dialErr := (&net.Dialer{}).DialContext(ctx, network, address)
		if dialErr == nil {
			_ = c.Close()
			if err = probe(ctx); err == nil {
				return nil
			}
		}
		select {
		case <-p.done:
			if log := p.tail(); portTaken(log) {
				return errPortTaken
			}
			return fmt.Errorf("dbserver: %s ended (%w) before it was ready:\n%s", p.name, p.err, p.tail())
		case <-ctx.Done():
			return fmt.Errorf("dbserver: %s is not ready (%w; %w):\n%s", p.name, ctx.Err(), err, p.tail())
		case <-time.After(pollInterval):
		}
	}
}

// tail returns the end of the log.
func (p *process) tail() string {
	const most = 4000
	log, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(log[max(0, len(log)-most):]))
}

// end sends the signal and waits; a server that does not obey is killed.
func (p *process) end(signal os.Signal) error {
	err := p.cmd.Process.Signal(signal)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(startLimit):
		err := fmt.Errorf("dbserver: %s ignores %v:\n%s", p.name, signal, p.tail())
		return errors.Join(err, p.kill())
	}
}

// kill ends the server and its children by SIGKILL, and waits for the server.
func (p *process) kill() error {
	select {
	case <-p.done:
		return nil
	default:
	}
	if err := killTree(p.cmd.Process); err != nil {
		return fmt.Errorf("dbserver: kill of %s: %w", p.name, err)
	}
	<-p.done
	return nil
}

// run runs a program to its end and returns what it printed.
func run(ctx context.Context, as *account, dir, stdin, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = environment(dir)
	cmd.SysProcAttr = as.attributes(signalKill)
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	runtime.LockOSThread() // For the signal at this thread's death, as above.
	defer runtime.UnlockOSThread()
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("dbserver: %s: %w: %s", filepath.Base(program), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSuffix(stdout.String(), "\n"), nil
}
