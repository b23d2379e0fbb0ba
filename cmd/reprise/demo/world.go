// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/reprise-go/reprise/contract"
	"github.com/reprise-go/reprise/torture/proxy"
)

// lease is how long a killed shop's payment stays with it. Short, so that the
// audience does not have to wait.
const lease = 2 * time.Second

// world is everything that the demo runs against.
type world struct {
	dir   string
	db    database
	psp   *process
	shop  *process
	proxy *proxy.Proxy

	// clients is how many there are in a herd.
	clients int
	// client is the library's; plain talks to admin listeners and never retries.
	client, plain *http.Client
}

// newWorld starts the provider, the shop and the proxy, with all files in dir.
func newWorld(ctx context.Context, dir string, db database, seed int64, clients int) (w *world, err error) {
	w = &world{dir: dir, db: db, clients: clients, plain: &http.Client{Timeout: 10 * time.Second}}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	w.psp, err = start(ctx, w.file("psp.log"), []string{"psp"},
		"psp", "--listen", "127.0.0.1:0", "--db", "sqlite:"+w.file("psp.db"))
	if err != nil {
		return w, err
	}
	if err := w.startShop(ctx); err != nil {
		return w, err
	}
	w.proxy, err = proxy.Listen(ctx, "127.0.0.1:0", w.shop.addr["api"], nil)
	if err != nil {
		return w, err
	}
	promised, err := w.fetchContract(ctx)
	if err != nil {
		return w, err
	}
	w.client, err = newClient(promised, seed)
	return w, err
}

// startShop starts the shop on the same database as before, on a free port, and
// points the proxy at it.
func (w *world) startShop(ctx context.Context) (err error) {
	w.shop, err = w.newShop(ctx, "shop.log", "--lease", lease.String())
	if err == nil && w.proxy != nil {
		w.proxy.SetUpstream(w.shop.addr["api"])
	}
	return err
}

func (w *world) newShop(ctx context.Context, logName string, args ...string) (*process, error) {
	return start(ctx, w.file(logName), []string{"api", "admin"}, append([]string{
		"shop", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
		"--db", w.db.url, "--psp", "http://" + w.psp.addr["psp"],
		"--dev-auth=true",
	}, args...)...)
}

func (w *world) file(name string) string { return filepath.Join(w.dir, name) }

// url of a path of the shop's API, through the proxy.
func (w *world) url(path string) string { return "http://" + w.proxy.Addr() + path }

// close ends every process. It is safe on a world that was only half made.
func (w *world) close() (err error) {
	if w.proxy != nil {
		_ = w.proxy.Close()
	}
	for _, p := range []*process{w.shop, w.psp} {
		if p != nil {
			err = errors.Join(err, p.stop())
		}
	}
	return err
}

func (w *world) fetchContract(ctx context.Context) (*contract.Contract, error) {
	raw, err := w.get(ctx, "http://"+w.shop.addr["api"]+contract.Path)
	if err != nil {
		return nil, fmt.Errorf("read the shop's contract: %w", err)
	}
	return contract.Parse(raw)
}

// pspFault tells the provider to misbehave for its next charge.
func (w *world) pspFault(ctx context.Context, fault string) error {
	body := strings.NewReader(`{"next":1,"fault":"` + fault + `"}`)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+w.psp.addr["psp"]+"/faults", body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := w.plain.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("the provider refused the fault %q: %s", fault, resp.Status)
	}
	return nil
}

// inProgress reports whether the ledger holds a run of the operation for the caller.
func (w *world) inProgress(ctx context.Context, op string) (bool, error) {
	var list struct {
		Items []struct {
			Caller    string `json:"caller"`
			Operation string `json:"operation"`
		} `json:"items"`
	}
	if err := w.adminGet(ctx, "/ledger?state=in_progress&limit=1000", &list); err != nil {
		return false, err
	}
	for _, e := range list.Items {
		if e.Caller == w.db.caller && e.Operation == op {
			return true, nil
		}
	}
	return false, nil
}

// ErrNotEmpty means that the directory to keep files in holds something already.
var ErrNotEmpty = errors.New("the directory is not empty")

// workDir returns the directory for the demo's files and how to dispose of it.
func workDir(keep string) (dir string, dispose func(), err error) {
	if keep != "" {
		if err := os.MkdirAll(keep, 0o700); err != nil {
			return "", nil, err
		}
		entries, err := os.ReadDir(keep)
		if err != nil {
			return "", nil, err
		}
		if len(entries) > 0 {
			return "", nil, fmt.Errorf("%w: %s", ErrNotEmpty, keep)
		}
		return keep, func() {}, nil
	}
	dir, err = os.MkdirTemp("", "reprise-demo-")
	return dir, func() { _ = os.RemoveAll(dir) }, err
}
