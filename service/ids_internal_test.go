package service

import (
	"sync"
	"testing"

	"github.com/toolcrib/toolcrib"
)

// People type the first ten characters of an ID, so those of runs that begin at the same moment differ.
func TestIDs_DifferInWhatPeopleRead(t *testing.T) {
	var g ids
	var mu sync.Mutex
	seen := map[string]bool{}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				id := g.next("run_")
				mu.Lock()
				if short := toolcrib.ShortID(id); len(id) != 30 || len(short) != 14 || seen[short] {
					t.Errorf("%s was given before, or is not an ID: %s", short, id)
				}
				seen[toolcrib.ShortID(id)] = true
				mu.Unlock()
			}
		})
	}
	all.Wait()
}
