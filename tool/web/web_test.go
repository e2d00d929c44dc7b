package web_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/unicode"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/safefile"
	"github.com/toolcrib/toolcrib/skill"
	"github.com/toolcrib/toolcrib/tool/web"
	"github.com/toolcrib/toolcrib/toolcribtest/tooltest"
)

type answer struct {
	Status      int    `json:"status"`
	URL         string `json:"url"`
	ContentType string `json:"content_type"`
	Length      *int64 `json:"content_length"`
	Location    string `json:"location"`
	RetryAfter  string `json:"retry_after"`
	Bytes       int    `json:"bytes"`
	Cached      bool   `json:"cached"`
	Truncated   bool   `json:"truncated"`
	LimitBytes  int64  `json:"limit_bytes"`
	Hidden      int    `json:"hidden_left_out"`
	Warning     string `json:"warning"`
	Title       string `json:"title"`
	Body        string `json:"body"`
}

// serve starts a server, and returns options that allow it.
func serve(t *testing.T, handler http.HandlerFunc) (base string, o web.Options) {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return s.URL, web.Options{Allow: []string{u.Host}, AllowPrivate: true}
}

func call(arguments any) toolcrib.Call {
	text, ok := arguments.(string)
	if !ok {
		b, err := json.Marshal(arguments)
		if err != nil {
			panic(err)
		}
		text = string(b)
	} else if !strings.HasPrefix(text, "{") {
		return call(map[string]any{"url": text})
	}
	return toolcrib.Call{
		ID: "1", Name: web.Fetch, Arguments: json.RawMessage(text), Run: "run_1", Session: "ses_1",
		Principal: toolcrib.Principal{User: "ann"}, Progress: func(string, float64) {},
	}
}

func read(t *testing.T, tool toolcrib.Tool, c toolcrib.Call) answer {
	t.Helper()
	out, err := tool.Call(t.Context(), c)
	if err != nil {
		t.Fatalf("%s: %v", c.Arguments, err)
	}
	var a answer
	if err := json.Unmarshal(out.JSON, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// refusal is the text of an error for the model.
func refusal(t *testing.T, err error) string {
	t.Helper()
	var made *toolcrib.ToolError
	if !errors.As(err, &made) {
		t.Fatalf("not an error for the model: %v", err)
	}
	return made.Error()
}

func has(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q does not have %q", text, part)
		}
	}
}

func TestConforms(t *testing.T) {
	started := make(chan struct{})
	base, o := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(started)
			<-r.Context().Done()
		}
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprint(w, "hello")
	})
	arguments := func(path string) string { return fmt.Sprintf(`{"url":%q}`, base+path) }
	tooltest.Run(t, func() toolcrib.Tool { return web.New(o)[0] }, tooltest.Cases{
		Calls: []tooltest.Case{
			{Name: "get", Arguments: arguments("/")},
			{Name: "post", Arguments: fmt.Sprintf(`{"url":%q,"method":"POST","body":"x"}`, base)},
			{Name: "not allowed", Arguments: `{"url":"https://example.com"}`, Err: toolcrib.PermissionDenied},
			{Name: "not a URL", Arguments: `{"url":"x"}`, Err: toolcrib.InvalidArguments},
			{Name: "no URL", Arguments: `{}`, Err: toolcrib.InvalidArguments, Invalid: true},
		},
		Long: &tooltest.Long{Case: tooltest.Case{Arguments: arguments("/slow")}, Started: started},
	})
	search := o
	engine, _ := serve(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, `{"results":[]}`) })
	search.SearchEndpoint = func() (string, error) { return engine, nil }
	tooltest.Run(t, func() toolcrib.Tool { return web.New(search)[1] }, tooltest.Cases{Calls: []tooltest.Case{
		{Name: "nothing is found", Arguments: `{"query":"x"}`},
	}})
}

// Nothing can be reached until it is allowed, and the refusal says how a person allows it.
func TestNothingIsReachable(t *testing.T) {
	tool := web.New(web.Options{})[0]
	c := call("https://docs.example.com/x")
	text := refusal(t, tooltest.Refused(tool, c))
	has(t, text, "permission denied: docs.example.com is not in tools.web.allow", `tools: {web: {allow: ["docs.example.com"]}}`)
	if _, err := tool.Call(t.Context(), c); err == nil || refusal(t, err) != text {
		t.Errorf("the call itself: %v", err)
	}
	both := web.New(web.Options{Allow: []string{"*"}, Deny: []string{"*.example.com"}})[0]
	has(t, refusal(t, tooltest.Refused(both, c)), "docs.example.com is in tools.web.deny")
	broken := web.New(web.Options{Allow: []string{"docs.example.com", "a b"}})[0]
	if err := tooltest.Refused(broken, c); err == nil {
		t.Error("a list that cannot be read allows something")
	}
}

