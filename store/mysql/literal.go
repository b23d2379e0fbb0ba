// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"time"
)

// render puts args into the places of query, so that several statements can
// travel as one text, whatever the connection's character set and SQL mode are:
// text and bytes are written in hexadecimal, which nothing can escape from, nil
// bytes as NULL, and a duration as its microseconds. query must hold no other
// question mark.
func render(query string, args ...any) string {
	b := make([]byte, 0, len(query)+48*len(args))
	n := 0
	for i := range len(query) {
		if query[i] != '?' {
			b = append(b, query[i])
			continue
		}
		b = appendLiteral(b, args[n])
		n++
	}
	if n != len(args) {
		panic(fmt.Sprintf("mysql: %d arguments for %d places", len(args), n))
	}
	return string(b)
}

func appendLiteral(b []byte, arg any) []byte {
	switch v := arg.(type) {
	case string:
		return appendHex(b, v)
	case []byte:
		if v == nil {
			return append(b, "NULL"...)
		}
		return appendHex(b, v)
	case int:
		return strconv.AppendInt(b, int64(v), 10)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case time.Duration:
		return strconv.AppendInt(b, v.Microseconds(), 10)
	}
	panic(fmt.Sprintf("mysql: no literal for %T", arg))
}

func appendHex[T string | []byte](b []byte, v T) []byte {
	if len(v) == 0 {
		return append(b, "''"...)
	}
	b = append(b, "0x"...)
	return hex.AppendEncode(b, []byte(v))
}
