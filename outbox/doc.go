// SPDX-License-Identifier: Apache-2.0

// Package outbox hands events on: they are written in the caller's own
// transaction, and a relay delivers exactly those that were committed.
//
// Enqueue adds messages to a transaction. They are kept if it commits and gone
// if it does not (rules O1 to O3). A Relay takes them out of the table and gives
// each to a Sink until the sink has confirmed it (rule O7). It delivers every
// message at least once, always under the same id; a consumer makes that once by
// package inbox.
//
// Messages of one subject are delivered one after the other, in the order in
// which their transactions committed; messages of different subjects, and those
// without one, are delivered side by side (rule O5). A message that fails is held
// and tried again, and only the messages of its own subject wait for it (rule
// O6). One that is given up is parked, and stays until somebody decides (rule
// O8).
package outbox
