// SPDX-License-Identifier: Apache-2.0

package ledgerhttp

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"time"

	"github.com/reprise-go/reprise/contract"
	"github.com/reprise-go/reprise/wire"
)

// ContractHandler serves the contract document (rule W7). Mount it at
// contract.Path, outside of any authentication: it says what everybody who may
// call must know. It answers GET and HEAD, with an ETag. It panics if c is nil.
func ContractHandler(c *contract.Contract) http.Handler {
	if c == nil {
		panic("ledgerhttp: ContractHandler: the contract is nil")
	}
	document, err := json.Marshal(c)
	if err != nil {
		// What contract.New accepted always marshals.
		panic("ledgerhttp: ContractHandler: " + err.Error())
	}
	sum := sha256.Sum256(document)
	tag := wire.ETag(hex.EncodeToString(sum[:8]))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			wire.ProblemOf(Refuse(http.StatusMethodNotAllowed, "method-not-allowed",
				"the contract document can only be read")).Write(w)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("ETag", tag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(document))
	})
}
