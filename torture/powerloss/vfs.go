// SPDX-License-Identifier: Apache-2.0

package powerloss

import (
	"path/filepath"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"
)

// temporary are the files that SQLite forgets with the process.
const temporary = vfs.OPEN_TEMP_DB | vfs.OPEN_TRANSIENT_DB | vfs.OPEN_TEMP_JOURNAL | vfs.OPEN_SUBJOURNAL

// journals are the files with whose first sync SQLite's own VFS syncs the
// directory, if it made them.
const journals = vfs.OPEN_MAIN_JOURNAL | vfs.OPEN_SUPER_JOURNAL | vfs.OPEN_WAL

// fileSystem is the VFS of a Disk around the operating system's: the files, the
// locks and the shared memory are that one's.
type fileSystem struct {
	vfs.VFS
	disk *Disk
}

var _ vfs.VFSFilename = (*fileSystem)(nil)

func (s *fileSystem) Open(name string, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	if name == "" {
		return s.OpenFilename(nil, flags)
	}
	return nil, flags, sqlite3.CANTOPEN
}

func (s *fileSystem) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	f, got, err := vfsutil.WrapOpenFilename(s.VFS, name, flags)
	if err != nil || name.String() == "" || flags&temporary != 0 {
		return f, got, err
	}
	return &file{
		File: f, disk: s.disk, base: filepath.Base(name.String()), inode: s.disk.opened(name.String()),
		isNew: flags&vfs.OPEN_CREATE != 0 && flags&journals != 0,
	}, got, nil
}

func (s *fileSystem) Delete(path string, syncDirectory bool) error {
	err := s.VFS.Delete(path, false)
	if err == nil {
		s.disk.deleted(path, syncDirectory)
	}
	return err
}

// file is an open file. It offers no memory map, so that all reading and writing
// of the database passes here.
type file struct {
	vfs.File
	disk  *Disk
	base  string
	inode int
	isNew bool // the directory is to be synced with the file
}

var _ vfs.FileSharedMemory = (*file)(nil)

func (f *file) SharedMemory() vfs.SharedMemory { return vfsutil.WrapSharedMemory(f.File) }

// Unwrap implements vfs.FileUnwrap.
func (f *file) Unwrap() vfs.File { return f.File }

func (f *file) WriteAt(b []byte, offset int64) (int, error) {
	n, err := f.File.WriteAt(b, offset)
	f.disk.write(f, b[:n], offset)
	return n, err
}

func (f *file) Truncate(size int64) error {
	err := f.File.Truncate(size)
	if err == nil {
		f.disk.record(Operation{Kind: Truncate, File: f.base, inode: f.inode, Size: size})
	}
	return err
}

func (f *file) Sync(vfs.SyncFlag) error {
	f.disk.sync(f)
	return nil
}

func (f *file) DeviceCharacteristics() vfs.DeviceCharacteristic { return vfs.IOCAP_POWERSAFE_OVERWRITE }