func TestEffectsAndTargets(t *testing.T) {
	tool := web.New(web.Options{Allow: []string{"example.com"}})[0]
	for method, want := range map[string]toolcrib.Effect{
		"": toolcrib.EffectReadOnly, "GET": toolcrib.EffectReadOnly, "HEAD": toolcrib.EffectReadOnly, "POST": toolcrib.EffectNonIdempotentWrite,
		"PUT": toolcrib.EffectNonIdempotentWrite, "DELETE": toolcrib.EffectNonIdempotentWrite, "TRACE": toolcrib.EffectNonIdempotentWrite,
		"get": toolcrib.EffectNonIdempotentWrite,
	} {
		c := call(map[string]any{"url": "https://Example.com:443/x", "method": method})
		if got := tooltest.Facts(tool, c).Effect; got != want {
			t.Errorf("%q: %s", method, got)
		}
		targets := tooltest.Facts(tool, c).Targets
		if method == "TRACE" || method == "get" {
			continue
		}
		writes := want.Writes()
		if len(targets) != 2 || targets[0] != (toolcrib.Target{Kind: "host", Name: "example.com", Write: writes}) ||
			targets[1] != (toolcrib.Target{Kind: "url", Name: "https://example.com/x", Write: writes}) {
			t.Errorf("%q: %+v", method, targets)
		}
	}
	if s := tool.Spec(); !s.Untrusted || !s.Sink || !s.EnabledByDefault || s.RequiresAdmin {
		t.Errorf("%+v", s)
	}
}

