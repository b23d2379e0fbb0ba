// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/reprise-go/reprise"
)

// holder is what a service can do for the measurements that need another process.
type holder interface {
	// hold claims the key, inserts an order, says so on standard output and stays in
	// the transaction until the process ends.
	hold(ctx context.Context, key reprise.Key) error
}

// holders open a service by the name of its driver.
var holders = map[string]func(ctx context.Context, dsn string) (holder, error){
	"mariadb": func(ctx context.Context, dsn string) (holder, error) {
		s, _, err := openMariaDB(ctx, dsn)
		return s, err
	},
	"pgx": func(ctx context.Context, dsn string) (holder, error) {
		s, _, err := openPgx(ctx, dsn)
		return s, err
	},
	"postgres": func(ctx context.Context, dsn string) (holder, error) {
		s, _, err := openPostgres(ctx, dsn)
		return s, err
	},
	"sqlite": func(ctx context.Context, path string) (holder, error) { return openSQLite(ctx, path) },
}

func (s *service[TTx]) hold(ctx context.Context, key reprise.Key) error {
	_, err := s.do(ctx, key, 1, func(ctx context.Context) error {
		fmt.Println("held")
		<-ctx.Done() // Nobody lets it go: it is killed.
		return ctx.Err()
	})
	return err
}

// runHold is the child process of a takeover: "bench hold DRIVER DSN KEY".
func runHold(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return errors.New("usage: bench hold DRIVER DSN KEY")
	}
	open, ok := holders[args[0]]
	if !ok {
		return fmt.Errorf("there is no driver %q", args[0])
	}
	h, err := open(ctx, args[1])
	if err != nil {
		return err
	}
	return h.hold(ctx, reprise.Key(args[2]))
}

// takeover measures how long after the SIGKILL of its owner a key is executed again,
// for somebody who waits for it in another process. The owner is a real process,
// killed inside of its transaction.
func (s *service[TTx]) takeover(ctx context.Context, driver, dsn string, samples int) (took []time.Duration, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	for n := range samples {
		if n%25 == 0 {
			progress("takeover on %s: %d of %d", driver, n, samples)
		}
		d, err := s.takeoverOnce(ctx, self, driver, dsn)
		if err != nil {
			return nil, fmt.Errorf("takeover on %s: %w", driver, err)
		}
		took = append(took, d)
	}
	slices.Sort(took)
	return took, nil
}

func (s *service[TTx]) takeoverOnce(ctx context.Context, self, driver, dsn string) (time.Duration, error) {
	key := reprise.NewKey()
	child := exec.CommandContext(ctx, self, "hold", driver, dsn, string(key))
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := child.Start(); err != nil {
		return 0, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != "held" {
		_ = child.Process.Kill()
		return 0, errors.Join(fmt.Errorf("the owner said %q", line), err, child.Wait())
	}
	var killed time.Time
	done := make(chan error, 1)
	go func() {
		a, err := s.do(ctx, key, 1, nil)
		if err == nil && a.Replayed {
			err = errors.New("the key was answered, though its owner never committed")
		}
		done <- err
	}()
	// By then the one who waits looks as seldom as it ever does.
	select {
	case err := <-done:
		_ = child.Process.Kill()
		return 0, errors.Join(errors.New("the key was free while its owner lived"), err, child.Wait())
	case <-time.After(100*time.Millisecond + rand.N(50*time.Millisecond)):
	}
	killed = time.Now()
	if err := child.Process.Kill(); err != nil {
		return 0, err
	}
	if err := <-done; err != nil {
		return 0, err
	}
	took := time.Since(killed)
	s.made.Add(1)
	_ = child.Wait() // It was killed.
	return took, nil
}
