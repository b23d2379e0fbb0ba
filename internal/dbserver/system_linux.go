// SPDX-License-Identifier: Apache-2.0

package dbserver

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"
)

// account is the user that a server runs as; nil is the current one.
type account struct{ uid, gid uint32 }

// accountOf returns the account for a server: the named user when this process
// is root, else the current one, who could not become another anyway.
func accountOf(name, debian string) (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("dbserver: the server doesn't run as root, and its user is missing (%w); install it by: apt-get install %s", err, debian)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &account{uid: uint32(uid), gid: uint32(gid)}, nil
}

// own gives a file to the account.
func (a *account) own(path string) error {
	if a == nil {
		return nil
	}
	return os.Chown(path, int(a.uid), int(a.gid))
}

// attributes make a child run as the account, in a process group of its own so
// that an interrupt of the terminal doesn't reach it before its clients, and have
// the kernel send it the signal when the thread that started it ends.
func (a *account) attributes(death syscall.Signal) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: death}
	if a != nil {
		attr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	return attr
}

// lock takes the file for this process alone, or fails at once.
func lock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// killTree kills a process and its children with SIGKILL. The process stands
// still before its children are counted, so it can't have one more.
func killTree(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return ignoreFinished(err)
	}
	list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.Pid, p.Pid))
	if err != nil {
		return errors.Join(err, p.Kill())
	}
	err = ignoreFinished(p.Kill())
	for field := range strings.FieldsSeq(string(list)) {
		pid, atoi := strconv.Atoi(field)
		if atoi != nil {
			return errors.Join(err, atoi)
		}
		if e := syscall.Kill(pid, syscall.SIGKILL); e != nil && !errors.Is(e, syscall.ESRCH) {
			err = errors.Join(err, e)
		}
	}
	return err
}

func ignoreFinished(err error) error {
	if errors.Is(err, os.ErrProcessDone) || errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// removeSharedMemory removes the System V segment by which PostgreSQL recognises
// a second server on the same data. A killed server can't do that itself.
func removeSharedMemory(id int) {
	const ipcRemove = 0
	// An error means that it is gone already, which is what is wanted.
	_, _, _ = syscall.Syscall(syscall.SYS_SHMCTL, uintptr(id), ipcRemove, 0) //nolint:dogsled // See above.
}

const (
	signalQuit = syscall.SIGQUIT
	signalKill = syscall.SIGKILL
)