func TestHeaders(t *testing.T) {
	var got http.Header
	base, o := serve(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	tool := web.New(o)[0]
	for _, name := range []string{
		"Authorization", "authorization", "Proxy-Authorization", "Cookie", "Set-Cookie", "X-Api-Key", "Api-Key", "X-Auth-Token", "X-Csrf-Token",
		"Private-Token", "X-Amz-Security-Token", "X-Goog-Api-Key", "Metadata-Flavor", "X-aws-ec2-metadata-token", "X-Forwarded-For", "Forwarded",
		"X-Real-IP", "Host", "Content-Length", "Transfer-Encoding", "Connection", "Upgrade", "TE", "Trailer", "User-Agent", "Accept-Encoding",
		"Expect", "X-HTTP-Method-Override", "Sec-Fetch-Site", "X-Original-URL", "X-Session-Id", "X-Password", "", "A B", "A:B", "Ä", "A\r\nB",
	} {
		err := tooltest.Refused(tool, call(map[string]any{"url": base, "headers": map[string]string{name: "v"}}))
		if err == nil {
			t.Errorf("header %q is sent", name)
		}
	}
	for _, value := range []string{"a\r\nX: y", "a\x00", "Bearer abc", "basic YTpi"} {
		if err := tooltest.Refused(tool, call(map[string]any{"url": base, "headers": map[string]string{"X-A": value}})); err == nil {
			t.Errorf("value %q is sent", value)
		}
	}
	read(t, tool, call(map[string]any{"url": base, "headers": map[string]string{
		"Accept-Language": "de", "X-GitHub-Api-Version": "2022-11-28", "content-type": "a/b", "Idempotency-Key": "7",
	}}))
	if got.Get("Accept-Language") != "de" || got.Get("X-Github-Api-Version") == "" || got.Get("Content-Type") != "a/b" ||
		got.Get("Idempotency-Key") != "7" || !strings.HasPrefix(got.Get("User-Agent"), "toolcrib/") || got.Get("Cookie") != "" {
		t.Errorf("%v", got)
	}
}

func TestWrites(t *testing.T) {
	var seen []string
	base, o := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen = append(seen, r.Method+" "+r.URL.Path+" "+string(body))
		if r.URL.Path == "/moved" {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"id":7}`)
	})
	tool := web.New(o)[0]
	a := read(t, tool, call(map[string]any{"url": base + "/x", "method": "POST", "body": "a=1"}))
	if a.Status != 201 || a.Body != `{"id":7}` {
		t.Errorf("%+v", a)
	}
	a = read(t, tool, call(map[string]any{"url": base + "/moved", "method": "PUT", "body": "a=1"}))
	if a.Status != 307 || a.Location != "/elsewhere" {
		t.Errorf("a redirect of a write: %+v", a)
	}
	read(t, tool, call(map[string]any{"url": base + "/y", "method": "DELETE"}))
	if got := strings.Join(seen, ", "); got != "POST /x a=1, PUT /moved a=1, DELETE /y " {
		t.Error(got)
	}
	if err := tooltest.Refused(tool, call(map[string]any{"url": base, "body": "x"})); err == nil {
		t.Error("a GET with a body")
	}
}

func TestHead(t *testing.T) {
	base, o := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/pdf")
		w.Header().Set("Content-Length", "12345")
	})
	a := read(t, web.New(o)[0], call(map[string]any{"url": base, "method": "HEAD"}))
	if a.Status != 200 || a.Length == nil || *a.Length != 12345 || a.ContentType != "application/pdf" || a.Body != "" {
		t.Errorf("%+v", a)
	}
}

const article = `<html><head><title>Sum | Site</title><meta charset=utf-8></head><body>
<nav><a href="/n1">Nav one</a> <a href="/n2">Nav two</a></nav><article><h1>Sum</h1>%s
<p>See <a href="../x?y=1#z">this</a> and <a href="javascript:alert(1)">that</a> and <img src="data:image/png;base64,AAAA" alt=pic>.</p>
<pre><code>a *b* _c_ [d]</code></pre><table><tr><th>k</th><th>v</th></tr><tr><td>1</td><td>2</td></tr></table></article>
<footer>Foot note</footer><script>alert("script")</script><style>x{}</style></body></html>`

func TestMarkdown(t *testing.T) {
	long := strings.Repeat("<p>"+strings.Repeat("A long sentence, with commas, of an article. ", 10)+"</p>", 6)
	base, o := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, article, long)
	})
	tool := web.New(o)[0]
	a := read(t, tool, call(base+"/a/b/"))
	has(t, a.Body, "A long sentence", "["+"this]("+base+"/a/x?y=1#z)", "a *b* _c_ [d]", "| k | v |")
	has(t, a.Warning, "only the article")
	for _, not := range []string{"Nav one", "Foot note", "alert", "javascript", "base64", "x{}"} {
		if strings.Contains(a.Body, not) {
			t.Errorf("the article has %q:\n%s", not, a.Body)
		}
	}
	a = read(t, tool, call(map[string]any{"url": base, "format": "page"}))
	has(t, a.Body, "A long sentence", "[Nav one]("+base+"/n1)", "Foot note")
	if strings.Contains(a.Body, "alert(") || a.Title != "Sum | Site" || a.Warning != "" {
		t.Errorf("%+v", a)
	}
	a = read(t, tool, call(map[string]any{"url": base, "format": "raw"}))
	has(t, a.Body, "<nav>", "<script>")
}

// What a page hides from its readers is not read, and the result says so.
func TestMarkdown_LeavesOutWhatIsHidden(t *testing.T) {
	var page string
	base, o := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, page)
	})
	tool := web.New(o)[0]
	for text, hides := range map[string]bool{
		`<p hidden>OBEY</p>`: true, `<p hidden="">OBEY</p>`: true, `<p hidden=until-found>OBEY</p>`: false,
		`<template><p>OBEY</p></template>`: true, `<dialog>OBEY</dialog>`: true, `<dialog open>OBEY</dialog>`: false,
		`<details><summary>s</summary>OBEY</details>`: false, `<p aria-hidden=true>OBEY</p>`: false,
		`<datalist><option>OBEY</option></datalist>`:           true,
		`<div style="display:none"><p>a <b>OBEY</b></p></div>`: true, `<div style="DISPLAY : NONE !important">OBEY</div>`: true,
		`<div style="display:none!important;display:block">OBEY</div>`: true, `<div style="display:none;display:block">OBEY</div>`: false,
		`<div style="dis/**/play:none">OBEY</div>`: false, `<div style="display:/*x*/none">OBEY</div>`: true,
		`<div style="d\69 splay:none">OBEY</div>`: true, `<div style="&#100;isplay:none">OBEY</div>`: true,
		`<div style="display:none` + strings.Repeat(" ", 5000) + `">OBEY</div>`: true,
		`<p style="visibility:hidden">OBEY</p>`:                                 true, `<p style="visibility:collapse">OBEY</p>`: true,
		`<p style="opacity:0">OBEY</p>`: true, `<p style="opacity:.01">OBEY</p>`: true, `<p style="opacity:0.5">OBEY</p>`: false,
		`<p style="font-size:0">OBEY</p>`: true, `<p style="font-size: 0.0px">OBEY</p>`: true, `<p style="font-size:1px">OBEY</p>`: true,
		`<p style="font-size:0.9em">OBEY</p>`: false, `<p style="font:0/0 a">OBEY</p>`: true, `<p style="font:400 12px/1 a">OBEY</p>`: false,
		`<p style="position:absolute;left:-9999px">OBEY</p>`: true, `<p style="position:absolute;left:0">OBEY</p>`: false,
		`<p style="text-indent:-9999px">OBEY</p>`: true, `<p style="margin-left:-20px">OBEY</p>`: false,
		`<p style="transform:translateX(-9999px)">OBEY</p>`: true, `<p style="transform:scale(0)">OBEY</p>`: true,
		`<p style="transform:scale(0.5)">OBEY</p>`: false, `<p style="position:absolute;clip:rect(0 0 0 0)">OBEY</p>`: true,
		`<p style="clip-path:inset(50%)">OBEY</p>`: true, `<p style="height:0;overflow:hidden">OBEY</p>`: true,
		`<p style="height:0">OBEY</p>`: false, `<p style="width:1px;height:1px;overflow:hidden">OBEY</p>`: true,
		`<p style="color:white">OBEY</p>`: true, `<p style="color:#fefefe">OBEY</p>`: true, `<p style="color:#333">OBEY</p>`: false,
		`<p style="color:transparent">OBEY</p>`: true, `<p style="color:rgba(0,0,0,0)">OBEY</p>`: true, `<p style="color:#0000">OBEY</p>`: true,
		`<p style="color:#ff0000;background:rgb(255, 0, 0)">OBEY</p>`: true, `<font color=white>OBEY</font>`: true,
		`<table bgcolor=black><tr><td style="color:#000">OBEY</table>`: true, `<style>body{background:black}</style><p style="color:white">OBEY</p>`: false,
		`<style>p{margin:0}</style><p style="color:white">OBEY</p>`: true, `<canvas>OBEY</canvas>`: true,
		`<div style="color:#fff"><p style="background:#000">OBEY</p></div>`: false,
		`<p style="color:white;background:url(x.png)">OBEY</p>`:             false, `<p style="content-visibility:hidden">OBEY</p>`: true,
		`<style>/* x */ .a, p.b { display: none } @media print { .c { display: none } } .d .e {display:none}</style><p class="x a">OBEY`: true,
		`<style>p.b{display:none}</style><p class=b>OBEY`:                                  true,
		`<style>p.b{display:none}</style><div class=b>OBEY</div>`:                          false,
		`<style>#i{visibility:hidden}</style><p id=i>OBEY`:                                 true,
		`<style>@import "x"; @media print { .c { display: none } }</style><p class=c>OBEY`: false,
		`<style>.a{display:none} .a{display:block}</style><p class=a>OBEY`:                 false,
		`<style>.a{display:none}</style><p class=a style="display:block">OBEY`:             false,
		`<style>.a{color:#fff;opacity:0}</style><p class=a>OBEY`:                           false,
		`<style>aside{position:absolute;left:-9999px}</style><aside>OBEY</aside>`:          true,
	} {
		page = "<title>T</title><p>Seen.</p>" + text
		a := read(t, tool, call(map[string]any{"url": base, "format": "page", "force_refresh": true}))
		if strings.Contains(a.Body, "OBEY") == hides || !strings.Contains(a.Body, "Seen.") || a.Title != "T" ||
			(a.Hidden > 0) != hides || strings.Contains(a.Warning, "hides was left out") != hides {
			t.Errorf("%.80s: %+v", text, a)
		}
	}
	page = `<body style="opacity:0"><p>Shown by a script.</p>`
	has(t, read(t, tool, call(map[string]any{"url": base, "force_refresh": true})).Body, "Shown by a script.")
}

