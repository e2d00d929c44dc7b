package wire_test

import (
	"context"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

func TestInline(t *testing.T) {
	contents := map[string]string{
		"plain": "one\n", "fenced": "a\n```\nb", "binary": "\xff\xfe\x00", "large": strings.Repeat("x", wire.MaxInlineBytes+1),
	}
	req := &toolcrib.Request{Files: func(_ context.Context, ref string) ([]byte, error) { return []byte(contents[ref]), nil }}
	for _, c := range []struct {
		ref, kind, want string
		notices         int
	}{
		{"plain", "text/plain; charset=utf-8", "\n[file plain, text/plain; charset=utf-8]\n```\none\n```\n", 0},
		{"fenced", "text/markdown", "\n[file fenced, text/markdown]\n````\na\n```\nb\n````\n", 0},
		{"plain", "application/json", "\n[file plain, application/json]\n```\none\n```\n", 0},
		{"binary", "text/plain", "[file binary, text/plain]", 1},
		{"binary", "application/json", "[file binary, application/json]", 1},
		{"large", "text/plain", "[file large, text/plain]", 1},
	} {
		var a wire.Attachments
		m := &toolcrib.Message{Parts: []toolcrib.Part{{Text: "see"}, {File: &toolcrib.File{Ref: c.ref, MediaType: c.kind}}}}
		a.Begin(t.Context(), req, true)
		got := a.Inline(m)
		if m.Parts[1].File == nil {
			t.Fatalf("%s: the message itself was changed", c.ref)
		}
		if got.Parts[1].File != nil || got.Parts[1].Text != c.want || len(a.Notices) != c.notices {
			t.Errorf("%s, %s: %q with %v, want %q", c.ref, c.kind, got.Parts[1].Text, a.Notices, c.want)
		}
	}
}

// Files that an API accepts stay files, and so do files that are not text.
func TestInline_Kept(t *testing.T) {
	req := &toolcrib.Request{Files: func(context.Context, string) ([]byte, error) { return []byte("a,b\n"), nil }}
	m := &toolcrib.Message{Parts: []toolcrib.Part{
		{File: &toolcrib.File{Ref: "c", MediaType: "text/csv"}}, {File: &toolcrib.File{Ref: "p", MediaType: "image/png"}},
	}}
	a := wire.Attachments{Rules: wire.FileRules{Types: []string{"text/csv"}}}
	a.Begin(t.Context(), req, true)
	if got := a.Inline(m); got != m {
		t.Errorf("the message was changed: %+v", got)
	}
	a.Begin(t.Context(), &toolcrib.Request{}, true)
	if got := a.Inline(m); got != m {
		t.Error("changed without a way to read files")
	}
}
