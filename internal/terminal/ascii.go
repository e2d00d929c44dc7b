package terminal

import (
	"cmp"
	"os"
	"strings"
)

// UTF8 reports whether a terminal supports UTF-8 according to its locale: it does unless the locale is C or POSIX or
// names another character set. Without a locale, as in containers, it does.
func UTF8(getenv func(string) string) bool {
	locale := cmp.Or(getenv("LC_ALL"), getenv("LC_CTYPE"), getenv("LANG"))
	set := strings.ReplaceAll(strings.ToLower(locale), "-", "")
	return locale != "C" && locale != "POSIX" && (!strings.Contains(set, ".") || strings.Contains(set, "utf8"))
}

// ASCII is a terminal that does not support UTF-8. It replaces only the signs of this program, not other characters.
type ASCII struct{ *os.File }

// Write implements [io.Writer].
func (t ASCII) Write(p []byte) (int, error) {
	_, err := t.WriteString(Signs(string(p)))
	return len(p), err
}

// Signs returns a text with the signs of this program replaced by ASCII of the same width.
func Signs(text string) string { return signs.Replace(text) }

var signs = strings.NewReplacer("·", "-", "…", "~", "✓", "+", "✗", "x", "❯", ">", "●", "*", "■", "#", "•", "*",
	"→", ">", "←", "<", "↳", ">", "≠", "!", "∴", ":", "│", "|", "└", "`", "─", "-", "┼", "+",
	"⠋", "|", "⠙", "/", "⠹", "-", "⠸", `\`, "⠼", "|", "⠴", "/", "⠦", "-", "⠧", `\`, "⠇", "|", "⠏", "/",
	"█", "#", "▉", "#", "▊", "#", "▋", "#", "▌", "#", "▍", "#", "▎", "#", "▏", "#")
