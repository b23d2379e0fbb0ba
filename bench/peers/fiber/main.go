// SPDX-License-Identifier: Apache-2.0

// Command fiber does the job behind Fiber's idempotency middleware with its default
// storage, which is this process's memory: a crash between COMMIT and answer, a
// restart or a second process makes a second order. It is here because it is what
// is within reach, not because it keeps the promise.
package main

import (
	"context"
	"net"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/idempotency"
	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/bench/peers/job"
)

func main() { job.Main(run) }

func run(ctx context.Context) error {
	pool, err := job.Pool(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Use(idempotency.New(idempotency.Config{KeyHeader: "Idempotency-Key"}))
	app.Post("/orders", func(c *fiber.Ctx) error {
		var in job.Request
		if err := c.BodyParser(&in); err != nil {
			return fiber.ErrBadRequest
		}
		o := job.NewOrder(in)
		if err := pgx.BeginFunc(c.Context(), pool, func(tx pgx.Tx) error {
			return job.WriteBoth(c.Context(), tx, o)
		}); err != nil {
			return err
		}
		c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
		return c.Status(fiber.StatusCreated).Send(o.JSON())
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() { _ = app.Listener(l) }()
	return job.Wait(job.Ready{
		Address: l.Addr().String(), Path: "/orders", Events: job.CountEvents,
		Versions: job.Versions("github.com/gofiber/fiber/v2", "github.com/jackc/pgx/v5"),
	})
}
