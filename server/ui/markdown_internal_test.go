package ui

import (
	"strings"
	"testing"
)

// What would become much larger, or take long, is shown as it is.
func TestN25_MarkdownIsBounded(t *testing.T) {
	m := newMarkdown()
	for name, text := range map[string]string{
		"table":    strings.Repeat("|a", 1000) + "|\n" + strings.Repeat("|-", 1000) + "|\n" + strings.Repeat("|\n", 1000),
		"quotes":   strings.Repeat("> ", 20_000) + "x",
		"brackets": strings.Repeat("[a](", 15_000),
		"long":     strings.Repeat("a *b* ", 20_000),
	} {
		if html := string(m.render(text)); !strings.HasPrefix(html, `<p class="as-is">`) || len(html) > 6*len(text) {
			t.Errorf("%s: %d bytes become %d: %.60s", name, len(text), len(html), html)
		}
	}
	small := "| a | b |\n|---|---|\n| 1 | 2 |\n\n> quoted\n\n<b>no</b> ![x](https://example.com/x.png) [l](https://example.com)"
	html := string(m.render(small))
	for _, part := range []string{"<table>", "<blockquote>", "&lt;b&gt;", `<a href="https://example.com"`} {
		if !strings.Contains(html, part) {
			t.Errorf("%q is missing in %s", part, html)
		}
	}
	if strings.Contains(html, "<img") || strings.Contains(html, "<b>") {
		t.Error(html)
	}
}
