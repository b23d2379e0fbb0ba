// SPDX-License-Identifier: Apache-2.0

// Package examples shows the library under the routers that people use. Each
// folder is a program of its own, serves the same operation, and passes the same
// tests: stdlib with a typed handler, chi, echo and gin with the middleware.
//
// Run one with
//
//	go run ./examples/chi
//
// and send it the same order twice:
//
//	curl -i 127.0.0.1:8080/customers/7/orders -H 'Authorization: Bearer ann' \
//	  -H 'Content-Type: application/json' -H 'Idempotency-Key: first-order' -d '{"item":"book"}'
package examples
