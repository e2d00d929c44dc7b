package files_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/files"
	"github.com/toolcrib/toolcrib/toolcribtest/tooltest"
)

func putAt(t *testing.T, dir, name string, content []byte) string {
	t.Helper()
	put(t, dir, name, string(content))
	return filepath.Join(dir, filepath.FromSlash(name))
}

// assetTool is read_asset_meta.
func assetTool(options files.Options) toolcrib.Tool { return named(options, "read_asset_meta") }

func fillAssets(t *testing.T, dir string) {
	t.Helper()
	putAt(t, dir, "notes.txt", []byte("hello"))
	putAt(t, dir, "pictures/a.png", encoded(t, "png", 3, 2))
	putAt(t, dir, "private/key", []byte("x"))
	for name, target := range map[string]string{"out": "/etc", "in": "pictures", "up": "../x", "loop": "loop", "sly": "private/key"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func encoded(t *testing.T, format string, width, height int) []byte {
	t.Helper()
	var b bytes.Buffer
	picture := image.NewRGBA(image.Rect(0, 0, width, height))
	var err error
	switch format {
	case "png":
		err = png.Encode(&b, picture)
	case "jpeg":
		err = jpeg.Encode(&b, picture, nil)
	case "gif":
		err = gif.Encode(&b, picture, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func hidden(abs string) bool { return strings.Contains(filepath.ToSlash(abs), "/private") }

func TestN24_AssetConforms(t *testing.T) {
	ok := func(name, path string) tooltest.Case {
		return tooltest.Case{Name: name, Arguments: fmt.Sprintf(`{"path": %q}`, path), Setup: fillAssets}
	}
	bad := func(name, path string, kind toolcrib.ToolErrorKind) tooltest.Case {
		return tooltest.Case{Name: name, Arguments: fmt.Sprintf(`{"path": %q}`, path), Setup: fillAssets, Err: kind}
	}
	tooltest.Run(t, func() toolcrib.Tool { return assetTool(files.Options{Hidden: hidden}) }, tooltest.Cases{Calls: []tooltest.Case{
		ok("text", "notes.txt"), ok("image", "pictures/../pictures/a.png"), ok("link", "in/a.png"),
		bad("gone", "gone", toolcrib.NotFound), bad("hidden", "private/key", toolcrib.NotFound), bad("hidden by link", "sly", toolcrib.NotFound),
		bad("folder", "pictures", toolcrib.NotFound), bad("workspace", ".", toolcrib.NotFound), bad("below a file", "notes.txt/x", toolcrib.NotFound),
		bad("link out", "out/passwd", toolcrib.NotFound), bad("link up", "up", toolcrib.NotFound), bad("loop", "loop", toolcrib.NotFound),
		bad("above", "../x", toolcrib.InvalidPath), bad("absolute", "/etc/passwd", toolcrib.InvalidPath),
		{Name: "NUL", Arguments: `{"path": "a\u0000"}`, Err: toolcrib.InvalidPath},
		{Name: "empty", Arguments: `{"path": ""}`, Invalid: true, Err: toolcrib.InvalidPath},
		{Name: "unknown", Arguments: `{"path": "notes.txt", "x": 1}`, Setup: fillAssets, Invalid: true},
	}})
}

// Nobody learns whether a file is there or may not be told about.
func TestN24_AssetNeutralText(t *testing.T) {
	dir := t.TempDir()
	fillAssets(t, dir)
	if err := os.Mkdir(filepath.Join(dir, "closed"), 0o000); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(dir, "closed"), 0o700) })
	meta := assetTool(files.Options{Hidden: hidden})
	for _, path := range []string{"gone", "private/key", "private/gone", "sly", "out/passwd", "out/gone", "up", "loop", "pictures", "notes.txt/x", "closed/x", strings.Repeat("n", 300)} {
		_, err := meta.Call(t.Context(), toolcrib.Call{Arguments: fmt.Appendf(nil, `{"path": %q}`, path), Workspace: dir})
		if want := "not found: " + path + ": there is no such file, or it is not permitted"; err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := meta.Call(t.Context(), toolcrib.Call{Arguments: []byte(`{"path": "notes.txt"}`)}); err == nil {
		t.Error("a file without a workspace")
	}
}

func TestN24_AssetTypesAndPixels(t *testing.T) {
	dir := t.TempDir()
	padded := encoded(t, "jpeg", 40, 30)
	// A camera's previews stand before the size: ten segments of 64 KiB.
	var segments []byte
	for range 10 {
		segments = append(segments, append([]byte{0xff, 0xe1, 0xff, 0xff}, make([]byte, 0xffff-2)...)...)
	}
	padded = append(append(append([]byte{}, padded[:2]...), segments...), padded[2:]...)
	for name, c := range map[string]struct {
		content       []byte
		want          string
		width, height int
	}{
		"png":       {encoded(t, "png", 640, 480), "image/png", 640, 480},
		"jpeg":      {encoded(t, "jpeg", 17, 9), "image/jpeg", 17, 9},
		"padded":    {padded, "image/jpeg", 40, 30},
		"gif":       {encoded(t, "gif", 5, 4), "image/gif", 5, 4},
		"cut":       {encoded(t, "png", 640, 480)[:20], "image/png", 0, 0},
		"cut jpeg":  {encoded(t, "jpeg", 640, 480)[:10], "image/jpeg", 0, 0},
		"svg":       {[]byte(`<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" width="4"/>`), "image/svg+xml", 0, 0},
		"text.png":  {[]byte("no picture"), "text/plain; charset=utf-8", 0, 0},
		"empty":     {nil, "text/plain; charset=utf-8", 0, 0},
		"pdf":       {[]byte("%PDF-1.7\n"), "application/pdf", 0, 0},
		"data.jpeg": {[]byte{0, 1, 2, 3}, "application/octet-stream", 0, 0},
	} {
		at := putAt(t, dir, name, c.content)
		when := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		if err := os.Chtimes(at, when, when); err != nil {
			t.Fatal(err)
		}
		out, err := assetTool(files.Options{}).Call(t.Context(), toolcrib.Call{Arguments: fmt.Appendf(nil, `{"path": %q}`, name), Workspace: dir})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got struct {
			Path, Type, Modified string
			Size                 int
			Width, Height        int
		}
		if err := json.Unmarshal(out.JSON, &got); err != nil {
			t.Fatal(err)
		}
		if got.Path != name || got.Type != c.want || got.Size != len(c.content) || got.Width != c.width || got.Height != c.height || got.Modified != "2026-01-02T03:04:05Z" {
			t.Errorf("%s: %s, want %s %d×%d", name, out.JSON, c.want, c.width, c.height)
		}
	}
}

func FuzzAsset(f *testing.F) {
	f.Add([]byte("GIF89a"))
	f.Add([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"))
	f.Add([]byte("\xff\xd8\xff\xe1\x00\x00"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content []byte) {
		name := fmt.Sprintf("file%d", os.Getpid())
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := assetTool(files.Options{}).Call(t.Context(), toolcrib.Call{Arguments: fmt.Appendf(nil, `{"path": %q}`, name), Workspace: dir})
		made := (*toolcrib.ToolError)(nil)
		if err != nil || errors.As(err, &made) || !json.Valid(out.JSON) {
			t.Fatalf("%s, %v", out.JSON, err)
		}
	})
}
