package sqlite_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// A backup that is taken while runs are written is whole, and has what its head has.
func TestBackupWhileWriting(t *testing.T) {
	s := open(t)
	add(t, s, "run_before", 0, started("ann", "default", "", ""), completed)
	stop, writing := make(chan struct{}), sync.WaitGroup{}
	writing.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				add(t, s, toolcrib.RunID(fmt.Sprintf("run_%d", i)), 0, started("ann", "default", "", ""), completed)
			}
		}
	})
	defer writing.Wait()
	defer close(stop)
	for range 5 {
		dir := t.TempDir()
		head, err := s.Backup(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		taken, err := sqlite.Open(t.Context(), filepath.Join(dir, filepath.Base(s.Path())), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := taken.VerifySystem(t.Context(), &head); err != nil {
			t.Error(err)
		}
		if _, err := taken.VerifyAll(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := taken.Run(t.Context(), "run_before"); err != nil {
			t.Error(err)
		}
		if err := taken.Close(); err != nil {
			t.Error(err)
		}
	}
}
