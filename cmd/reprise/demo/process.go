// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// startTimeout bounds the time from exec to the last listener's line.
const startTimeout = 15 * time.Second

// process is one running subcommand of this program.
type process struct {
	cmd *exec.Cmd
	// addr of each listener by its role, as the process printed it.
	addr map[string]string
	// done is closed when the process is gone; err is how it ended.
	done chan struct{}
	err  error
}

// start runs this program with args, appends its log to a file, and waits until
// it has announced a listener for each role.
func start(ctx context.Context, logFile string, roles []string, args ...string) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own copy of the descriptor

	// A process of its own group does not see the terminal's Ctrl-C: the demo ends
	// it itself, in order.
	cmd := exec.Command(program, args...) //nolint:noctx // our own binary, which is ended in order and not by a context
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = log
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, addr: map[string]string{}, done: make(chan struct{})}
	ready := make(chan error, 1)
	go func() {
		lines := bufio.NewScanner(stdout)
		ready <- p.readListeners(lines, roles)
		_, _ = io.Copy(io.Discard, stdout)
		p.err = cmd.Wait()
		close(p.done)
	}()
	select {
	case err = <-ready:
	case <-time.After(startTimeout):
		err = fmt.Errorf("no listener within %s", startTimeout)
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		_ = cmd.Process.Kill()
		return nil, fmt.Errorf("start %q: %w; its log is %s", args[0], err, logFile)
	}
	return p, nil
}

// readListeners reads lines such as {"listening":"127.0.0.1:8080","role":"api"}.
func (p *process) readListeners(lines *bufio.Scanner, roles []string) error {
	for len(p.addr) < len(roles) {
		if !lines.Scan() {
			return errors.New("the process ended before it listened")
		}
		var l struct {
			Listening string `json:"listening"`
			Role      string `json:"role"`
		}
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return fmt.Errorf("unexpected line on standard output: %q", lines.Text())
		}
		p.addr[l.Role] = l.Listening
	}
	for _, role := range roles {
		if p.addr[role] == "" {
			return fmt.Errorf("the process announced no listener for role %q", role)
		}
	}
	return nil
}

// kill ends the process the way a power cut or the OOM killer does, and waits
// until it is gone.
func (p *process) kill() error {
	if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

// stop asks the process to drain and end, and kills it if it does not.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		return p.err
	case <-time.After(startTimeout):
		return errors.Join(errors.New("the process did not end after SIGTERM"), p.kill())
	}
}
