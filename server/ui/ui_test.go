package ui_test

import (
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/internal/browsertest"
)

const hello = "- {text: hello}\n"

// everyPage are the pages without parameters.
var everyPage = []string{"/", "/runs", "/approvals", "/tools", "/explain", "/policy", "/usage", "/account", "/people", "/nothing"}

func TestPages(t *testing.T) {
	h := open(t, map[string]string{"default": hello}, "")
	for name, o := range map[string]browsertest.Options{
		"desktop": {}, "phone": browsertest.Options{}.Phone(), "dark": {Dark: true}, "german": {Language: "de"},
		"dark-phone": browsertest.Options{Dark: true, Reduced: true}.Phone(), "without-script": {NoScript: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := *h
			h.t = t
			tab := h.tab("boss", o)
			tab.Expect("404")
			for _, path := range everyPage {
				tab.Visit(h.url + path)
				if browsertest.Eval[bool](tab, "document.documentElement.scrollWidth > document.documentElement.clientWidth") {
					t.Errorf("%s is wider than the window", path)
				}
				if !o.NoScript {
					tab.Axe()
				}
				tab.Shot(name + strings.ReplaceAll(path, "/", "-"))
			}
		})
	}
}

func TestPages_Headers(t *testing.T) {
	h := open(t, map[string]string{"default": hello}, "")
	_, head, body := h.get(h.token("boss"), "/")
	if csp := head.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") ||
		strings.Contains(csp, "unsafe") {
		t.Errorf("policy: %s", csp)
	}
	if strings.Contains(body, "<script>") || strings.Contains(body, " style=") || strings.Contains(body, " onclick") {
		t.Error("a page has code or style of its own")
	}
}

// maxFirstLoad bounds what a browser loads for the first page, in bytes as they are sent.
const maxFirstLoad = 150_000

func TestFirstLoad(t *testing.T) {
	h := open(t, map[string]string{"default": hello}, "")
	_, _, page := h.get(h.token("boss"), "/")
	sum := len(page)
	seen := map[string]bool{}
	for load := addressed.FindAllString(page, -1); len(load) > 0; load = load[1:] {
		at := load[0]
		if seen[at] {
			continue
		}
		seen[at] = true
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+at, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept-Encoding", "gzip")
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(answer.Header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %s %v %v", at, answer.Status, answer.Header, err)
		}
		sum += len(body)
		if base, name, ok := strings.Cut(at, "/js/"); ok && name == "app.js" { // it may import all of them
			names, err := filepath.Glob("assets/js/*.js")
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range names {
				load = append(load, base+"/js/"+filepath.Base(one))
			}
		}
	}
	t.Logf("%d bytes in %d requests", sum, 1+len(seen))
	if sum > maxFirstLoad || len(seen) < 4 {
		t.Errorf("the first page takes %d bytes in %d requests", sum, 1+len(seen))
	}
}

// addressed matches the address of a file of the pages.
var addressed = regexp.MustCompile(`/assets/[0-9a-f]+/[a-z./-]+`)
