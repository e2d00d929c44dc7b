package anthropic_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/anthropic"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

func pngOf(width, height int) []byte {
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, width, height))); err != nil {
		panic(err)
	}
	return b.Bytes()
}

var stored = map[string][]byte{
	"png": pngOf(1, 1), "pdf": []byte("%PDF-1.7\n"), "txt": []byte("line \"one\"\n"), "wide": pngOf(8001, 1), "large": append(pngOf(1, 1), make([]byte, 4<<20)...),
}

func openFile(_ context.Context, ref string) ([]byte, error) {
	if data, ok := stored[ref]; ok {
		return data, nil
	}
	return nil, toolcrib.ErrNotFound
}

func file(ref, kind string) toolcrib.File {
	return toolcrib.File{Ref: ref, MediaType: kind, Name: ref + ".x"}
}

func TestFiles(t *testing.T) {
	req := modeltest.Request("see")
	req.Files = openFile
	for _, f := range []toolcrib.File{file("png", "image/png"), file("pdf", "application/pdf"), file("txt", "text/plain"), file("png", "image/svg+xml"), file("wide", "image/png"), file("large", "image/png")} {
		req.Messages[0].Parts = append(req.Messages[0].Parts, toolcrib.Part{File: &f})
	}
	call := func(id string) toolcrib.Part { return toolcrib.Part{ToolCall: &toolcrib.ToolCall{ID: id, Name: "f"}} }
	result := func(id, text string, failed bool, files ...toolcrib.File) toolcrib.Part {
		return toolcrib.Part{ToolResult: &toolcrib.ToolResult{CallID: id, Name: "f", Content: text, IsError: failed, Files: files}}
	}
	req.Messages = append(req.Messages,
		toolcrib.Message{Role: toolcrib.RoleAssistant, Parts: []toolcrib.Part{call("a"), call("b"), call("c"), call("d")}},
		toolcrib.Message{Role: toolcrib.RoleTool, Parts: []toolcrib.Part{
			result("a", "shot", false, file("png", "image/png"), file("gone", "image/png")), result("b", " ", false, file("pdf", "application/pdf")),
			result("c", "broke", true, file("png", "image/png")), result("d", "", false, file("gone", "image/png")),
		}})
	r, reply := send(t, anthropic.Options{}, req)
	img := `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + base64.StdEncoding.EncodeToString(stored["png"]) + `"}}`
	pdf := `{"type":"document","title":"pdf.x","source":{"type":"base64","media_type":"application/pdf","data":"JVBERi0xLjcK"}}`
	text := func(s string) string { return `{"type":"text","text":"` + s + `"}` }
	want := `[{"role":"user","content":[` + strings.Join([]string{
		text("see"), img, pdf, `{"type":"document","title":"txt.x","source":{"type":"text","media_type":"text/plain","data":"line \"one\"\n"}}`,
		text("[file png.x, image/svg+xml]"), text("[file wide.x, image/png]"), text("[file large.x, image/png]"),
	}, ",") + `]},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}},{"type":"tool_use","id":"b","name":"f","input":{}},` +
		`{"type":"tool_use","id":"c","name":"f","input":{}},{"type":"tool_use","id":"d","name":"f","input":{}}]},{"role":"user","content":[` +
		`{"type":"tool_result","tool_use_id":"a","content":[` + text(`shot\n[file gone.x, image/png]`) + `,` + img + `]},` +
		`{"type":"tool_result","tool_use_id":"b","content":[` + pdf + `]},` +
		`{"type":"tool_result","tool_use_id":"c","content":"broke\n[file png.x, image/png]","is_error":true},` +
		`{"type":"tool_result","tool_use_id":"d","content":"[file gone.x, image/png]"}]}]`
	if got := string(r.fields(t)["messages"]); got != want {
		t.Errorf("messages\n%s\nwant\n%s", got, want)
	}
	if n := reply.Finish.Notices; len(n) != 6 || n[0].Code != toolcrib.NoticeFileNotSent ||
		!strings.Contains(n[1].Message, "8000 pixels") {
		t.Errorf("notices %v", n)
	}
	if err := check(r.body); err != nil {
		t.Error(err)
	}
}

func TestFiles_ContextEnds(t *testing.T) {
	r := &recorder{}
	m, err := anthropic.New(anthropic.Options{Transport: r})
	if err != nil {
		t.Fatal(err)
	}
	conversation := m.Conversation()
	ctx, cancel := context.WithCancel(t.Context())
	req := modeltest.Request("see")
	f := file("png", "image/png")
	req.Messages[0].Parts = append(req.Messages[0].Parts, toolcrib.Part{File: &f})
	req.Files = func(ctx context.Context, _ string) ([]byte, error) {
		cancel()
		return nil, ctx.Err()
	}
	if _, err := modeltest.Collect(ctx, conversation, req); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	req.Files = openFile
	if _, err := modeltest.Collect(t.Context(), conversation, req); err != nil ||
		!strings.Contains(string(r.body), "base64") {
		t.Errorf("error %v, body %s", err, r.body)
	}
}

// The marks for the cache are on the last tool, on the system text, on the last block
// and on the one that was the last before; never more than the API permits.
func TestCacheMarks(t *testing.T) {
	const mark = `,"cache_control":{"type":"ephemeral"}}`
	r := &recorder{}
	m, err := anthropic.New(anthropic.Options{Transport: r})
	if err != nil {
		t.Fatal(err)
	}
	conversation := m.Conversation()
	req := modeltest.Request("go")
	req.System, req.Tools, req.ToolsHash, req.Files = "s", []toolcrib.Spec{{Name: "f"}, {Name: "g"}}, "1", openFile
	last := `{"type":"text","text":"go"`
	before := ""
	for n := range 4 {
		if _, err := modeltest.Collect(t.Context(), conversation, req); err != nil {
			t.Fatal(err)
		}
		body := string(r.body)
		for _, want := range []string{`"name":"g","input_schema":{"type":"object","properties":{}}` + mark + `]`, `"text":"s"` + mark + `]`, last + mark + `]}]}`, before} {
			if !strings.Contains(body, want) {
				t.Errorf("request %d is without %s: %s", n, want, body)
			}
		}
		if got, want := strings.Count(body, mark), min(3+n, 4); got != want {
			t.Errorf("request %d has %d marks, want %d: %s", n, got, want, body)
		}
		if err := check(r.body); err != nil {
			t.Error(err)
		}
		before = last + mark
		id := fmt.Sprintf("c%d", n)
		result := toolcrib.ToolResult{CallID: id, Name: "f", Content: id}
		last = `{"type":"tool_result","tool_use_id":"` + id + `","content":"` + id + `"`
		if n == 1 {
			result.Files = []toolcrib.File{file("pdf", "application/pdf")}
			last = `"data":"JVBERi0xLjcK"}}]`
		}
		req.Messages = append(req.Messages,
			toolcrib.Message{Role: toolcrib.RoleAssistant, Parts: []toolcrib.Part{{ToolCall: &toolcrib.ToolCall{ID: id, Name: "f", Arguments: json.RawMessage(`{}`)}}}},
			toolcrib.Message{Role: toolcrib.RoleTool, Parts: []toolcrib.Part{{ToolResult: &result}}})
	}
}
