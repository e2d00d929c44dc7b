package memory

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	udiff "github.com/aymanbagabas/go-udiff"

	"github.com/toolcrib/toolcrib"
)

const (
	maxPreviewLines = 20
	maxPreviewLine  = 500 // characters
)

// Preview shows what the call would change as a unified diff, at most 20 lines of
// 500 characters of it.
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
	return toolcrib.Preview{Kind: "diff", Text: shorten(diff)}, nil
}

// shorten cuts a diff to maxPreviewLines of maxPreviewLine characters, and says what
// it left out.
func shorten(diff string) string {
	lines := strings.SplitAfter(strings.TrimSuffix(diff, "\n"), "\n")
	var b strings.Builder
	for i, line := range lines {
		if i == maxPreviewLines {
			fmt.Fprintf(&b, "… %d more lines\n", len(lines)-i)
			break
		}
		line = strings.TrimSuffix(line, "\n")
		if utf8.RuneCountInString(line) > maxPreviewLine {
			line = string([]rune(line)[:maxPreviewLine]) + "…"
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}
