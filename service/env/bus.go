package env

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate/folderid"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/version"
	"github.com/toolcrib/toolcrib/natsbus"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/postgres"
)

// BusOptions returns how to connect to the bus of the configuration. Without bus.url, URL is "".
func (e *Env) BusOptions(log *slog.Logger) (natsbus.Options, error) {
	c, o, r := &e.Config.Bus, natsbus.Options{Log: log}, e.Resolver()
	for _, f := range []struct {
		value config.Value
		to    *string
	}{
		{c.URL, &o.URL},
		{c.Credentials, &o.Credentials},
		{c.CAFile, &o.CAFile},
		{c.TLS.Cert, &o.CertFile},
		{c.TLS.Key, &o.KeyFile},
	} {
		text, err := f.value.Resolve(r)
		if err != nil {
			return o, err
		}
		*f.to = text
	}
	return o, nil
}

// OpenBus connects to the bus of the configuration, or makes one in this process. If hash is not nil, the bus has a
// queue, and the other servers of the database see this one, with the hash of the configuration in effect, which hash
// returns. Servers with the same site share the queue. The store must be open.
func (e *Env) OpenBus(ctx context.Context, hash func() string, site string, log *slog.Logger) (*natsbus.Bus, error) {
	o, err := e.BusOptions(log)
	if err != nil {
		return nil, err
	}
	if o.URL != "" {
		name, err := e.DatabaseKey(ctx, "name on the bus")
		if err != nil {
			return nil, err
		}
		if o.Key, err = e.DatabaseKey(ctx, "messages on the bus"); err != nil {
			return nil, err
		}
		o.Database, o.Servers = hex.EncodeToString(name[:8]), e.otherServers
	}
	o.Self.Site = site
	if hash != nil {
		o.Dir = filepath.Join(e.DataDir, "queue")
		host, _ := os.Hostname() // for people
		o.Self = natsbus.Server{
			Name: fmt.Sprintf("%s:%d", host, os.Getpid()), Version: version.Version(), Started: e.Started, Site: site,
		}
		o.Config = hash
	}
	b, err := natsbus.Open(ctx, o)
	if err != nil && o.URL != "" {
		err = toolcrib.Errorf(toolcrib.CodeBadRequest, "%v", err)
	}
	return b, err
}

// Hints returns the bus of a database that has one of its own, if the configuration has none, or nil.
func (e *Env) Hints(log *slog.Logger) *postgres.Bus {
	s, ok := e.Store.(interface {
		Bus(log *slog.Logger) *postgres.Bus
	})
	if !ok || !e.Config.Bus.URL.IsEmpty() {
		return nil
	}
	return s.Bus(log)
}

// DatabaseKey returns 32 secret bytes for a purpose. All servers of the database have the same, and a copy of it with
// the same keys has others. The store must be open.
func (e *Env) DatabaseKey(ctx context.Context, purpose string) ([]byte, error) {
	keys, err := e.Keys()
	if err != nil {
		return nil, err
	}
	id, err := e.databaseID(ctx)
	if err != nil {
		return nil, err
	}
	return keys.Derive(purpose + " of " + id), nil
}

// databaseID distinguishes the database from others, also from copies of it with the same keys.
func (e *Env) databaseID(ctx context.Context) (string, error) {
	if s, ok := e.Store.(interface {
		Identity(ctx context.Context) (string, error)
	}); ok {
		return s.Identity(ctx)
	}
	dir, err := filepath.EvalSymlinks(e.DataDir)
	if err != nil {
		return "", err
	}
	return folderid.Of(dir)
}

// ServerLease begins the names of the leases by which servers describe themselves. Such a lease lasts much longer than
// that of a run.
const ServerLease = "server "

// otherServers returns the number of other processes that drive runs, and so may ask models. A server that has died is
// counted until the leases of its runs have passed, and not until that of its description has: meanwhile it would
// have a share of each limit.
func (e *Env) otherServers(ctx context.Context) (int, error) {
	leases, err := e.Store.Leases(ctx, store.LeaseFilter{})
	others := map[string]bool{}
	for i := range leases {
		l := &leases[i]
		if !l.Expired && l.Owner.ID != e.Owner().ID && !strings.HasPrefix(string(l.Run), ServerLease) {
			others[l.Owner.ID] = true
		}
	}
	return len(others), err
}
