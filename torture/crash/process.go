// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"github.com/reprise-go/reprise"
)

// Serve is the main function of a service in a process of its own: it reads one
// order a line from r and writes the answer to w, until r ends.
func Serve(ctx context.Context, p Program, r io.Reader, w io.Writer) error {
	orders, answers := json.NewDecoder(r), json.NewEncoder(w)
	if err := answers.Encode(ready); err != nil {
		return err
	}
	for {
		var o Order
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return p.Close()
		} else if err != nil {
			return err
		}
		if err := answers.Encode(p.Attempt(ctx, o)); err != nil {
			return err
		}
	}
}

// ready is what a process says first.
const ready = "ready"

// process is a Program in a process of its own.
type process struct {
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	orders  *json.Encoder
	answers *json.Decoder
	stderr  bytes.Buffer
	ended   chan struct{} // closed when it has ended and was waited for
	mu      sync.Mutex    // serialises attempts
}

// startProcess starts a process and returns when it is ready.
func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, ended: make(chan struct{})}
	cmd.Stderr = &p.stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// Not StdoutPipe, whose end Wait would close under a reader.
	stdout, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = write
	err = cmd.Start()
	_ = write.Close()
	if err != nil {
		return nil, errors.Join(err, stdout.Close())
	}
	p.stdin, p.orders, p.answers = stdin, json.NewEncoder(stdin), json.NewDecoder(stdout)
	go func() {
		_ = cmd.Wait() // how it ended is asked by its answers
		close(p.ended)
	}()
	var said string
	if err := p.answers.Decode(&said); err != nil || said != ready {
		p.signal(syscall.SIGKILL)
		<-p.ended
		return nil, fmt.Errorf("crash: a process did not start: %w: %s", err, p.stderr.Bytes())
	}
	return p, nil
}

// Attempt implements Program. A process that dies gives no answer.
func (p *process) Attempt(_ context.Context, o Order) Answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	var a Answer
	err := p.orders.Encode(o)
	if err == nil {
		err = p.answers.Decode(&a)
	}
	if err != nil {
		<-p.ended // what does not answer has died
		return Answer{Outcome: reprise.Unknown, Detail: "the process died: " + err.Error()}
	}
	return a
}

// Close implements Program.
func (p *process) Close() error {
	err := p.stdin.Close()
	<-p.ended
	if errors.Is(err, os.ErrClosed) {
		return nil // Wait has closed it
	}
	return err
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) } // it may have ended

func (p *process) exited() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// StartMortal starts a process that calls Serve and kills itself at some point.
// That it has died is that the point was reached.
func StartMortal(cmd *exec.Cmd) (Instance, error) {
	p, err := startProcess(cmd)
	if err != nil {
		return nil, err
	}
	return mortal{p}, nil
}

// mortal is a process as an instance.
type mortal struct{ *process }

// Hit implements Instance. A process that gave no answer has died, and its end is
// waited for.
func (m mortal) Hit() bool { return m.exited() }

// Held implements Instance.
func (m mortal) Held() <-chan struct{} { return nil }

// Release implements Instance.
func (m mortal) Release() {}

// Alive implements Instance.
func (m mortal) Alive() bool { return !m.exited() }

// Healthy is a program in which no fault strikes, as an instance.
func Healthy(p Program) Instance { return healthy{p} }

type healthy struct{ Program }

// Hit implements Instance.
func (healthy) Hit() bool { return false }

// Held implements Instance.
func (healthy) Held() <-chan struct{} { return nil }

// Release implements Instance.
func (healthy) Release() {}

// Alive implements Instance.
func (healthy) Alive() bool { return true }
