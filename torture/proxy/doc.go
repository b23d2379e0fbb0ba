// SPDX-License-Identifier: Apache-2.0

// Package proxy is a fault proxy for HTTP that knows where a request ends.
//
// It reads one whole request, asks a Plan what to do with it, and, where the
// plan forwards, reads the whole upstream response before it acts. So "the
// server committed and the answer was lost" is a certainty here and not a race.
//
// It speaks HTTP/1.1 over plain connections of its own: each forwarded copy
// travels on a fresh one. net/http's Transport, and with it
// httputil.ReverseProxy, resends requests by itself on reused connections and
// would inject duplicates that nobody planned.
//
// Every fault that fired is counted, so that a test can tell a fault that was
// survived from one that never happened.
package proxy
