// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/reprise-go/reprise"
)

const (
	// duplicates wait on one key whose handler takes hotWork, while bystanders make
	// orders under other keys.
	duplicates = 500
	bystanders = 8
	hotWork    = 500 * time.Millisecond
)

// hotKey measures the longest stall of bystanders while duplicates wait on one slow
// key. Every second one asks other, which has a pool of its own on the same
// database, as another process would. All must get the one order.
func (s *service[TTx]) hotKey(ctx context.Context, other *service[TTx]) (measured, error) {
	key := reprise.NewKey()
	held := make(chan struct{})
	failures := make(chan error, duplicates)
	var executed sync.Once
	ran := 0
	ask := func(s *service[TTx]) {
		_, err := s.do(ctx, key, 1, func(ctx context.Context) error {
			ran++ // Only ever inside of the one execution.
			executed.Do(func() { close(held) })
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(hotWork):
				return nil
			}
		})
		failures <- err
	}
	go ask(s)
	<-held
	for n := range duplicates - 1 {
		go ask([]*service[TTx]{s, other}[n%2])
	}
	m, err := measure(ctx, bystanders, hotWork*4/5, func(ctx context.Context) error {
		_, err := s.fresh(ctx)
		return err
	})
	for range duplicates {
		err = errors.Join(err, <-failures)
	}
	if ran != 1 {
		err = errors.Join(err, fmt.Errorf("the work of one key ran %d times", ran))
	}
	s.made.Add(1)
	return m, err
}

// quiet measures the bystanders alone.
func (s *service[TTx]) quiet(ctx context.Context) (measured, error) {
	return measure(ctx, bystanders, hotWork*4/5, func(ctx context.Context) error {
		_, err := s.fresh(ctx)
		return err
	})
}
