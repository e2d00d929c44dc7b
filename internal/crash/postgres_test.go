//go:build unix

package crash

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/toolcrib/toolcrib/internal/postgrestest"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store/postgres"
)

// TestServe_PostgreSQL is TestServe_Sample with three servers on one PostgreSQL, which crashes too. Each story has a
// server of PostgreSQL of its own.
func TestServe_PostgreSQL(t *testing.T) {
	first := theSeed(t)
	for i := range *towns {
		t.Run(fmt.Sprint("seed=", first+uint64(i)), func(t *testing.T) {
			database, err := postgrestest.Start(t.Context())
			if errors.Is(err, postgrestest.ErrMissing) {
				t.Skip("SKIPPED: ", err, "; no servers with PostgreSQL were killed")
			}
			if err != nil {
				t.Fatal(err)
			}
			dir, address := t.TempDir(), database.URL("postgres").String()
			keys := filepath.Join(dir, "data", env.KeysName)
			if _, err := postgres.Migrate(t.Context(), address, postgres.MigrateOptions{Keys: keys}); err != nil {
				t.Fatal(err)
			}
			w := newTownIn(t, dir, first+uint64(i), townOptions{database: address})
			var one sync.Mutex
			w.restart = func() {
				one.Lock()
				defer one.Unlock()
				if err := errors.Join(database.Down("immediate"), database.Up(context.WithoutCancel(t.Context()))); err != nil {
					t.Error(err)
				}
			}
			for range 2 {
				w.plan[1+w.r.IntN(150)] = "database"
			}
			w.sample(3)
			if err := database.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
}