func TestTexts(t *testing.T) {
	latin, _ := charmap.ISO8859_1.NewEncoder().String("Grüße")
	sjis, _ := japanese.ShiftJIS.NewEncoder().String("こんにちは")
	wide, _ := unicode.UTF16(unicode.LittleEndian, unicode.UseBOM).NewEncoder().String("Grüße")
	for name, c := range map[string]struct{ contentType, body, want string }{
		"json":         {"application/json", `{"a": [1,2]}`, `{"a": [1,2]}`},
		"problem json": {"application/problem+json; charset=utf-8", `{"ü":1}`, `{"ü":1}`},
		"utf-8":        {"text/plain; charset=utf-8", "Grüße", "Grüße"},
		"not said":     {"text/plain", "Grüße", "Grüße"},
		"latin-1":      {"text/plain; charset=iso-8859-1", latin, "Grüße"},
		"latin guess":  {"text/plain", latin, "Grüße"},
		"shift-jis":    {"text/plain; charset=Shift_JIS", sjis, "こんにちは"},
		"utf-16":       {"text/plain", wide, "Grüße"},
		"bom":          {"text/plain", "\uFEFFx", "x"},
		"meta":         {"text/html", `<meta charset="shift_jis"><p>` + sjis, "こんにちは"},
		"not escaped":  {"text/html", "<p>*a* [b] _c_ 1. # d", "*a* [b] _c_ 1. # d"},
		"no type":      {"-", "<html><p>hi</p></html>", "hi"},
		"no type text": {"-", "plain *text*", "plain *text*"},
		"octets":       {"application/octet-stream", "key: value", "key: value"},
		"svg":          {"image/svg+xml", "<svg/>", "<svg/>"},
		"empty":        {"text/html", "", ""},
		"bad type":     {"text/html; charset=\"", "<p>hi</p>", "hi"},
		"unknown set":  {"text/plain; charset=klingon", "hi", "hi"},
	} {
		base, o := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if w.Header()["Content-Type"] = nil; c.contentType != "-" {
				w.Header().Set("Content-Type", c.contentType)
			}
			fmt.Fprint(w, c.body)
		})
		if a := read(t, web.New(o)[0], call(base)); a.Body != c.want {
			t.Errorf("%s: %q, want %q", name, a.Body, c.want)
		}
	}
}

func TestBinaryIsRefused(t *testing.T) {
	read := false
	for _, contentType := range []string{
		"application/pdf", "image/png", "video/mp4", "application/zip", "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
		"application/octet-stream", "text/plain", "",
	} {
		base, o := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Content-Type"] = []string{contentType}
			_, _ = w.Write([]byte("%PDF-1.7\x00\x01\x02\xff\xfe"))
			read = true
		})
		_, err := web.New(o)[0].Call(t.Context(), call(base))
		if err == nil {
			t.Errorf("%s is read", contentType)
			continue
		}
		has(t, refusal(t, err), "execution failed: ", "reads only text")
	}
	if !read {
		t.Error("nothing was asked for")
	}
}

func zipped(text string, times int) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	for range times {
		_, _ = io.WriteString(w, text)
	}
	_ = w.Close()
	return b.Bytes()
}

