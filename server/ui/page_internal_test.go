package ui

import (
	"mime"
	"net/http/httptest"
	"strings"
	"testing"
)

// A download has the name that it was given, in one header, whatever characters it has.
func TestDownload_HostileNames(t *testing.T) {
	for _, name := range []string{
		"a.txt", `a"; filename="b.html`, "a\r\nSet-Cookie: x=y\r\n\r\n<script>", `a\b".txt`, "größe.txt", "a\u202etxt.exe", "a;b=c.txt", "%0d%0a.txt",
		"'’.txt", strings.Repeat("x", 300), "\x00\x1b[2J",
	} {
		w := httptest.NewRecorder()
		p := &page{Request: Request{W: w}}
		p.download(name, "text/plain; charset=utf-8")
		head := w.Header()
		how, params, err := mime.ParseMediaType(head.Get("Content-Disposition"))
		if err != nil || how != "attachment" || len(params) != 1 || params["filename"] != name {
			t.Errorf("%q: %s, %v", name, head.Get("Content-Disposition"), err)
		}
		if strings.ContainsFunc(head.Get("Content-Disposition"), func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("%q: %q has other characters than ASCII", name, head.Get("Content-Disposition"))
		}
		if head.Get("Content-Type") != "text/plain; charset=utf-8" || head.Get("X-Content-Type-Options") != "nosniff" || len(head) != 3 {
			t.Errorf("%q: %v", name, head)
		}
	}
}
