// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"

	"github.com/reprise-go/reprise"
)

// connection posts orders over one HTTP/1.1 connection, one after the other. It
// does as little as a client can, because it shares the machine with what it
// measures.
type connection struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte
	path string
	// answer is the content of the last response; it is overwritten by the next.
	answer []byte
}

func dial(ctx context.Context, address, path string) (*connection, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &connection{conn: conn, in: bufio.NewReader(conn), path: path}, nil
}

func (c *connection) close() { _ = c.conn.Close() }

// post asks for an order and reads the answer to its end. The content depends on
// the key alone, so that a repeat is the same request.
func (c *connection) post(key reprise.Key, attempt int) error {
	const before, after = `{"ref":"`, `","sku":"coffee-500g","quantity":3,"note":"leave it with the neighbour, please"}`
	b := c.out[:0]
	b = append(b, "POST "+c.path+" HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nIdempotency-Key: "...)
	b = append(b, key...)
	b = append(b, "\r\nRetry-Context: attempt="...)
	b = strconv.AppendInt(b, int64(attempt), 10)
	b = append(b, "\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(len(before)+len(key)+len(after)), 10)
	b = append(b, "\r\n\r\n"+before...)
	b = append(b, key...)
	b = append(b, after...)
	c.out = b
	if _, err := c.conn.Write(b); err != nil {
		return err
	}
	return c.read()
}

func (c *connection) read() error {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return err
	}
	if len(line) < len("HTTP/1.1 200") {
		return fmt.Errorf("the server answered %q", line)
	}
	status := string(line[9:12])
	length := -1
	for {
		line, err = c.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		name, value, ok := bytes.Cut(bytes.TrimSpace(line), []byte(":"))
		if !ok {
			break
		}
		if bytes.EqualFold(name, []byte("Content-Length")) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return err
			}
		}
	}
	if length < 0 {
		return errors.New("the server's answer has no Content-Length")
	}
	if cap(c.answer) < length {
		c.answer = make([]byte, length)
	}
	c.answer = c.answer[:length]
	if _, err := io.ReadFull(c.in, c.answer); err != nil {
		return err
	}
	if status[0] != '2' {
		return fmt.Errorf("the server answered %s: %s", status, c.answer)
	}
	return nil
}
