// SPDX-License-Identifier: Apache-2.0

package retryhttp

import (
	"context"
	"net/http"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/contract"
	"github.com/reprise-go/reprise/wire"
)

type contextKey int

const (
	keyOfIntent contextKey = iota
	keyOfCall
)

// WithKey returns a context whose request is sent under key: the name of the one
// thing that the caller wants done. Use one for one request. A request with an
// Idempotency-Key field of its own keeps that, and operations that are safe are
// sent without a key.
func WithKey(ctx context.Context, key reprise.Key) context.Context {
	return context.WithValue(ctx, keyOfIntent, key)
}

// chooseKey fixes the call's key before its first byte (rule K5): the request's
// own field, the context's, that of the request which was redirected to this
// one, or a new one if the operation takes one. field says that the request
// already carries it.
func chooseKey(req *http.Request, op contract.Operation) (key reprise.Key, field bool, err error) {
	if len(req.Header[wire.HeaderKey]) > 0 {
		key, err = wire.ReadKey(req.Header)
		return key, true, err
	}
	if op.Safety == contract.Safe {
		return "", false, nil
	}
	if key, ok := req.Context().Value(keyOfIntent).(reprise.Key); ok {
		return key, false, key.Validate()
	}
	if key := redirectedKey(req); key != "" {
		return key, false, nil
	}
	if takesKey(op) {
		return reprise.NewKey(), false, nil
	}
	return "", false, nil
}

// takesKey reports whether the server remembers the keys of op. An idempotent
// operation may demand one, and where it is optional it is free and worth having:
// a repeat is then answered with what the first attempt did, and not with what
// doing it again comes to, such as 404 for what it deleted itself.
func takesKey(op contract.Operation) bool {
	return op.Safety == contract.Keyed || op.Key == contract.KeyRequired || op.Key == contract.KeyOptional
}

// redirectedKey returns the key of the request whose answer redirected the
// client to req. http.Client copies header fields from its own first request,
// where a key that was chosen here does not stand.
func redirectedKey(req *http.Request) reprise.Key {
	if req.Response == nil || req.Response.Request == nil {
		return ""
	}
	c, ok := callOf(req.Response.Request)
	if !ok || methodOf(c.request) != methodOf(req) {
		return ""
	}
	return c.Key()
}

// callOf returns the call that r was an attempt of.
func callOf(r *http.Request) (*call, bool) {
	c, ok := r.Context().Value(keyOfCall).(*call)
	return c, ok
}