func TestCompressionAndLimits(t *testing.T) {
	bomb := zipped(strings.Repeat("0", 1<<20), 64)
	base, o := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "gzip" {
			t.Errorf("Accept-Encoding: %q", r.Header.Get("Accept-Encoding"))
		}
		w.Header().Set("Content-Type", "text/plain")
		switch r.URL.Path {
		case "/gzip":
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(zipped("hello", 1))
		case "/bomb":
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb)
		case "/twice":
			w.Header().Set("Content-Encoding", "gzip, gzip")
			_, _ = w.Write(zipped(string(bomb), 1))
		case "/br":
			w.Header().Set("Content-Encoding", "br")
			fmt.Fprint(w, "xxxx")
		case "/lie":
			w.Header().Set("Content-Encoding", "gzip")
			fmt.Fprint(w, "not at all")
		case "/short":
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(zipped("hello", 1)[:12])
		case "/none":
			w.Header().Set("Content-Encoding", "gzip")
		case "/long":
			for range 100 {
				fmt.Fprint(w, strings.Repeat("a", 1<<10))
			}
		case "/exact":
			fmt.Fprint(w, strings.Repeat("a", 64<<10))
		case "/endless":
			for r.Context().Err() == nil {
				fmt.Fprint(w, strings.Repeat("a", 1<<10))
			}
		case "/broken":
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "a")
		case "/head":
			w.Header().Set("X-Big", strings.Repeat("a", 1<<20))
		}
	})
	o.MaxBytes = 64 << 10
	tool := web.New(o)[0]
	for path, want := range map[string]struct {
		bytes int
		cut   bool
	}{
		"/gzip": {5, false}, "/bomb": {64 << 10, true}, "/long": {64 << 10, true}, "/exact": {64 << 10, false}, "/endless": {64 << 10, true},
		"/none": {0, false},
	} {
		if a := read(t, tool, call(base+path)); a.Bytes != want.bytes || a.Truncated != want.cut ||
			len(a.Body) != want.bytes ||
			a.Truncated != (a.Warning != "") {
			t.Errorf("%s: %d bytes, truncated %t, %q", path, a.Bytes, a.Truncated, a.Warning)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	read(t, tool, call(base+"/bomb"))
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 32<<20 {
		t.Errorf("%d bytes of memory for a bomb of which %d may be read", after.TotalAlloc-before.TotalAlloc, o.MaxBytes)
	}
	for _, path := range []string{"/twice", "/br", "/lie", "/short", "/broken", "/head"} {
		_, err := tool.Call(t.Context(), call(base+path))
		if err == nil {
			t.Errorf("%s is read", path)
			continue
		}
		has(t, refusal(t, err), "execution failed: 127.0.0.1")
	}
}

func TestRedirects(t *testing.T) {
	var other string
	base, o := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var n int
		switch _, err := fmt.Sscanf(r.URL.Path, "/n/%d", &n); {
		case err == nil && n > 0:
			w.Header().Set("Location", fmt.Sprintf("../n/%d", n-1))
			w.WriteHeader([]int{301, 302, 303, 307, 308}[n%5])
		case r.URL.Path == "/other":
			http.Redirect(w, r, other, http.StatusFound)
		case r.URL.Path == "/bad":
			w.Header().Set("Location", r.URL.Query().Get("to"))
			w.WriteHeader(http.StatusFound)
		case r.URL.Path == "/none":
			w.WriteHeader(http.StatusFound)
		default:
			fmt.Fprintf(w, "here, %s %s", r.Header.Get("X-A"), r.Header.Get("Accept-Language"))
		}
	})
	var otherGot http.Header
	other, _ = serve(t, func(w http.ResponseWriter, r *http.Request) { otherGot = r.Header })
	tool := web.New(o)[0]
	headers := map[string]string{"X-A": "a", "Accept-Language": "de"}
	a := read(t, tool, call(map[string]any{"url": base + "/n/10", "headers": headers}))
	if a.Body != "here, a de" || a.URL != base+"/n/0" {
		t.Errorf("%+v", a)
	}
	_, err := tool.Call(t.Context(), call(base+"/n/11"))
	has(t, refusal(t, err), "more than 10 redirects")
	_, err = tool.Call(t.Context(), call(base+"/other"))
	has(t, refusal(t, err), "redirects to another address", "is not in tools.web.allow")
	if otherGot != nil {
		t.Error("the other host was asked")
	}
	for _, to := range []string{
		"ftp://x/", "file:///etc/passwd", "http://user@" + base[7:], "http://127.1/", "http:\\\\x", "%zz", "javascript:1", "//127.1/", "http:x",
	} {
		_, err := tool.Call(t.Context(), call(base+"/bad?to="+url.QueryEscape(to)))
		if err == nil {
			t.Errorf("a redirect to %q is followed", to)
		}
	}
	for _, to := range []string{"/n/0?next=https://x.example/", "../n/0?next=https://x.example/", "?to=n/0%3Fa=b://c"} {
		if a := read(t, tool, call(base+"/bad?to="+url.QueryEscape(to))); !strings.HasPrefix(a.URL, base+"/n/0?") {
			t.Errorf("a redirect to %q leads to %+v", to, a)
		}
	}
	if a := read(t, tool, call(base+"/none")); a.Status != 302 {
		t.Errorf("%+v", a)
	}
	// What is denied is denied after a redirect as well, and another host gets no headers.
	o.Allow = append(o.Allow, other[len("http://"):])
	read(t, web.New(o)[0], call(map[string]any{"url": base + "/other", "headers": headers}))
	if otherGot.Get("X-A") != "" || otherGot.Get("Accept-Language") != "de" {
		t.Errorf("%v", otherGot)
	}
	otherGot, o.Deny = nil, []string{other}
	if _, err := web.New(o)[0].Call(t.Context(), call(base+"/other")); err == nil || otherGot != nil {
		t.Error("a redirect to a denied host is followed")
	}
}

