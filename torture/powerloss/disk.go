// SPDX-License-Identifier: Apache-2.0

package powerloss

import (
	"bytes"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ncruces/go-sqlite3/vfs"
)

// Operation is one entry of the record.
type Operation struct {
	Kind Kind
	// File is the name within its directory.
	File string
	// Offset and Data of a Write, Size of a Truncate.
	Offset int64
	Data   []byte
	Size   int64

	// inode is the file itself, whatever becomes of its name.
	inode int
	label string // of an acknowledgement
}

// Kind is what an operation does.
type Kind string

// The kinds of operations. An acknowledgement is not one of the disk.
const (
	Create          Kind = "create"
	Write           Kind = "write"
	Truncate        Kind = "truncate"
	Sync            Kind = "sync"
	Delete          Kind = "delete"
	SyncDirectory   Kind = "sync directory of"
	acknowledgement Kind = "acknowledgement"
)

// String reads like "write 4096 bytes at 32 of shop.db-wal".
func (o Operation) String() string {
	switch o.Kind {
	case Write:
		return fmt.Sprintf("write %d bytes at %d of %s", len(o.Data), o.Offset, o.File)
	case Truncate:
		return fmt.Sprintf("truncate %s to %d", o.File, o.Size)
	default:
		return string(o.Kind) + " " + o.File
	}
}

// Disk is a VFS that writes down what is done to it. The files are real ones, in
// one directory; nothing of them is ever synced, because a test needs their
// record only. Safe for concurrent use.
type Disk struct {
	name string

	// Lazy, if set before the disk is used, makes Sync of the files it accepts do
	// nothing: a disk that lies, for tests of the tests.
	Lazy func(file string) bool

	mu     sync.Mutex
	inodes int
	names  map[string]int // the files that exist, by path
	log    []Operation
}

var disks atomic.Int64

// New registers a disk. Its name is its own.
func New() *Disk {
	d := &Disk{name: fmt.Sprintf("powerloss-%d", disks.Add(1)), names: map[string]int{}}
	vfs.Register(d.name, &fileSystem{disk: d, VFS: vfs.Find("")})
	return d
}

// Close takes the disk from SQLite's list. Connections that are open keep working.
func (d *Disk) Close() { vfs.Unregister(d.name) }

// DSN is the name of a database file on this disk for the ncruces driver, with
// parameters of that driver, such as "_pragma=...".
func (d *Disk) DSN(path string, parameters ...string) string {
	query := append([]string{url.Values{"vfs": {d.name}}.Encode()}, parameters...)
	return "file:" + (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath() + "?" + strings.Join(query, "&")
}

// Acknowledge notes that from now on somebody relies on label.
func (d *Disk) Acknowledge(label string) {
	d.record(Operation{Kind: acknowledgement, label: label})
}

// Operations returns the record up to now, without the acknowledgements.
func (d *Disk) Operations() []Operation {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []Operation
	for _, o := range d.log {
		if o.Kind != acknowledgement {
			out = append(out, o)
		}
	}
	return out
}

func (d *Disk) record(o Operation) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log = append(d.log, o)
}

// opened returns the inode of a file, and records that it was created if it was.
func (d *Disk) opened(path string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	inode, ok := d.names[path]
	if !ok {
		d.inodes++
		inode = d.inodes
		d.names[path] = inode
		d.log = append(d.log, Operation{Kind: Create, File: filepath.Base(path), inode: inode})
	}
	return inode
}

func (d *Disk) deleted(path string, syncDirectory bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	inode, ok := d.names[path]
	if !ok {
		return
	}
	delete(d.names, path)
	d.log = append(d.log, Operation{Kind: Delete, File: filepath.Base(path), inode: inode})
	if syncDirectory {
		d.log = append(d.log, Operation{Kind: SyncDirectory, File: filepath.Base(path)})
	}
}

// write records a write of bytes that the caller will use again.
func (d *Disk) write(f *file, data []byte, offset int64) {
	d.record(Operation{Kind: Write, File: f.base, inode: f.inode, Data: bytes.Clone(data), Offset: offset})
}

func (d *Disk) sync(f *file) {
	if d.Lazy != nil && d.Lazy(f.base) {
		return
	}
	d.record(Operation{Kind: Sync, File: f.base, inode: f.inode})
	if f.isNew {
		f.isNew = false
		d.record(Operation{Kind: SyncDirectory, File: f.base})
	}
}
