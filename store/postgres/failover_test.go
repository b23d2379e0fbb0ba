// SPDX-License-Identifier: Apache-2.0

//go:build failover

package postgres_test

import (
	"testing"

	"github.com/reprise-go/reprise/internal/pgtest"
)

func TestFailover(t *testing.T) { t.Parallel(); pgtest.Failover(t, service) }
