// SPDX-License-Identifier: Apache-2.0

// Echo serves orders with github.com/labstack/echo: echo.WrapMiddleware adapts
// the middleware, and answered keeps echo's error handling inside of it.
package main

import (
	"database/sql"
	"fmt"
	"log"
	"net/http"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/reprise-go/reprise/examples/orders"
	"github.com/reprise-go/reprise/ledgerhttp"
)

func main() { log.Fatal(orders.Main(routes)) }

func routes(server *ledgerhttp.Server[*sql.Tx]) http.Handler {
	e := echo.New()
	e.Use(middleware.Recover())
	e.POST("/customers/:customer/orders", create,
		echo.WrapMiddleware(server.Middleware(orders.Create)), answered)
	return e
}

// answered makes a response of an error while the transaction is still open. An
// error that is returned further up has said nothing yet, and a handler that
// says nothing has answered 200.
func answered(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		if err := next(c); err != nil {
			c.Echo().HTTPErrorHandler(c, err)
		}
		return nil
	}
}

func create(c *echo.Context) error {
	var in struct {
		Item string `json:"item"`
	}
	if err := c.Bind(&in); err != nil {
		return err
	}
	if in.Item == "" {
		return echo.NewHTTPError(http.StatusBadRequest, "an order has an item")
	}
	ctx := c.Request().Context()
	tx, _ := ledgerhttp.Tx[*sql.Tx](ctx)
	order, err := orders.Insert(ctx, tx, c.Param("customer"), in.Item)
	if err != nil {
		return err
	}
	c.Response().Header().Set("Location", fmt.Sprintf("/customers/%s/orders/%d", order.Customer, order.ID))
	return c.JSON(http.StatusCreated, order)
}
