// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/reprise-go/reprise/examples/orders/orderstest"
)

func TestOrders(t *testing.T) { orderstest.Run(t, routes) }