func TestCache(t *testing.T) {
	var asked, unchanged atomic.Int32
	base, o := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		switch r.URL.Path {
		case "/etag":
			w.Header().Set("Etag", `"1"`)
		case "/modified":
			w.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
		case "/no-store":
			w.Header().Set("Cache-Control", "private, no-store")
		case "/no-cache":
			w.Header().Set("Cache-Control", "no-cache")
			w.Header().Set("Etag", `"1"`)
		case "/max-age":
			w.Header().Set("Cache-Control", "max-age=0")
		case "/error":
			w.WriteHeader(http.StatusNotFound)
		case "/from":
			http.Redirect(w, r, "/etag", http.StatusFound)
			return
		}
		if r.Header.Get("If-None-Match") == `"1"` || r.Header.Get("If-Modified-Since") != "" {
			unchanged.Add(1)
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fmt.Fprint(w, "n", asked.Load())
	})
	// asks calls twice, and returns how often the server was asked in all, and how often it
	// had nothing new.
	asks := func(path string, expire, refresh bool) string {
		o.Cache = &web.Cache{}
		tool := web.New(o)[0]
		asked.Store(0)
		unchanged.Store(0)
		first := read(t, tool, call(base+path))
		if expire {
			o.Cache.Expire()
		}
		second := read(t, tool, call(map[string]any{"url": base + path, "force_refresh": refresh}))
		if first.Cached || second.Cached != (first.Body == second.Body) {
			t.Errorf("%s: %+v, %+v", path, first, second)
		}
		return fmt.Sprint(asked.Load(), unchanged.Load())
	}
	for _, c := range []struct {
		path            string
		expire, refresh bool
		want            string
	}{
		{"/", false, false, "1 0"},
		{"/", true, false, "2 0"},
		{"/", false, true, "2 0"},
		{"/etag", false, false, "1 0"},
		{"/etag", true, false, "2 1"},
		{"/etag", true, true, "2 0"},
		{"/modified", true, false, "2 1"},
		{"/no-store", false, false, "2 0"},
		{"/no-cache", false, false, "2 1"},
		{"/max-age", false, false, "2 0"},
		{"/error", false, false, "2 0"},
		{"/from", false, false, "2 0"},
		{"/from", true, false, "4 1"},
	} {
		if got := asks(c.path, c.expire, c.refresh); got != c.want {
			t.Errorf("%s, expired %t, refresh %t: %s, want %s", c.path, c.expire, c.refresh, got, c.want)
		}
	}
	// A page belongs to the user who read it, and today's lists count.
	o.Cache = &web.Cache{}
	read(t, web.New(o)[0], call(base+"/"))
	bob := call(base + "/")
	bob.Principal.User = "bob"
	if read(t, web.New(o)[0], bob).Cached {
		t.Error("a page of another user")
	}
	narrowed := o
	narrowed.AllowPrivate = false
	if _, err := web.New(narrowed)[0].Call(t.Context(), call(base+"/")); err == nil {
		t.Error("a page that is no longer allowed is in the cache")
	}
	local := strings.Replace(base, "127.0.0.1", "localhost", 1)
	named := o
	named.Allow = []string{local}
	read(t, web.New(named)[0], call(local))
	named.AllowPrivate = false
	if _, err := web.New(named)[0].Call(t.Context(), call(local)); err == nil {
		t.Error("a page from a private address is in the cache")
	}
	narrowed = o
	narrowed.Deny = []string{base + "/etag"}
	read(t, web.New(o)[0], call(base+"/from"))
	if _, err := web.New(narrowed)[0].Call(t.Context(), call(base+"/from")); err == nil {
		t.Error("a page that a denied redirect led to is in the cache")
	}
}

func TestCacheIsBounded(t *testing.T) {
	base, o := serve(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, strings.Repeat("a", 1<<20)) })
	o.Cache = &web.Cache{}
	tool := web.New(o)[0]
	for i := range 40 {
		read(t, tool, call(fmt.Sprintf("%s/%d", base, i)))
	}
	if entries, bytes := o.Cache.Size(); entries != 32 || bytes != 32<<20 {
		t.Errorf("%d entries, %d bytes", entries, bytes)
	}
	if !read(t, tool, call(base+"/39")).Cached || read(t, tool, call(base+"/0")).Cached {
		t.Error("not the oldest were dropped")
	}
}

// What a call sends counts before it is sent: nothing leaves that the bound does not allow.
func TestX11_WhatIsSentIsBounded(t *testing.T) {
	var got, requests atomic.Int64
	base, o := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		requests.Add(1)
		if got.Add(n + int64(len(r.URL.String())+len(r.Header.Get("X-A")))); r.URL.Path == "/fails" {
			panic(http.ErrAbortHandler)
		}
	})
	send := func(o web.Options, url, method, header, body string) error {
		c := call(url)
		arguments := map[string]any{"url": url, "method": method, "headers": map[string]string{"X-A": header}}
		if body != "" {
			arguments["body"] = body
		}
		c.Arguments, _ = json.Marshal(arguments)
		tool := web.New(o)[0]
		if err := tooltest.Refused(tool, c); err != nil {
			_, made := tool.Call(t.Context(), c) // another call may have used up what was left meanwhile
			if made == nil {
				t.Error("Call takes what Admit refuses")
			}
			return err
		}
		_, err := tool.Call(t.Context(), c)
		return err
	}
	o.SessionBytes = 5000
	for name, one := range map[string][4]string{
		"body": {base, "POST", "", strings.Repeat("S", 6000)}, "url": {base + "/" + strings.Repeat("S", 6000), "GET", "", ""},
		"header": {base, "GET", strings.Repeat("S", 6000), ""},
	} {
		o.Files = safefile.Folder{Dir: t.TempDir()}
		if err := send(o, one[0], one[1], one[2], one[3]); got.Load() != 0 {
			t.Errorf("%s: %d bytes left, %v", name, got.Load(), err)
		} else {
			has(t, refusal(t, err), "tools.web.max_bytes_per_session", "5000")
		}
		if err := send(o, base, "GET", "", ""); err != nil {
			t.Errorf("%s: what is left may be used: %v", name, err)
		}
		got.Store(0)
	}
	// A request that fails was sent.
	o.Files = safefile.Folder{Dir: t.TempDir()}
	requests.Store(0)
	for range 10 {
		_ = send(o, base+"/fails", "POST", "", strings.Repeat("S", 2000))
	}
	if n := requests.Load(); n != 2 {
		t.Errorf("%d requests of 2000 bytes", n)
	}
}

