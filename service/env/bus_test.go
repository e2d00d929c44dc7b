package env_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/natstest"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/natsbus"
	"github.com/toolcrib/toolcrib/service/env"
)

// opener returns a function that opens data folders of a new folder as servers of a new bus.
func opener(t *testing.T) (dir string, c *natstest.Cluster, open func(data string) (*env.Env, *natsbus.Bus)) {
	c, dir = natstest.Start(t, 1, nil), t.TempDir()
	file := filepath.Join(dir, "toolcrib.yaml")
	if err := os.WriteFile(file, []byte("bus: {url: '"+c.URL()+"'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := config.Load(config.Source{Path: file, Origin: config.OriginFlag}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return dir, c, func(data string) (*env.Env, *natsbus.Bus) {
		e := env.New(env.Options{Config: loaded, DataDir: filepath.Join(dir, data), Driver: env.DriverServer})
		if err := e.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		b, err := e.OpenBus(t.Context(), func() string { return "" }, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		waittest.Until(t, "connected", func() bool { return b.State().Connected })
		return e, b
	}
}

// A server has a share of the limits of providers while it drives runs. The description of a server that has died is
// there for longer than its runs.
func TestOpenBus_ServersWithLimits(t *testing.T) {
	_, _, open := opener(t)
	_, b := open("one")
	other, _ := open("one")
	for _, l := range []struct {
		run  toolcrib.RunID
		want int
	}{{env.ServerLease + "x", 0}, {"run_1", 1}} {
		if _, err := other.Store.TakeLease(t.Context(), l.run, time.Minute, false); err != nil {
			t.Fatal(err)
		}
		if n, err := b.Servers(t.Context()); n != l.want || err != nil {
			t.Errorf("with the lease %q: %d other servers, %v; want %d", l.run, n, err, l.want)
		}
	}
}

// A copy of a data folder has the same keys, and neither sees the runs of the other on the bus.
func TestOpenBus_CopiedFolder(t *testing.T) {
	dir, c, open := opener(t)
	open("one")
	open("one") // a second server of the folder
	if err := os.CopyFS(filepath.Join(dir, "two"), os.DirFS(filepath.Join(dir, "one"))); err != nil {
		t.Fatal(err)
	}
	open("two")
	nc, err := nats.Connect(c.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	streams := 0
	for range js.StreamNames(t.Context()).Name() {
		streams++
	}
	if streams != 4 { // the runs and the limits of each
		t.Errorf("%d streams, want 4", streams)
	}
}
