package wire_test

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/png"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

func pngOf(t *testing.T, width, height int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, width, height))); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestAttachments(t *testing.T) {
	stored := map[string][]byte{
		"small": pngOf(t, 2, 2), "wide": pngOf(t, 101, 1), "text": []byte("hello"), "bad text": []byte("\xff\xfe\x00"),
		"pdf": []byte("%PDF-1.7\n"), "empty": {}, "long": append(pngOf(t, 1, 1), make([]byte, 2000)...),
	}
	req := &toolcrib.Request{Files: func(_ context.Context, ref string) ([]byte, error) {
		data, ok := stored[ref]
		if !ok {
			return nil, toolcrib.ErrNotFound
		}
		return data, nil
	}}
	rules := wire.FileRules{Types: []string{"image/png", "application/pdf", "text/plain"}, MaxBytes: 1000, MaxEdge: 100, MaxTotal: 3000, MaxFiles: 4}
	tests := []struct{ ref, said, kind, notice string }{
		{"small", "image/png", "image/png", ""},
		{"small", "image/jpeg", "", "type"},
		{"small", "IMAGE/PNG; x=1", "image/png", ""},
		{"small", "application/octet-stream", "image/png", ""},
		{"text", "text/plain; charset=utf-8", "text/plain", ""},
		{"text", "image/png", "", "content"},
		{"bad text", "text/plain", "", "content"},
		{"text", "application/octet-stream", "", "content"},
		{"pdf", "application/pdf", "application/pdf", ""},
		{"pdf", "image/svg+xml", "", "type"},
		{"wide", "image/png", "", "100 pixels"},
		{"long", "image/png", "", "1000 bytes"},
		{"empty", "image/png", "", "empty"},
		{"nothing", "image/png", "", "read"},
	}
	for _, tt := range tests {
		a := wire.Attachments{Rules: rules}
		a.Begin(t.Context(), req, true)
		got := a.Open(&toolcrib.File{Ref: tt.ref, MediaType: tt.said})
		switch {
		case tt.notice == "" && (got == nil || got.MediaType != tt.kind || got.Name != tt.ref || len(a.Notices) != 0):
			t.Errorf("%s as %s: %+v, notices %v", tt.ref, tt.said, got, a.Notices)
		case tt.notice != "" && (got != nil || len(a.Notices) != 1 || a.Notices[0].Code != toolcrib.NoticeFileNotSent || !strings.Contains(a.Notices[0].Message, tt.notice)):
			t.Errorf("%s as %s: %+v, notices %v", tt.ref, tt.said, got, a.Notices)
		}
	}
}

func TestAttachments_Bounded(t *testing.T) {
	data := pngOf(t, 2, 2)
	reads := 0
	req := &toolcrib.Request{Files: func(context.Context, string) ([]byte, error) {
		reads++
		return data, nil
	}}
	file := &toolcrib.File{Ref: "r", MediaType: "image/png"}
	for name, rules := range map[string]wire.FileRules{"files": {MaxFiles: 2}, "bytes": {MaxTotal: 2 * len(data)}} {
		rules.Types = []string{"image/png"}
		a := wire.Attachments{Rules: rules}
		a.Begin(t.Context(), req, true)
		for n := range 3 {
			if got := a.Open(file); (got != nil) != (n < 2) {
				t.Errorf("%s: file %d: %v", name, n, got)
			}
		}
		if a.Begin(t.Context(), req, false); len(a.Notices) != 0 || a.Open(file) != nil {
			t.Errorf("%s: the next request of the same history starts over", name)
		}
		if a.Begin(t.Context(), req, true); a.Open(file) == nil {
			t.Errorf("%s: a fresh history has no room", name)
		}
	}
	a := wire.Attachments{Rules: wire.FileRules{Types: []string{"image/png"}}}
	before := reads
	a.Begin(t.Context(), req, true)
	if a.Open(&toolcrib.File{Ref: "r", MediaType: "image/png", Bytes: toolcrib.MaxFileBytes + 1}) != nil || reads != before {
		t.Error("a file that says it is too large was read")
	}
	a.Begin(t.Context(), &toolcrib.Request{}, true)
	if a.Open(file) != nil {
		t.Error("a model that takes no files got one")
	}
}

func TestAttachments_ManyAndWide(t *testing.T) {
	stored := map[string][]byte{"small": pngOf(t, 2, 2), "wide": pngOf(t, 11, 1), "huge": pngOf(t, 40, 40)}
	req := &toolcrib.Request{Files: func(_ context.Context, ref string) ([]byte, error) { return stored[ref], nil }}
	for order, want := range map[string]string{"small small small wide": "1110", "wide small small": "110", "small small small small": "1111", "huge small": "01"} {
		a := wire.Attachments{Rules: wire.FileRules{Types: []string{"image/png"}, Many: 2, ManyEdge: 10, MaxImage: len(stored["huge"]) - 1}}
		a.Begin(t.Context(), req, true)
		got := ""
		for _, ref := range strings.Fields(order) {
			if a.Open(&toolcrib.File{Ref: ref, MediaType: "image/png"}) != nil {
				got += "1"
			} else {
				got += "0"
			}
		}
		if got != want {
			t.Errorf("%s: %s, want %s (%v)", order, got, want, a.Notices)
		}
	}
}

func TestAttachments_ContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a := wire.Attachments{Rules: wire.FileRules{Types: []string{"image/png"}}}
	req := &toolcrib.Request{Files: func(ctx context.Context, _ string) ([]byte, error) { return nil, ctx.Err() }}
	a.Begin(ctx, req, true)
	if a.Open(&toolcrib.File{Ref: "r", MediaType: "image/png"}) != nil || !errors.Is(a.Err(), context.Canceled) {
		t.Errorf("error %v", a.Err())
	}
}

func TestAttachment_DataURL(t *testing.T) {
	a := wire.Attachment{Data: []byte("hi"), MediaType: "image/png"}
	if got := string(a.AppendDataURL([]byte("x"))); got != "xdata:image/png;base64,aGk=" || !a.Image() {
		t.Errorf("%s", got)
	}
}
