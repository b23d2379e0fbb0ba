// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/reprise-go/reprise"
)

// Contract is the promises of a service: a set of valid operations with
// different names and addresses. It does not change, and is safe for concurrent
// use.
type Contract struct {
	operations []Operation
	byName     map[reprise.Operation]int
	mux        *http.ServeMux
}

// New makes a contract of operations. It fills in the defaults of their fields,
// and refuses, with one error for everything that is wrong, operations that are
// not valid, that share a name, or whose patterns conflict by the rules of
// http.ServeMux.
func New(ops ...Operation) (*Contract, error) {
	ops = slices.Clone(ops)
	for i := range ops {
		ops[i] = ops[i].withDefaults()
	}
	return build(ops)
}

func build(ops []Operation) (*Contract, error) {
	c := &Contract{operations: ops, byName: make(map[reprise.Operation]int, len(ops)), mux: http.NewServeMux()}
	var errs []error
	for i, op := range ops {
		if err := op.Validate(); err != nil {
			errs = append(errs, err)
			continue
		}
		if _, taken := c.byName[op.Name]; taken {
			errs = append(errs, fmt.Errorf("contract: two operations are named %q; the ledger tells them apart by their names, so give each its own", op.Name))
			continue
		}
		c.byName[op.Name] = i
		if err := c.route(i); err != nil {
			errs = append(errs, fmt.Errorf("contract: operation %q: %w", op.Name, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return c, nil
}

// index is the handler of a route; it only says which operation was matched.
type index int

func (index) ServeHTTP(http.ResponseWriter, *http.Request) {}

// route registers an operation. http.ServeMux reports bad and conflicting
// patterns by a panic.
func (c *Contract) route(i int) (err error) {
	op := c.operations[i]
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the pattern %q cannot be used: %v", op.Pattern(), p)
		}
	}()
	c.mux.Handle(op.Pattern(), index(i))
	return nil
}

// Operations returns all operations in the order in which they were declared,
// with their defaults filled in.
func (c *Contract) Operations() []Operation {
	ops := slices.Clone(c.operations)
	for i := range ops {
		ops[i] = ops[i].clone()
	}
	return ops
}

// Operation returns the operation of that name.
func (c *Contract) Operation(name reprise.Operation) (Operation, bool) {
	i, ok := c.byName[name]
	if !ok {
		return Operation{}, false
	}
	return c.operations[i].clone(), true
}

// Match returns the operation that a request with this method and path
// addresses, by the rules of http.ServeMux: the most specific pattern wins, and
// one for GET matches HEAD too. path is in its escaped form, as URL.EscapedPath
// gives it, so that "/orders/a%2Fb" has one segment after orders. A path that a
// ServeMux would redirect, such as "/orders/" for "/orders" or one with "..",
// matches nothing.
func (c *Contract) Match(method, path string) (Operation, bool) {
	unescaped, err := url.PathUnescape(path)
	if err != nil {
		return Operation{}, false
	}
	h, _ := c.mux.Handler(&http.Request{Method: method, URL: &url.URL{Path: unescaped, RawPath: path}})
	i, ok := h.(index)
	if !ok {
		return Operation{}, false
	}
	return c.operations[i].clone(), true
}
