//go:build unix

package server_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/toolcrib/toolcrib/internal/postgrestest"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store/postgres"
)

// TestEveryAnswer_OfTwoServers is TestEveryAnswer_HoldsOnlyWhatItsTokenMaySee with two servers on one PostgreSQL,
// which get the requests in turn; with -short, with fewer kinds of tokens.
func TestEveryAnswer_OfTwoServers(t *testing.T) {
	database, err := postgrestest.Start(t.Context(), "shared_buffers=64MB")
	if errors.Is(err, postgrestest.ErrMissing) {
		t.Skip("SKIPPED: ", err, "; two servers were not asked")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := database.Stop(); err != nil {
			t.Error(err)
		}
	})
	h := &house{t: t, dir: t.TempDir()}
	address, keys := database.URL("postgres").String(), filepath.Join(h.dir, env.KeysName)
	if _, err := postgres.Migrate(t.Context(), address, postgres.MigrateOptions{Keys: keys}); err != nil {
		t.Fatal(err)
	}
	h.config = seenAgents + "\ndatabase: '" + address + "'\nkeys: '" + keys + "'\n"
	for name, text := range seenScripts {
		h.script(name, text)
	}
	h.start()
	t.Cleanup(func() { _ = h.stop() })
	h.beside("other")
	of := kinds
	if testing.Short() {
		of = []string{"ann", "bob", "boss"}
	}
	both := seenIn(t, h)
	both.everyPage()
	both.everyAnswer(of)
}
