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
type readMeta struct{ about }

type metaResult struct {
	Path     string `json:"path"`
	Type     string `json:"type"` // media type (RFC 6838), by content
	Bytes    int64  `json:"size"`
	Modified string `json:"modified"`         // RFC 3339, UTC
	Width    int    `json:"width,omitempty"`  // pixels of an image
	Height   int    `json:"height,omitempty"` // pixels
}

func newReadMeta(s *settings) toolcrib.Tool {
	about := about{set: s, spec: spec(nameReadMeta, "Tell about a file of the workspace: its type by content, its size in bytes, "+
		"when it was changed, and of an image (PNG, JPEG, GIF) the size in pixels.", readMetaParameters, toolcrib.EffectReadOnly)}
	about.spec.RequiresAdmin = true
	return &readMeta{about}
}

// Plan refuses a path that is outside the workspace as text (C11). It does not reveal where links
// lead: for a link to the outside Run returns the same error as for a missing file.
func (t *readMeta) Plan(_ context.Context, call toolcrib.Call) (*toolcrib.Plan, error) {
	var in pathOf
	if err := wire.Decode(call.Arguments, &in); err != nil {
		return nil, err
	}
	w, err := t.set.open(call)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	shown, err := w.Clean(in.Path)
	if err != nil {
		return nil, err
	}
	p, none := w.find(shown)
	abs := ""
	if none == nil {
		abs = w.Abs(p.real)
	}
	plan := t.plan(call, in.Path, abs, false)
	plan.Run = func(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
		var meta metaResult
		err := none
		if err == nil {
			err = t.set.at(ctx, call, p, func(w *workspace, p place) (err error) {
				meta, err = w.meta(ctx, p)
				return err
			})
		}
		if err != nil {
			return toolcrib.Output{}, notDescribed(shown, err)
		}
		return wire.Output(meta)
	}
	return plan, nil
}

// Call plans the call and runs the plan.
func (t *readMeta) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	return toolcrib.RunPlan(ctx, t, call)
}

// notDescribed returns the same error for missing files and for files that may not be described, so
// that these cannot be distinguished. Errors that do not concern the file are returned unchanged.
func notDescribed(shown string, err error) error {
	for _, ours := range []error{context.Canceled, context.DeadlineExceeded, syscall.EMFILE, syscall.ENFILE, syscall.EIO} {
		if errors.Is(err, ours) {
			return err
		}
	}
	return &toolcrib.ToolError{
		Kind: toolcrib.NotFound, Message: shown + ": there is no such file, or it is not permitted", Err: err,
	}
}

// meta reads only the beginning of the content.
func (w *workspace) meta(ctx context.Context, p place) (metaResult, error) {
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
		Path: p.shown, Type: http.DetectContentType(head), Bytes: info.Size(),
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
