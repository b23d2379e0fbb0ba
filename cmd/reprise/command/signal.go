// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"os/signal"
	"syscall"
)

// untilSignal returns a context that ends with the first SIGINT or SIGTERM,
// which asks the command to finish what it is doing. From then on signals act as
// if nobody had asked for them, so the second one ends the program at once.
func untilSignal(parent context.Context) context.Context {
	ctx, stop := signal.NotifyContext(parent, syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx
}
