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
// different names and addresses. It never changes, and is safe for concurrent use.
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
		if err := c.conflict(i); err != nil {
			errs = append(errs, fmt.Errorf("contract: operation %q: %w", op.Name, err))
			continue
		}
		c.byName[op.Name] = i
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for _, i := range c.byName {
		c.mux.Handle(ops[i].Pattern(), index(i))
	}
	return c, nil
}

// index is the handler of a route; it only says which operation was matched.
type index int

func (index) ServeHTTP(http.ResponseWriter, *http.Request) {}

// conflict names the first accepted operation whose pattern cannot stand beside
// that of the n-th in one http.ServeMux.
func (c *Contract) conflict(n int) error {
	op := c.operations[n]
	for i, other := range c.operations[:n] {
		if accepted, ok := c.byName[other.Name]; !ok || accepted != i {
			continue
		}
		if register(op.Pattern(), other.Pattern()) != nil {
			return fmt.Errorf("its pattern %q and %q of operation %q match the same requests, and neither is more specific; change a method or a path",
				op.Pattern(), other.Pattern(), other.Name)
		}
	}
	return nil
}

// register reports whether http.ServeMux takes these patterns together; it says
// no by a panic.
func register(patterns ...string) (err error) {
	mux := http.NewServeMux()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	for _, p := range patterns {
		mux.Handle(p, index(0))
	}
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
	if path == "" { // This is how net/url writes the root of a host.
		path = "/"
	}
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
