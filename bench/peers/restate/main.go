// SPDX-License-Identifier: Apache-2.0

// Command restate does the job with Restate: its ingress takes the key, and the
// handler's durable step does the transaction. Restate does not commit the step
// together with the transaction, so a crash between the two repeats the rows.
//
// The server is one node with its own defaults, and keeps its files in -dir.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	restate "github.com/restatedev/sdk-go"
	"github.com/restatedev/sdk-go/server"

	"github.com/reprise-go/reprise/bench/peers/job"
)

// The kernel ties the death of a child to the thread that started it, which is this
// one until the program ends.
func init() { runtime.LockOSThread() }

func main() { job.Main(run) }

// Orders is the service.
type Orders struct{ pool *pgxpool.Pool }

// Create is its handler.
func (s Orders) Create(c restate.Context, r job.Request) (job.Order, error) {
	return restate.Run(c, func(ctx restate.RunContext) (job.Order, error) {
		o := job.NewOrder(r)
		return o, pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return job.WriteBoth(ctx, tx, o) })
	})
}

func run(ctx context.Context) error {
	binary := flag.String("server", "restate-server", "the server's program")
	dir := flag.String("dir", "", "directory for the server's files")
	pool, err := job.Pool(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	endpoint, err := serveSDK(ctx, pool)
	if err != nil {
		return err
	}
	version, err := exec.CommandContext(ctx, *binary, "--version").Output()
	if err != nil {
		return fmt.Errorf("%s --version: %w", *binary, err)
	}
	ingress, stop, err := startServer(ctx, *binary, *dir, endpoint)
	if err != nil {
		return err
	}
	defer stop()
	return job.Wait(job.Ready{
		Address: ingress, Path: "/Orders/Create", Events: job.CountEvents,
		Versions: append(job.Versions("github.com/restatedev/sdk-go", "github.com/jackc/pgx/v5"), strings.TrimSpace(string(version))),
	})
}

func serveSDK(ctx context.Context, pool *pgxpool.Pool) (address string, err error) {
	h, err := server.NewRestate().
		WithLogger(slog.NewTextHandler(io.Discard, nil), false).
		Bind(restate.Reflect(Orders{pool})).
		Handler()
	if err != nil {
		return "", err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: h, Protocols: protocols, BaseContext: func(net.Listener) context.Context { return ctx }} //nolint:gosec // On loopback.
	go func() { _ = s.Serve(l) }()
	return l.Addr().String(), nil
}

// startServer starts the server and registers the service with it.
func startServer(ctx context.Context, binary, dir, endpoint string) (ingress string, stop func(), err error) {
	ports, err := freePorts(3)
	if err != nil {
		return "", nil, err
	}
	log, err := os.Create(filepath.Join(dir, "restate.log"))
	if err != nil {
		return "", nil, err
	}
	defer log.Close()
	node, admin, ingress := ports[0], ports[1], ports[2]
	cmd := exec.CommandContext(ctx, binary, "--no-logo", "--base-dir", dir, "--node-name", "bench", "--listen-mode", "tcp")
	cmd.Env = append(os.Environ(),
		"RESTATE_BIND_ADDRESS="+node, "RESTATE_ADVERTISED_ADDRESS=http://"+node,
		"RESTATE_ADMIN__BIND_ADDRESS="+admin, "RESTATE_INGRESS__BIND_ADDRESS="+ingress,
		"RESTATE_DISABLE_TELEMETRY=true", "DO_NOT_TRACK=1")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	if err := register(ctx, admin, endpoint); err != nil {
		stop()
		text, _ := os.ReadFile(log.Name())
		return "", nil, fmt.Errorf("%w; the server said: %s", err, text)
	}
	return ingress, stop, nil
}

// register tells the server of the service, as soon as it listens and takes calls.
func register(ctx context.Context, admin, endpoint string) error {
	content, err := json.Marshal(map[string]string{"uri": "http://" + endpoint})
	if err != nil {
		return err
	}
	var last error
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(100 * time.Millisecond) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+admin+"/deployments", bytes.NewReader(content))
		if err != nil {
			return err
		}
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			last = err
			continue
		}
		text, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode < 300 {
			return nil
		}
		last = errors.New(answer.Status + ": " + string(text))
	}
	return fmt.Errorf("restate-server did not take the service: %w", last)
}

func freePorts(n int) (addresses []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}
