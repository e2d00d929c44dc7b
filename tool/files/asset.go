package files

import (
	"bytes"
	"context"
	"errors"
	"image"
	_ "image/gif"  // sizes of images
	_ "image/jpeg" // sizes of images
	_ "image/png"  // sizes of images
	"io"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

const (
	nameReadMeta = "read_asset_meta"

	maxImageHead = 8 << 20 // bytes before the size of an image: a camera puts previews and profiles there
)

const readMetaParameters = `{
	"type": "object",
	"properties": {
		"path": {"type": "string", "minLength": 1, "maxLength": 4096, "description": "File to tell about, relative to the workspace."}
	},
	"required": ["path"],
	"additionalProperties": false
}`

// readMeta describes a file of the workspace without its content, for administrators (N24).
type readMeta struct{ pathPolicy }

type metaResult struct {
	Path     string `json:"path"`
	Type     string `json:"type"` // media type (RFC 6838), by content
	Bytes    int64  `json:"size"`
	Modified string `json:"modified"`         // RFC 3339, UTC
	Width    int    `json:"width,omitempty"`  // pixels of an image
	Height   int    `json:"height,omitempty"` // pixels
}

// Spec describes read_asset_meta.
func (t *readMeta) Spec() toolcrib.Spec {
	s := wire.Spec(Group, nameReadMeta, "Tell about a file of the workspace: its type by content, its size in bytes, "+
		"when it was changed, and of an image (PNG, JPEG, GIF) the size in pixels.", readMetaParameters, toolcrib.EffectReadOnly)
	s.RequiresAdmin = true
	return s
}

// clean opens the workspace and cleans the path of a call as text.
func (t *readMeta) clean(call toolcrib.Call) (w *workspace, shown string, err error) {
	name, err := t.path(call)
	if err != nil {
		return nil, "", err
	}
	if w, err = t.set.open(call); err != nil {
		return nil, "", err
	}
	if shown, err = w.Clean(name); err != nil {
		w.Close()
	}
	return w, shown, err
}

// Admit refuses a path that is outside the workspace as text (C11). It does not reveal where links
// lead: for a link to the outside Call returns the same error as for a missing file.
func (t *readMeta) Admit(call toolcrib.Call) error {
	w, _, err := t.clean(call)
	if err == nil {
		w.Close()
	}
	return err
}

// Call describes the file, reading only the beginning of its content. The error is the same for
// missing files and for files that may not be described, so that these cannot be distinguished.
// Errors that do not concern the file are returned unchanged.
func (t *readMeta) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	w, shown, err := t.clean(call)
	if err != nil {
		return toolcrib.Output{}, err
	}
	defer w.Close()
	meta, err := w.meta(ctx, shown)
	if err == nil {
		return wire.Output(meta)
	}
	for _, ours := range []error{context.Canceled, context.DeadlineExceeded, syscall.EMFILE, syscall.ENFILE, syscall.EIO} {
		if errors.Is(err, ours) {
			return toolcrib.Output{}, err
		}
	}
	return toolcrib.Output{}, &toolcrib.ToolError{
		Kind: toolcrib.NotFound, Message: shown + ": there is no such file, or it is not permitted", Err: err,
	}
}

func (w *workspace) meta(ctx context.Context, shown string) (metaResult, error) {
	p, err := w.find(shown)
	if err != nil {
		return metaResult{}, err
	}
	f, info, err := w.openRead(p)
	if err != nil {
		return metaResult{}, err
	}
	defer f.Close()           //nolint:errcheck // only read
	head := make([]byte, 512) // enough for http.DetectContentType
	n, err := io.ReadFull(reader{ctx, f}, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return metaResult{}, err
	}
	head = head[:n]
	meta := metaResult{
		Path: shown, Type: http.DetectContentType(head), Bytes: info.Size(),
		Modified: info.ModTime().UTC().Format(time.RFC3339),
	}
	if strings.HasPrefix(meta.Type, "text/") && bytes.Contains(head, []byte("<svg")) {
		meta.Type = "image/svg+xml" // it has no size in pixels
	}
	if strings.HasPrefix(meta.Type, "image/") { // a broken image has a type but no size
		whole := io.MultiReader(bytes.NewReader(head), reader{ctx, f})
		if c, _, err := image.DecodeConfig(io.LimitReader(whole, maxImageHead)); err == nil && c.Width > 0 && c.Height > 0 {
			meta.Width, meta.Height = c.Width, c.Height
		}
	}
	return meta, ctx.Err()
}
