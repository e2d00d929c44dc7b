package files

import (
	"context"
	"fmt"

	udiff "github.com/aymanbagabas/go-udiff"

	"github.com/toolcrib/toolcrib"
)

// maxDiffBytes is of the file before; a larger one is described in words.
const maxDiffBytes = 1 << 20

// The kinds of a preview.
const (
	previewDiff = "diff"
	previewText = "text"
)

// Preview shows what the call would change as a unified diff, whole: who shows it to a
// person bounds it. A call that cannot work has its error for a preview.
func (t *writer) Preview(ctx context.Context, call toolcrib.Call) (toolcrib.Preview, error) {
	var preview toolcrib.Preview
	err := t.with(ctx, call, func(w *workspace, p place, c change) error {
		before, old, after, err := c.plan(ctx, w, p)
		if err != nil {
			return err
		}
		if !c.edits && before.hash != "" && before.bytes <= maxDiffBytes {
			if old, err = w.content(ctx, p); err != nil {
				return err
			}
		}
		preview, err = compare(p.shown, before, old, after)
		return err
	})
	return preview, err
}

func (w *workspace) content(ctx context.Context, p place) ([]byte, error) {
	f, info, err := w.openRead(p)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	return readAll(ctx, f, info.Size(), 2*maxDiffBytes)
}

// compare says in a few lines how a file would change.
func compare(shown string, before version, old, after []byte) (toolcrib.Preview, error) {
	exists := before.hash != ""
	switch {
	case exists && before.hash == hashOf(after):
		return text("%s stays as it is: it has this content already (%d bytes)", shown, len(after)), nil
	case !exists && len(after) == 0:
		return text("new empty file %s", shown), nil
	case before.bytes > maxDiffBytes:
		return text("%s: %d bytes are replaced by %d bytes (too large for a diff)", shown, before.bytes, len(after)), nil
	case !isText(old, false):
		return text("%s: a binary file of %d bytes is replaced by %d bytes of text", shown, before.bytes, len(after)), nil
	}
	from := "a/" + shown
	if !exists {
		from = "/dev/null"
	}
	diff, err := udiff.ToUnified(from, "b/"+shown, string(old), udiff.Lines(string(old), string(after)), udiff.DefaultContextLines)
	if err != nil {
		return toolcrib.Preview{}, fmt.Errorf("preview of %s: %w", shown, err)
	}
	return toolcrib.Preview{Kind: previewDiff, Text: diff}, nil
}

func text(format string, args ...any) toolcrib.Preview {
	return toolcrib.Preview{Kind: previewText, Text: fmt.Sprintf(format, args...)}
}
