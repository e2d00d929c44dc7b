// Package diff previews writes as unified diffs.
package diff

import (
	"fmt"

	udiff "github.com/aymanbagabas/go-udiff"

	"github.com/toolcrib/toolcrib"
)

// Preview returns a unified diff of the change, the creation (made) or the removal (removed) of a text.
func Preview(name, before, after string, made, removed bool) (toolcrib.Preview, error) {
	from, to := "a/"+name, "b/"+name
	if made {
		from = "/dev/null"
	}
	if removed {
		to = "/dev/null"
	}
	diff, err := udiff.ToUnified(from, to, before, udiff.Lines(before, after), udiff.DefaultContextLines)
	if err != nil {
		return toolcrib.Preview{}, fmt.Errorf("preview of %s: %w", name, err)
	}
	return toolcrib.Preview{Kind: "diff", Text: diff}, nil
}
