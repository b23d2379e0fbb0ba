// SPDX-License-Identifier: Apache-2.0

package shop_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFullDisk makes real writes of the shop fail, by a limit on the size of its
// files, as a full disk would: at some moment, and for as long as there is no
// room. Nothing may be half there, and nothing may be lost when there is room.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	pr := openProvider(t)
	path := filepath.Join(t.TempDir(), "shop.db")
	p := start(t, "--db", "sqlite:"+path, "--psp", pr.url, "--lease", "500ms")
	w := p.world(pr)
	create := func(key, ref string) reply {
		body := orderBody(ref)
		body["sku"] = strings.Repeat("s", 255)
		return w.do(call{method: "POST", path: "/orders", key: key, body: body})
	}
	order := w.order("before")
	w.settle("before", unpaid)

	var used int64
	for _, name := range []string{path, path + "-wal"} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		used = max(used, info.Size())
	}
	limit := func(bytes uint64) {
		if err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}, nil); err != nil {
			t.Fatal(err)
		}
	}
	limit(uint64(used) + 64<<10)

	kept := map[string]reply{}
	var lost []string
	refused := map[string]bool{} // for certain, that is
	for len(lost) < 5 {
		key := newKey()
		switch r := create(key, key); r.status {
		case 201:
			kept[key] = r
		case 503:
			if r.text("retry") != "same-key" || r.header.Get("Retry-After") == "" {
				t.Error(r)
			}
			lost = append(lost, key)
			refused[key] = r.text("outcome") == "not-processed"
		default:
			t.Fatal(r)
		}
		if len(kept) > 10_000 {
			t.Fatal("the limit does not bite")
		}
	}
	pay := newKey()
	if r := w.pay(order, pay, "before"); r.status != 503 {
		t.Fatal(r)
	}
	if len(pr.charges()) > 0 {
		t.Error("the provider was called although that could not be recorded")
	}
	if r := w.get(order); r.status != 200 {
		t.Errorf("reading needs no room: %v", r)
	}
	for key, first := range kept {
		if again := create(key, key); again.body != first.body || !again.replayed() {
			t.Fatalf("what was acknowledged is lost: %v", again)
		}
	}

	limit(unix.RLIM_INFINITY)
	for _, key := range lost {
		r := create(key, key)
		w.want(r, 201, "")
		if r.replayed() && refused[key] {
			t.Errorf("what was refused as not processed was processed: %v", r)
		}
		w.settle(key, unpaid)
	}
	for key := range kept {
		w.settle(key, unpaid)
	}
	w.want(w.insist(order, pay, "before"), 201, "")
	w.settle("before", paid)
}
