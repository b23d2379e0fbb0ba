// SPDX-License-Identifier: Apache-2.0

// Package demo is the main job, run for real: the reference shop, the payment
// provider and a fault proxy on loopback ports, a SQLite file or a database server,
// and a client that lives through the seven worst breakpoints (R15). Every scenario
// counts effects where they happened: orders and events in the shop's database,
// charges at the provider, deliveries behind the inbox.
package demo
