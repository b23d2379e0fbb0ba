// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/reprise-go/reprise/torture/sqlwire"
)

// Wire is a service whose database is reached through a fault proxy.
type Wire struct {
	Protocol sqlwire.Protocol
	// Server is the host and port of the database.
	Server string
	// Modes are those that can be asked for.
	Modes []Mode
	// Open opens the service in this process, on a database at addr.
	Open func(ctx context.Context, addr string) (Program, error)
	// Command is a process that does the same and calls Serve. It is needed for
	// modes that need a process.
	Command func(addr string) *exec.Cmd
	// Terminate ends a session of the server, and Interrupt cancels its statement.
	Terminate, Interrupt func(ctx context.Context, session uint32) error
	// Count implements Effects.
	Count func(ctx context.Context, o Order) (Effects, error)
	// Expect implements Want.
	Expect Effects
}

var _ Service = (*Wire)(nil)

// Effects implements Service.
func (w *Wire) Effects(ctx context.Context, o Order) (Effects, error) { return w.Count(ctx, o) }

// Want implements Service.
func (w *Wire) Want() Effects { return w.Expect }

// Start implements Service.
func (w *Wire) Start(ctx context.Context, in Injection) (Instance, error) {
	i := &wireInstance{
		wire: w, at: in.At, ctx: context.WithoutCancel(ctx),
		held: make(chan struct{}), release: make(chan struct{}),
	}
	if in.At > 0 {
		n := slices.IndexFunc(w.Modes, func(m Mode) bool { return m.Name == in.Mode })
		if n < 0 {
			return nil, fmt.Errorf("crash: the service has no mode %q", in.Mode)
		}
		i.mode = w.Modes[n]
	}
	var err error
	if i.proxy, err = sqlwire.Listen(ctx, w.Protocol, "127.0.0.1:0", w.Server, nil); err != nil {
		return nil, err
	}
	if i.mode.Process {
		i.process, err = startProcess(w.Command(i.proxy.Addr()))
		i.Program = i.process
	} else {
		i.Program, err = w.Open(ctx, i.proxy.Addr())
	}
	if err != nil {
		return nil, errors.Join(err, i.proxy.Close())
	}
	if in.At > 0 {
		i.proxy.SetPlan(i.plan)
	}
	return i, nil
}

// wireInstance is an instance of a Wire.
type wireInstance struct {
	Program

	wire    *Wire
	ctx     context.Context
	mode    Mode
	at      int64
	proxy   *sqlwire.Proxy
	process *process

	points atomic.Int64
	hit    atomic.Bool
	// held is closed when the attempt is held, and release when it may go on.
	held, release                  chan struct{}
	holdOnce, releaseOnce, endOnce sync.Once
}

// plan strikes at the point that was asked for.
func (i *wireInstance) plan(at sqlwire.Point) sqlwire.Fault {
	if !i.mode.applies(at) {
		return sqlwire.Fault{}
	}
	n := i.points.Add(1)
	if n != i.at && (!i.mode.Lasting || n < i.at) {
		return sqlwire.Fault{}
	}
	i.hit.Store(true)
	return i.mode.strike(i, at)
}

// Attempt implements Program. After it the faults are over.
func (i *wireInstance) Attempt(ctx context.Context, o Order) Answer {
	defer i.endOnce.Do(func() { i.proxy.SetPlan(nil) })
	return i.Program.Attempt(ctx, o)
}

// Hit implements Instance.
func (i *wireInstance) Hit() bool { return i.hit.Load() }

// Held implements Instance.
func (i *wireInstance) Held() <-chan struct{} { return i.held }

// Release implements Instance.
func (i *wireInstance) Release() { i.releaseOnce.Do(func() { close(i.release) }) }

// Alive implements Instance.
func (i *wireInstance) Alive() bool { return i.process == nil || !i.process.exited() }

// Close implements Program.
func (i *wireInstance) Close() error { return errors.Join(i.Program.Close(), i.proxy.Close()) }

func (i *wireInstance) hold() { i.holdOnce.Do(func() { close(i.held) }) }

func (i *wireInstance) partition(sqlwire.Point) sqlwire.Fault {
	i.hold()
	return sqlwire.Fault{Kind: sqlwire.Blackhole, Release: i.release}
}

func (i *wireInstance) freeze(sqlwire.Point) sqlwire.Fault {
	i.hold()
	<-i.release
	return sqlwire.Fault{}
}

func (i *wireInstance) terminate(at sqlwire.Point) sqlwire.Fault {
	if err := i.wire.Terminate(i.ctx, at.Session); err != nil {
		panic(err)
	}
	return sqlwire.Fault{}
}

// interrupt asks for the cancellation while the statement is on its way: by the
// protocol where it can, and otherwise by another session.
func (i *wireInstance) interrupt(at sqlwire.Point) sqlwire.Fault {
	if i.wire.Interrupt == nil {
		return sqlwire.Fault{Kind: sqlwire.Cancel}
	}
	go func() { _ = i.wire.Interrupt(i.ctx, at.Session) }() // the session may be over by then
	return sqlwire.Fault{}
}

func (i *wireInstance) kill(sqlwire.Point) sqlwire.Fault {
	i.process.signal(syscall.SIGKILL)
	<-i.process.ended // and nothing can happen in it any more
	return sqlwire.Fault{Kind: sqlwire.Reset}
}

func (i *wireInstance) stop(sqlwire.Point) sqlwire.Fault {
	i.process.signal(syscall.SIGSTOP)
	i.hold()
	<-i.release
	i.process.signal(syscall.SIGCONT)
	return sqlwire.Fault{}
}
