// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/reprise-go/reprise/wire"
)

func BenchmarkReadKey(b *testing.B) {
	for name, value := range map[string]string{
		"bare":    "0190163d-8694-739b-aea5-966c26f8ad91",
		"quoted":  `"0190163d-8694-739b-aea5-966c26f8ad91"`,
		"escaped": `"0190163d-\"8694\"-739b"`,
	} {
		b.Run(name, func(b *testing.B) {
			h := http.Header{wire.HeaderKey: {value}}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := wire.ReadKey(h); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkFingerprint(b *testing.B) {
	order := []byte(`{"ref":"A17","sku":"shirt-blue-m","quantity":2,"amount":4200,"currency":"EUR","note":"leave it at the door"}`)
	for name, s := range map[string]wire.Shape{
		"empty":    {Method: "POST", Operation: "create-order", Path: "/orders"},
		"json":     {Method: "POST", Operation: "create-order", Path: "/orders", ContentType: "application/json", Body: order},
		"hmac":     {Method: "POST", Operation: "create-order", Path: "/orders", ContentType: "application/json", Body: order, Secret: []byte("secret")},
		"query":    {Method: "POST", Operation: "create-order", Path: "/orders", RawQuery: "dry=1&expand=lines&limit=10"},
		"form":     {Method: "POST", Operation: "create-order", Path: "/orders", ContentType: "application/x-www-form-urlencoded", Body: []byte("ref=A17&sku=shirt&quantity=2&amount=4200&currency=EUR")},
		"raw-1MiB": {Method: "POST", Operation: "upload", Path: "/files", ContentType: "application/octet-stream", Body: bytes.Repeat([]byte{7}, 1<<20)},
		"json-1MiB": {Method: "POST", Operation: "upload", Path: "/files", ContentType: "application/json",
			Body: append(append([]byte("["), bytes.TrimSuffix(bytes.Repeat(append(order, ','), 1<<20/len(order)), []byte(","))...), ']')},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(s.Body)))
			for b.Loop() {
				if _, err := s.Fingerprint(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
