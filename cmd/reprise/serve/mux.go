// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net/http"
	"path"

	"github.com/reprise-go/reprise"
	"github.com/reprise-go/reprise/wire"
)

// Problems answers like mux, but where mux has no handler for a request the
// answer is a problem document: 405 with Allow if the path exists under another
// method, and 404 otherwise. Paths are taken as they are: mux would answer an
// unclean one with a redirect, which turns a POST into a GET.
func Problems(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path.Clean(r.URL.EscapedPath()) != r.URL.EscapedPath() {
			notFound(w)
			return
		}
		h, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		v := verdict{header: http.Header{}}
		h.ServeHTTP(&v, r)
		if v.status != http.StatusMethodNotAllowed {
			notFound(w)
			return
		}
		w.Header().Set("Allow", v.header.Get("Allow"))
		refuse(w, http.StatusMethodNotAllowed, "method-not-allowed",
			"this resource does not take the method; the Allow field lists those it takes")
	})
}

func notFound(w http.ResponseWriter) {
	refuse(w, http.StatusNotFound, "not-found", "there is no such resource")
}

func refuse(w http.ResponseWriter, status int, code reprise.Code, detail string) {
	wire.ProblemOf(&reprise.Error{Code: code, Status: status, Detail: detail, Outcome: reprise.NotProcessed}).Write(w)
}

// verdict keeps the status and the fields of an answer, and drops its body.
type verdict struct {
	header http.Header
	status int
}

func (v *verdict) Header() http.Header         { return v.header }
func (v *verdict) WriteHeader(status int)      { v.status = status }
func (v *verdict) Write(b []byte) (int, error) { return len(b), nil }
