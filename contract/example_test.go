// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"fmt"

	"github.com/reprise-go/reprise/contract"
)

// An operation is declared once; server, client and checker read the same promise.
func ExampleNew() {
	c, err := contract.New(
		contract.Operation{
			Name: "create-order", Method: "POST", Path: "/orders",
			Safety: contract.Keyed, Key: contract.KeyRequired, Mode: contract.Atomic,
			Effects: []contract.Effect{{Name: "order.created", By: contract.ByOutbox}},
		},
		contract.Operation{Name: "read-order", Method: "GET", Path: "/orders/{id}", Safety: contract.Safe},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	op, _ := c.Match("POST", "/orders")
	fmt.Println(op.Name, op.Safety, op.Retention)
	// Output: create-order keyed 24h0m0s
}

// A promise that can't be kept is refused, with what to do about it.
func ExampleNew_refused() {
	_, err := contract.New(contract.Operation{
		Name: "pay", Method: "POST", Path: "/payments",
		Safety: contract.Keyed, Key: contract.KeyRequired, Mode: contract.Staged,
	})
	fmt.Println(err)
	// Output: contract: operation "pay": Mode is staged and no effect is kept single by downstream-key or probe; declare each call to another system in Effects, or use atomic
}