func TestX11_SessionsAreBounded(t *testing.T) {
	base, o := serve(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, strings.Repeat("a", 1000)) })
	other, _ := serve(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "b") })
	dir := t.TempDir()
	o.Allow = append(o.Allow, other[len("http://"):], "localhost:"+other[strings.LastIndex(other, ":")+1:])
	o.SessionBytes, o.Files = 2500, safefile.Folder{Dir: dir}
	for i, want := range []int{1000, 1000, 500 - 3*len(base+"/0")} {
		// Another process has nothing but the folder.
		a := read(t, web.New(o)[0], call(fmt.Sprint(base, "/", i)))
		if a.Bytes != want || a.Truncated != (want < 1000) {
			t.Errorf("%d: %+v", i, a)
		}
	}
	tool := web.New(o)[0]
	has(t, refusal(t, tooltest.Refused(tool, call(base))), "tools.web.max_bytes_per_session")
	if _, err := tool.Call(t.Context(), call(base)); err == nil {
		t.Error("read beyond the bound")
	}
	next := call(base)
	next.Session = "ses_2"
	if read(t, tool, next).Bytes != 1000 {
		t.Error("sessions share a bound")
	}

	o.SessionBytes, o.SessionHosts, o.Files = 0, 1, safefile.Folder{Dir: t.TempDir()}
	tool = web.New(o)[0]
	read(t, tool, call(base))
	read(t, tool, call(other)) // the same host, on another port
	elsewhere := call("http://localhost" + other[strings.LastIndex(other, ":"):])
	has(t, refusal(t, tooltest.Refused(tool, elsewhere)), "tools.web.max_hosts_per_session", "localhost")
	if _, err := tool.Call(t.Context(), elsewhere); err == nil {
		t.Error("another host is reached")
	}

	// What cannot be counted is not read.
	o.Files = nil
	if _, err := web.New(o)[0].Call(t.Context(), call(base)); err == nil {
		t.Error("read without files")
	}
	edit := func(change func(string) string) {
		t.Helper()
		names, err := filepath.Glob(filepath.Join(dir, "web", "*", "spent.json"))
		if err != nil || len(names) == 0 {
			t.Fatal(names, err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err == nil {
				err = os.WriteFile(name, []byte(change(string(text))), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, damage := range []string{"", "null", "[]", "{"} {
		edit(func(string) string { return damage })
		o.Files, o.SessionBytes = safefile.Folder{Dir: dir}, 1<<40
		if _, err := web.New(o)[0].Call(t.Context(), call(base)); err == nil {
			t.Errorf("read with damaged files: %q", damage)
		}
	}
	// What a session has used is forgotten when it has read nothing for long.
	dir = t.TempDir()
	o.SessionBytes, o.SessionHosts, o.Files = 1500, 0, safefile.Folder{Dir: dir}
	tool = web.New(o)[0]
	read(t, tool, next)
	if again := read(t, tool, next); again.Bytes >= 1000 {
		t.Errorf("read %d bytes beyond the bound", again.Bytes)
	}
	now := time.Now().UTC().Format("2006-01-02")
	long := time.Now().Add(-91 * 24 * time.Hour).UTC().Format("2006-01-02")
	edit(func(text string) string { return strings.ReplaceAll(text, now, long) })
	if again := read(t, tool, next); again.Bytes != 1000 {
		t.Errorf("%d bytes: what was used is not forgotten", again.Bytes)
	}
}

// Calls side by side never read more than the session may.
func TestX11_CallsSideBySide(t *testing.T) {
	var sent atomic.Int64
	base, o := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.WriteString(w, strings.Repeat("a", 300<<10))
		sent.Add(int64(n))
	})
	o.SessionBytes, o.Files = 1<<20, safefile.Folder{Dir: t.TempDir()}
	tool := web.New(o)[0]
	total := make(chan int)
	for i := range 8 {
		go func() {
			out, err := tool.Call(context.WithoutCancel(t.Context()), call(fmt.Sprint(base, "/", i)))
			var a answer
			if err == nil {
				_ = json.Unmarshal(out.JSON, &a)
			}
			total <- a.Bytes
		}()
	}
	sum := 0
	for range 8 {
		sum += <-total
	}
	if sum > 1<<20 || sum < 600<<10 {
		t.Errorf("%d bytes were read of %d", sum, 1<<20)
	}
}

func TestFailures(t *testing.T) {
	base, o := serve(t, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	gone := httptest.NewServer(nil)
	gone.Close()
	self := httptest.NewTLSServer(nil)
	t.Cleanup(self.Close)
	o.Allow = append(o.Allow, gone.URL, self.URL, "no-such-host.invalid")
	tool := web.New(o)[0]
	for address, want := range map[string]string{
		gone.URL: "refuses connections", self.URL: "certificate", "http://no-such-host.invalid/": "address",
	} {
		_, err := tool.Call(t.Context(), call(address))
		has(t, refusal(t, err), want)
	}
	host := strings.TrimPrefix(base, "http://")
	for want, slow := range map[string]func(*http.Transport){
		"timeout after 20s: " + host + " did not answer": func(t *http.Transport) { t.ResponseHeaderTimeout = time.Millisecond },
		"timeout after 10s: " + host + " did not answer": func(t *http.Transport) {
			t.DialContext = func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
			}
		},
	} {
		if _, err := web.NewOn(o, nil, slow)[0].Call(t.Context(), call(base)); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := tool.Call(ctx, call(base)); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Minute {
		t.Errorf("%v after %s", err, time.Since(began))
	}
}

// An IP address that is denied is not reached by a name that leads to it either.
func TestDeniedAddress(t *testing.T) {
	base, o := serve(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "here") })
	port := base[strings.LastIndex(base, ":"):]
	o.Allow = []string{"localhost" + port}
	if a := read(t, web.New(o)[0], call("http://localhost"+port)); a.Body != "here" {
		t.Fatalf("%+v", a)
	}
	for _, deny := range []string{"127.0.0.1", "127.0.0.1" + port, "http://127.0.0.1" + port + "/"} {
		o.Deny = []string{deny}
		_, err := web.New(o)[0].Call(t.Context(), call("http://localhost"+port))
		has(t, refusal(t, err), "is at an address that is in tools.web.deny")
	}
	o.Deny = []string{"127.0.0.2", "127.0.0.1:1"}
	read(t, web.New(o)[0], call("http://localhost"+port))
}

func TestSkillPatterns(t *testing.T) {
	tool := web.New(web.Options{Allow: []string{"*"}})[0]
	patterned := tool.(skill.Patterned)
	for _, c := range []struct {
		pattern, url string
		want         bool
	}{
		{"domain:example.com", "https://example.com/x", true},
		{"domain:example.com", "https://a.example.com/x", false},
		{"domain:*.example.com", "https://a.example.com/x", true},
		{"https://example.com/docs/*", "https://example.com/docs/x", true},
		{"https://example.com/docs/:*", "https://example.com/docs/x", true},
		{"https://example.com/docs/*", "https://example.com/doc", false},
		{"https://example.com/docs/*", "https://example.com/docs/../x", false},
		{"https://example.com/*", "https://example.com.evil.example/", false},
		{"domain:example.com", "https://example.com@evil.example/", false},
	} {
		got := false
		if plan, err := tooltest.Plan(t.Context(), tool, call(c.url)); err == nil {
			got, _ = plan.Matches([]string{c.pattern})
		}
		if got != c.want || patterned.BadPattern(c.pattern) != "" {
			t.Errorf("%s, %s: %t %q", c.pattern, c.url, got, patterned.BadPattern(c.pattern))
		}
	}
	for _, bad := range []string{"", "*", "domain:*", "domain:", "example.com", "domain:a/b", "https://example.com/docs", "x://y/*", "domain:https://a.b/"} {
		if patterned.BadPattern(bad) == "" {
			t.Errorf("%q is a pattern", bad)
		}
	}
}

// HTML that is made to cost much ends, and never becomes larger than a small multiple.
func TestHostileHTML(t *testing.T) {
	pages := map[string]string{
		"deep divs":  strings.Repeat("<div>", 25_000) + "x",
		"deep lists": strings.Repeat(strings.Repeat("<ul><li>", 200)+"hello"+strings.Repeat("</ul>", 200), 50),
		"quotes":     strings.Repeat("<blockquote>", 400) + strings.Repeat("<p>x", 25_000),
		"marks":      strings.Repeat("*_[`", 60_000),
		"wide cell":  "<table><tr><td>" + strings.Repeat("x", 25_000) + strings.Repeat("<tr><td>a", 12_000) + "</table>",
		"spans":      "<table><tr><td colspan=1000000000 rowspan=1000000000>a</table>",
		"attribute":  "<div class='" + strings.Repeat("a ", 250_000) + "'>x</div>",
		"json":       "<script type='application/ld+json'>" + strings.Repeat("[", 250_000) + "</script><p>x",
		"tables":     strings.Repeat("<table><tr><td>", 100) + "x",
		"noscript":   strings.Repeat("<noscript><p>", 10_000),
		"select":     "<select>" + strings.Repeat("<option>x", 25_000),
		"svg":        "<svg>" + strings.Repeat("<foreignObject><p>", 300) + "x",
		"template":   strings.Repeat("<template>", 400) + "x",
		"title":      "<title>" + strings.Repeat("a | ", 50_000) + "</title><h1>x</h1><p>x",
		"comments":   strings.Repeat("<!-- x -->", 25_000),
		"entities":   strings.Repeat("&NotEqualTilde;", 25_000),
		"br":         strings.Repeat("x<br><br>", 25_000),
		"formatting": strings.Repeat("<b><i>a", 300) + strings.Repeat("<p>", 2_500),
		"styles":     "<style>" + strings.Repeat(".a,b{display:none}", 20_000) + "</style>" + strings.Repeat("<p class='a a a'>x", 10_000),
		"start":      "<ol start=99999999999999999999>" + strings.Repeat("<li>x", 10_000),
	}
	for name, text := range pages {
		base, o := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, text)
		})
		for _, format := range []string{"auto", "page"} {
			a := read(t, web.New(o)[0], call(map[string]any{"url": base, "format": format}))
			if len(a.Body) > 40*len(text)+1000 {
				t.Errorf("%s, %s: %d bytes of %d", name, format, len(a.Body), len(text))
			}
		}
	}
}
