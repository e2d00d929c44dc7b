package env

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/version"
	"github.com/toolcrib/toolcrib/natsbus"
)

// OpenBus connects to the bus of the configuration, or makes one in this process. If serves is set, it has a queue, and
// the other servers of the database see this one.
func (e *Env) OpenBus(ctx context.Context, serves bool, log *slog.Logger) (*natsbus.Bus, error) {
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
			return nil, err
		}
		*f.to = text
	}
	if o.URL != "" {
		keys, err := e.Keys()
		if err != nil {
			return nil, err
		}
		o.Database, o.Key = hex.EncodeToString(keys.Derive("name on the bus")[:8]), keys.Derive("messages on the bus")
	}
	if serves {
		o.Dir = filepath.Join(e.DataDir, "queue")
		host, _ := os.Hostname() // for people
		o.Self = natsbus.Server{
			Name: fmt.Sprintf("%s:%d", host, os.Getpid()), Version: version.Version(), Config: e.Config.Hash(),
			Started: e.Started,
		}
	}
	b, err := natsbus.Open(ctx, o)
	if err != nil && o.URL != "" {
		err = toolcrib.Errorf(toolcrib.CodeBadRequest, "%v", err)
	}
	return b, err
}
