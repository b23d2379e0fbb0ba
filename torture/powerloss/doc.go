// SPDX-License-Identifier: Apache-2.0

// Package powerloss shows what a loss of power can leave of a SQLite database.
//
// A Disk is a file system for SQLite (a VFS of github.com/ncruces/go-sqlite3) that
// works like any other and writes down every change of a file, every sync and
// every change of a directory. From that record Images makes what may be found
// after the power went out at each point: before every operation, and after the
// last one. Nothing has to be run again for each point, because a process that
// has lost its power does nothing more that could be seen.
//
//	disk, err := powerloss.New()
//	defer disk.Close()
//	db, err := driver.Open(disk.DSN(filepath.Join(dir, "shop.db")))
//	... // disk.Acknowledge("order 7") after everything that somebody was told
//	for image := range disk.Images(seed) {
//		// write image.Files somewhere, open them with SQLite's own VFS, and look
//		// whether image.Acknowledged is all there
//	}
//
// # The disk's promises
//
// What was synced stays. What was written and not synced is there or not, each
// write by itself and in torn images each sector of it, and a hole that is left
// before a later write is filled with garbage. The name of a new file, and the
// end of a deleted one, are on the disk once its directory was synced, which
// SQLite's VFS does with the first sync of a journal. That is less than most file
// systems promise, and what SQLite relies on (https://www.sqlite.org/atomiccommit.html).
// A sector is written as a whole, and a write of a part of one leaves the rest as
// it was (IOCAP_POWERSAFE_OVERWRITE, SQLite's assumption by default).
//
// The WAL-index is shared memory and is not on the disk.
package powerloss
