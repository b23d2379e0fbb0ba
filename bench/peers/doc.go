// SPDX-License-Identifier: Apache-2.0

// Package peers is the root of the programs that "bench peers" compares: each
// serves one job over HTTP, set up as its own documentation advises.
//
// The job is POST /orders with an Idempotency-Key: one order row and one event,
// answered with the order. Every program takes the database's address, has a pool
// of the same size, prints one line of JSON (see package job) when it is ready,
// and ends when its standard input does.
//
// This module is not part of the workspace: what it compares drags in more
// modules than all of reprise, and the workspace would build every module with
// their versions. "bench peers" builds it by itself with GOWORK=off.
package peers
