// SPDX-License-Identifier: Apache-2.0

package dbserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Galera is a running cluster of MariaDB servers that replicate synchronously:
// of two transactions that conflict, one fails at its COMMIT.
type Galera struct {
	Nodes []*MariaDB
}

const galeraNodes = 3

// patient keeps nodes from taking one another for dead, after 3 to 15 s, on a
// machine that is too busy to let them speak.
const patient = "gmcast.peer_timeout=PT1M;evs.suspect_timeout=PT1M;evs.inactive_timeout=PT3M"

// StartGalera starts three nodes and returns when all of them are synchronised.
func StartGalera(ctx context.Context) (*Galera, error) {
	provider, err := find(galeraProvider)
	if err != nil {
		return nil, err
	}
	if _, err := find("rsync"); err != nil {
		return nil, err
	}
	for range portAttempts {
		var g *Galera
		g, err = startGalera(ctx, provider)
		if !errors.Is(err, errPortTaken) {
			return g, err
		}
	}
	return nil, err
}

func startGalera(ctx context.Context, provider string) (*Galera, error) {
	g := &Galera{}
	err := g.prepare(ctx, provider)
	for i := 0; err == nil && i < len(g.Nodes); i++ {
		var first []string
		if i == 0 {
			first = []string{"--wsrep-new-cluster"}
		}
		if err = g.Nodes[i].launch(ctx, first...); err == nil {
			err = g.Nodes[i].joined(ctx, i+1)
		}
	}
	if err != nil {
		return nil, errors.Join(err, g.Stop())
	}
	return g, nil
}

// prepare makes the nodes' directories and settings, with the same data and the
// same position in the cluster's history: so none needs a copy of another's data.
func (g *Galera) prepare(ctx context.Context, provider string) error {
	type ports struct{ sql, group, transfer, state int }
	var taken [galeraNodes]ports
	var members []string
	for i := range taken {
		for _, port := range []*int{&taken[i].sql, &taken[i].group, &taken[i].transfer, &taken[i].state} {
			p, err := freePort()
			if err != nil {
				return err
			}
			*port = p
		}
		members = append(members, fmt.Sprintf("127.0.0.1:%d", taken[i].group))
	}
	for i, p := range taken {
		node, err := newMariaDB(MariaDBOptions{Settings: map[string]string{
			"binlog-format":                  "ROW",
			"innodb-autoinc-lock-mode":       "2",
			"innodb-flush-log-at-trx-commit": "2",
			"wsrep-on":                       "ON",
			"wsrep-provider":                 provider,
			"wsrep-cluster-name":             "reprise",
			"wsrep-cluster-address":          "gcomm://" + strings.Join(members, ","),
			"wsrep-node-name":                fmt.Sprintf("node%d", i+1),
			"wsrep-node-address":             "127.0.0.1",
			"wsrep-sst-method":               "rsync",
			"wsrep-sst-receive-address":      fmt.Sprintf("127.0.0.1:%d", p.state),
			"wsrep-provider-options": fmt.Sprintf("gmcast.listen_addr=tcp://127.0.0.1:%d;ist.recv_addr=127.0.0.1:%d;gcache.size=16M;",
				p.group, p.transfer) + patient,
		}})
		if err != nil {
			return err
		}
		node.port = p.sql
		g.Nodes = append(g.Nodes, node)
		if i == 0 {
			err = node.initialise(ctx)
		} else {
			err = node.copyData(ctx, g.Nodes[0])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copyData takes over the data of a server that isn't running.
func (m *MariaDB) copyData(ctx context.Context, from *MariaDB) error {
	_, err := run(ctx, m.as, m.dir.path, "", "cp", "-a", from.dir.join("data"), m.dir.join("data"))
	return err
}

// joined waits until the node is synchronised with a cluster of the given size.
func (m *MariaDB) joined(ctx context.Context, size int) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		state, err := m.Exec(ctx, "mysql", "SHOW STATUS LIKE 'wsrep_cluster_size'; SHOW STATUS LIKE 'wsrep_local_state_comment'")
		if err != nil {
			return err
		}
		if state == fmt.Sprintf("wsrep_cluster_size\t%d\nwsrep_local_state_comment\tSynced", size) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("dbserver: a Galera node is not synchronised: %w: %s", ctx.Err(), state)
		case <-time.After(pollInterval):
		}
	}
}

// Stop ends all nodes and removes their directories.
func (g *Galera) Stop() error {
	var err error
	for _, node := range g.Nodes {
		err = errors.Join(err, node.Stop())
	}
	return err
}
