// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package dbserver

import (
	"errors"
	"os"
	"syscall"
)

// Servers need Linux: elsewhere nothing ends a child with its parent. The rest of
// the package builds, and says so.

type account struct{}

func accountOf(string, string) (*account, error) {
	return nil, errors.New("dbserver: servers are started on Linux only")
}

func (*account) own(string) error                               { return nil }
func (*account) attributes(syscall.Signal) *syscall.SysProcAttr { return nil }
func lock(*os.File) error                                       { return nil }
func killTree(p *os.Process) error                              { return p.Kill() }
func removeSharedMemory(int)                                    {}

const (
	signalQuit = syscall.SIGQUIT
	signalKill = syscall.SIGKILL
)
