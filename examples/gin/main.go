// SPDX-License-Identifier: Apache-2.0

// Gin serves orders with github.com/gin-gonic/gin. Its handlers write to a
// writer of its own, so the one that is to run under the ledger gets an engine
// of its own: see keyed.
package main

import (
	"database/sql"
	"fmt"
	"log"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/reprise-go/reprise/examples/orders"
	"github.com/reprise-go/reprise/ledgerhttp"
)

func main() { log.Fatal(orders.Main(routes)) }

func routes(server *ledgerhttp.Server[*sql.Tx]) http.Handler {
	const path = "/customers/:customer/orders"
	router := gin.New()
	router.Use(gin.Recovery())
	router.POST(path, keyed(server.Middleware(orders.Create), http.MethodPost, path, create))
	return router
}

// keyed adapts a net/http middleware to one handler of gin. The handler runs in
// an engine of its own, and so with a new context each time that it is run. It
// finds there what is in the request's context, and not what was given to
// (*gin.Context).Set outside.
func keyed(m func(http.Handler) http.Handler, method, path string, h gin.HandlerFunc) gin.HandlerFunc {
	inner := gin.New()
	inner.Handle(method, path, h)
	return gin.WrapH(m(inner))
}

func create(c *gin.Context) {
	var in struct {
		Item string `binding:"required" json:"item"`
	}
	if err := c.ShouldBindJSON(&in); err != nil {
		c.JSON(http.StatusBadRequest, gin.H{"error": "an order has an item"})
		return
	}
	ctx := c.Request.Context()
	tx, _ := ledgerhttp.Tx[*sql.Tx](ctx)
	order, err := orders.Insert(ctx, tx, c.Param("customer"), in.Item)
	if err != nil {
		c.JSON(http.StatusInternalServerError, gin.H{"error": "no order was made"})
		return
	}
	c.Header("Location", fmt.Sprintf("/customers/%s/orders/%d", order.Customer, order.ID))
	c.JSON(http.StatusCreated, order)
}
