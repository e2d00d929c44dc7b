// Package asset has read_asset_meta: what a file of the workspace is, without its
// content (N24; contract §11). It is for administrators.
package asset

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"syscall"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/internal/beneath"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

const (
	// Name of the tool.
	Name = "read_asset_meta"
	// Group is the group of the tool.
	Group = "files"
)

const parameters = `{
	"type": "object",
	"properties": {
		"path": {"type": "string", "minLength": 1, "maxLength": 4096, "description": "File to tell about, relative to the workspace."}
	},
	"required": ["path"],
	"additionalProperties": false
}`

// Options for [New].
type Options struct {
	// Hidden reports which files are not told about, by absolute path with symbolic
	// links resolved; nil = none.
	Hidden func(abs string) bool
}

// New returns read_asset_meta.
func New(options Options) []toolcrib.Tool {
	if options.Hidden == nil {
		options.Hidden = func(string) bool { return false }
	}
	return []toolcrib.Tool{&readMeta{options}}
}

type readMeta struct{ options Options }

type input struct {
	Path string `json:"path"`
}

type result struct {
	Path     string `json:"path"`
	Type     string `json:"type"` // RFC 6838, by content
	Bytes    int64  `json:"size"`
	Modified string `json:"modified"`         // RFC 3339, UTC
	Width    int    `json:"width,omitempty"`  // pixels of an image
	Height   int    `json:"height,omitempty"` // pixels
}

// Spec describes read_asset_meta.
func (t *readMeta) Spec() toolcrib.Spec {
	return toolcrib.Spec{
		Name: Name, Description: "Tell about a file of the workspace: its type by content, its size in bytes, when it was changed, and of an image (PNG, JPEG, GIF, WebP, BMP) the size in pixels.",
		Parameters: json.RawMessage(parameters), Effect: toolcrib.EffectReadOnly,
		Group: Group, Source: "builtin", EnabledByDefault: true, RequiresAdmin: true,
	}
}

// neutral is the one answer for what is not there and what may not be told about,
// so that nobody learns which of the two it is.
func neutral(shown string, err error) error {
	return &toolcrib.ToolError{
		Kind: toolcrib.NotFound, Message: shown + ": there is no such file, or it is not permitted",
		Err: err,
	}
}

// open opens the workspace and cleans the path of the call, by its text.
func open(call toolcrib.Call) (folder *beneath.Folder, shown string, err error) {
	var in input
	if err := wire.Decode(call.Arguments, &in); err != nil {
		return nil, "", err
	}
	if folder, err = beneath.Open(call); err != nil {
		return nil, "", err
	}
	if shown, err = folder.Clean(in.Path); err != nil {
		folder.Close()
		return nil, "", err
	}
	return folder, shown, nil
}

// Admit refuses a path outside the workspace by its text (C11). Where links lead is
// told by nobody: the call answers as if nothing were there.
func (t *readMeta) Admit(call toolcrib.Call) error {
	folder, _, err := open(call)
	if err == nil {
		folder.Close()
	}
	return err
}

// Targets names the file.
func (t *readMeta) Targets(call toolcrib.Call) []toolcrib.Target {
	folder, shown, err := open(call)
	if err != nil {
		return nil
	}
	defer folder.Close()
	found, err := folder.Resolve(shown, beneath.Absent)
	if err != nil {
		return nil
	}
	return []toolcrib.Target{{Kind: toolcrib.TargetFile, Name: folder.Abs(found.Real)}}
}

// Call looks at the file and at no more of its content than its head.
func (t *readMeta) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	if err := ctx.Err(); err != nil {
		return toolcrib.Output{}, err
	}
	folder, shown, err := open(call)
	if err != nil {
		return toolcrib.Output{}, err
	}
	defer folder.Close()
	meta, err := t.look(ctx, folder, shown)
	if err != nil {
		return toolcrib.Output{}, failure(err, shown)
	}
	return wire.Output(meta)
}

func (t *readMeta) look(ctx context.Context, folder *beneath.Folder, shown string) (result, error) {
	found, err := folder.Resolve(shown, beneath.Absent)
	if err != nil {
		return result{}, err
	}
	if t.options.Hidden(folder.Abs(found.Real)) {
		return result{}, fs.ErrPermission
	}
	file, info, err := folder.OpenFile(found.Real)
	if err != nil {
		return result{}, err
	}
	defer file.Close() //nolint:errcheck // only read
	meta := result{Path: shown, Bytes: info.Size(), Modified: info.ModTime().UTC().Format(time.RFC3339)}
	kind, err := identify(ctx, file)
	if err != nil {
		return result{}, err
	}
	meta.Type, meta.Width, meta.Height = kind.mediaType, kind.width, kind.height
	return meta, nil
}

// failure is the neutral answer, unless the trouble has nothing to do with this
// file: then it is the operator's.
func failure(err error, shown string) error {
	for _, ours := range []error{context.Canceled, context.DeadlineExceeded, syscall.EMFILE, syscall.ENFILE, syscall.EIO} {
		if errors.Is(err, ours) {
			return err
		}
	}
	return neutral(shown, err)
}
