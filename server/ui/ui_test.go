package ui_test

import (
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/internal/browsertest"
)

const hello = "- {text: hello}\n"

// everyPage are the pages without parameters.
var everyPage = []string{"/", "/runs", "/approvals", "/tools", "/explain", "/policy", "/usage", "/account", "/nothing"}

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
