package files

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// unsaved returns the text that the person's editor has of the file at p, if it differs from the file: unsaved is
// false without an editor, for a file that it does not have, and for a file that is not text or too large to be read
// whole. The error says that the editor did not answer.
//
// The editor is asked only for a path that the caller has checked by the policy on paths.
func (w *workspace) unsaved(ctx context.Context, call toolcrib.Call, p place) (text string, unsaved bool, err error) {
	if call.Buffers == nil {
		return "", false, nil
	}
	disk := ""
	if p.info != nil {
		f, info, err := w.openRead(p)
		if err != nil {
			return "", false, nil //nolint:nilerr // reported when the file is read
		}
		defer f.Close() //nolint:errcheck // only read
		if disk, _, err = readWhole(ctx, f, info, p.shown); err != nil {
			return "", false, nil //nolint:nilerr // not text
		}
	}
	text, ok, err := call.Buffers.Buffer(ctx, filepath.Join(call.Workspace, filepath.FromSlash(p.real)))
	if err != nil || !ok || asEdited(text) == asEdited(disk) {
		return "", false, err
	}
	return text, true, nil
}

// saved refuses to write a file with changes in the person's editor that are not saved: saving them later would undo
// the write, or the write would undo them.
func (w *workspace) saved(ctx context.Context, call toolcrib.Call, p place) error {
	_, unsaved, err := w.unsaved(ctx, call, p)
	switch {
	case err != nil:
		return toolcrib.Failf(toolcrib.ExecutionFailed,
			"the editor did not say whether %s has unsaved changes; nothing was written, try again", p.shown)
	case unsaved:
		return toolcrib.Failf(toolcrib.ExecutionFailed, "%s has unsaved changes in the editor: save it first. "+
			"Nothing was written. Ask the person to save it, then read it again", p.shown)
	}
	return nil
}

// asEdited returns a text without what editors change when they open a file: line endings, a byte order mark, and
// the line break at its end.
func asEdited(text string) string {
	text = strings.TrimPrefix(text, "\ufeff")
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	return strings.TrimSuffix(text, "\n")
}
