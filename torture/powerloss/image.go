// SPDX-License-Identifier: Apache-2.0

package powerloss

import (
	"hash/maphash"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// Image is what a loss of power at one point may leave.
type Image struct {
	// Point counts the operations that were done, and Next is the one that was not.
	// Next is nil after the last one.
	Point int
	Next  *Operation
	// Kept says what became of the writes that were not synced.
	Kept Kept
	// Files holds the contents by name. A file that is missing is not there.
	Files map[string][]byte
	// Acknowledged holds the labels that were acknowledged by then.
	Acknowledged []string
}

// Kept says which of the operations that were not synced have reached the disk.
type Kept string

// The four ways.
const (
	None Kept = "none of the unsynced writes"
	All  Kept = "all of the unsynced writes"
	Half Kept = "a random half of the unsynced writes"
	Torn Kept = "a random half of the unsynced sectors"
)

// sector is the unit that the disk writes as a whole.
const sector = 512

// WriteTo puts the files into a directory.
func (i Image) WriteTo(dir string) error {
	for name, data := range i.Files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Count is what Images went through.
type Count struct {
	// Points are operations of the disk plus one, Images what was yielded, and Same
	// what was left out because its files and acknowledgements were those of an
	// image before it.
	Points, Images, Same int
}

// Images yields what may be left of the disk, for each point of the record as it
// is now and each way of Kept. Equal seeds yield equal images. count may be nil.
func (d *Disk) Images(seed uint64, count *Count) iter.Seq[Image] {
	d.mu.Lock()
	log := slices.Clone(d.log)
	d.mu.Unlock()
	if count == nil {
		count = new(Count)
	}
	return func(yield func(Image) bool) {
		s := state{durable: map[string]int{}, files: map[int]*content{}}
		seen := map[uint64]bool{}
		var acknowledged []string
		for i := 0; i <= len(log); i++ {
			if i < len(log) && log[i].Kind == acknowledgement {
				acknowledged = append(acknowledged, log[i].label)
				continue
			}
			for n, kept := range []Kept{None, All, Half, Torn} {
				r := rand.New(rand.NewPCG(seed, uint64(count.Points)<<2|uint64(n))) // repeatable, not secret
				image := Image{Point: count.Points, Kept: kept, Files: s.image(kept, r), Acknowledged: slices.Clip(acknowledged)}
				if i < len(log) {
					image.Next = &log[i]
				}
				sum := image.sum()
				if seen[sum] {
					count.Same++
					continue
				}
				seen[sum] = true
				count.Images++
				if !yield(image) {
					return
				}
			}
			count.Points++
			if i < len(log) {
				s.apply(log[i])
			}
		}
	}
}

var seedOfSums = maphash.MakeSeed()

// sum tells images apart, by their files and by how much was acknowledged.
func (i Image) sum() uint64 {
	var h maphash.Hash
	h.SetSeed(seedOfSums)
	for _, name := range slices.Sorted(maps.Keys(i.Files)) {
		maphash.WriteComparable(&h, name)
		maphash.WriteComparable(&h, len(i.Files[name]))
		_, _ = h.Write(i.Files[name])
	}
	maphash.WriteComparable(&h, len(i.Acknowledged))
	return h.Sum64()
}

// state is the disk after some operations: what is on it for certain, and what
// may be.
type state struct {
	durable map[string]int // names that are on the disk, with their inodes
	names   []Operation    // creations and deletions since the directory was synced
	files   map[int]*content
}

type content struct {
	durable []byte
	pending []Operation // writes and truncations since the last sync
}

func (s *state) apply(o Operation) {
	switch o.Kind {
	case Create:
		s.files[o.inode] = &content{}
		s.names = append(s.names, o)
	case Delete:
		s.names = append(s.names, o)
	case SyncDirectory:
		for _, n := range s.names {
			rename(s.durable, n)
		}
		s.names = nil
	case Write, Truncate:
		f := s.files[o.inode]
		f.pending = append(f.pending, o)
	case Sync:
		f := s.files[o.inode]
		for _, p := range f.pending {
			f.durable = change(f.durable, p, nil)
		}
		f.pending = nil
	case acknowledgement:
	}
}

func rename(names map[string]int, o Operation) {
	if o.Kind == Create {
		names[o.File] = o.inode
	} else if names[o.File] == o.inode {
		delete(names, o.File)
	}
}

// image is one of the possible disks.
func (s *state) image(kept Kept, r *rand.Rand) map[string][]byte {
	chosen := func() bool { return kept == All || kept != None && r.IntN(2) == 0 }
	names := maps.Clone(s.durable)
	for _, o := range s.names {
		if chosen() {
			rename(names, o)
		}
	}
	files := make(map[string][]byte, len(names))
	for _, name := range slices.Sorted(maps.Keys(names)) { // in one order, for r
		f := s.files[names[name]]
		data := slices.Clone(f.durable)
		for _, o := range f.pending {
			for _, piece := range pieces(o, kept) {
				if chosen() {
					data = change(data, piece, r)
				}
			}
		}
		files[name] = data
	}
	return files
}

// pieces are the parts of an operation that are kept or lost by themselves.
func pieces(o Operation, kept Kept) []Operation {
	if kept != Torn || o.Kind != Write {
		return []Operation{o}
	}
	var out []Operation
	for len(o.Data) > 0 {
		n := min(int64(len(o.Data)), sector-o.Offset%sector)
		piece := o
		piece.Data, o.Data = o.Data[:n], o.Data[n:]
		o.Offset += n
		out = append(out, piece)
	}
	return out
}

// change applies a write or a truncation. A hole before a write is filled with
// zeros, or with what r says.
func change(data []byte, o Operation, r *rand.Rand) []byte {
	if o.Kind == Truncate && o.Size < int64(len(data)) {
		return data[:o.Size]
	}
	data = extend(data, o.Offset, r)
	data = extend(data, max(o.Size, o.Offset+int64(len(o.Data))), nil)
	copy(data[o.Offset:], o.Data)
	return data
}

func extend(data []byte, size int64, r *rand.Rand) []byte {
	if size <= int64(len(data)) {
		return data
	}
	hole := make([]byte, size-int64(len(data)))
	if r != nil {
		for i := range hole {
			hole[i] = byte(r.Uint32())
		}
	}
	return append(data, hole...)
}
