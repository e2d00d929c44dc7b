package guard

import (
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// Bare returns the letters and digits of a text, in lower case and compatibility form (NFKC), so that two texts
// that differ only in presentation compare equal. Space, punctuation, Markdown, the characters that [Clean]
// removes, fences, canaries and marks around phrases are left out. A text without letters and digits loses only
// its space.
func Bare(text string) string {
	text = unwrapped(text)
	if letters := strings.Map(bare, text); letters != "" {
		return letters
	}
	return strings.Join(strings.Fields(text), "")
}

// BareLines returns [Bare] of each line of a text, without the lines that have no letters or digits.
func BareLines(text string) (lines []string) {
	for line := range strings.Lines(unwrapped(text)) {
		if line = strings.Map(bare, line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// unwrapped returns a text in compatibility form, without fences, canaries, marks and escaped HTML characters.
func unwrapped(text string) string {
	text = strings.ReplaceAll(Clean(text), phraseMark, "")
	for _, part := range []string{untrustedTag, toolResultTag, CanaryPrefix} {
		if strings.Contains(text, part) {
			text = fences().ReplaceAllLiteralString(text, "")
			break
		}
	}
	if strings.Contains(text, "&") {
		text = strings.NewReplacer("&lt;", "", "&gt;", "", "&amp;", "", "&quot;", "").Replace(text)
	}
	return norm.NFKC.String(text)
}

var fences = lazily(`</?(?:` + untrustedTag + `|` + toolResultTag + `)[^<>]*>|` + canaryTag + `[^<>]*</canary>|` +
	CanaryPrefix + `[0-9A-F]{16}`)

func bare(r rune) rune {
	switch {
	case unicode.IsLetter(r), unicode.IsNumber(r), unicode.IsMark(r) && !unicode.Is(unicode.Variation_Selector, r):
		return unicode.ToLower(r)
	}
	return -1
}
