package memory

import (
	"context"
	"fmt"

	udiff "github.com/aymanbagabas/go-udiff"

	"github.com/toolcrib/toolcrib"
)

// Preview shows what the call would change as a unified diff, whole: who shows it to a
// person bounds it.
func (t *writeTool) Preview(ctx context.Context, call toolcrib.Call) (toolcrib.Preview, error) {
	c, err := read(call)
	if err != nil {
		return toolcrib.Preview{}, err
	}
	before, after, err := t.look(ctx, c)
	if err != nil {
		return toolcrib.Preview{}, err
	}
	name := shown(c.key)
	switch {
	case before.Content == after.Content && after.Content == "":
		return toolcrib.Preview{Kind: "text", Text: "there is no note " + name + ", and there will be none"}, nil
	case before.Content == after.Content:
		return toolcrib.Preview{Kind: "text", Text: fmt.Sprintf("%s stays as it is: it has this content already (%d bytes)", name, len(after.Content))}, nil
	}
	from, to := "a/"+name, "b/"+name
	if before.Content == "" {
		from = "/dev/null"
	}
	if after.Content == "" {
		to = "/dev/null"
	}
	diff, err := udiff.ToUnified(from, to, before.Content, udiff.Lines(before.Content, after.Content), udiff.DefaultContextLines)
	if err != nil {
		return toolcrib.Preview{}, fmt.Errorf("preview of %s: %w", name, err)
	}
	return toolcrib.Preview{Kind: "diff", Text: diff}, nil
}
