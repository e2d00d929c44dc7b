package terminal

import (
	"cmp"
	"os"
	"strings"
)

// UTF8 reports whether a terminal takes UTF-8 by its locale: any but C, POSIX, and those that name another character
// set. Where nothing is said, as in containers, it does.
func UTF8(getenv func(string) string) bool {
	locale := cmp.Or(getenv("LC_ALL"), getenv("LC_CTYPE"), getenv("LANG"))
	set := strings.ReplaceAll(strings.ToLower(locale), "-", "")
	return locale != "C" && locale != "POSIX" && (!strings.Contains(set, ".") || strings.Contains(set, "utf8"))
}

// ASCII is a terminal that does not take UTF-8. Other characters than the signs of this program are not changed.
type ASCII struct{ *os.File }

// Write implements [io.Writer].
func (t ASCII) Write(p []byte) (int, error) {
	_, err := t.WriteString(Signs(string(p)))
	return len(p), err
}

// Signs returns a text with ASCII for the signs of this program, each as wide, so that rows stay as long.
func Signs(text string) string { return signs.Replace(text) }

var signs = strings.NewReplacer("·", "-", "…", "~", "✓", "+", "✗", "x", "❯", ">", "●", "*", "■", "#", "•", "*",
	"→", ">", "←", "<", "↳", ">", "≠", "!", "∴", ":", "│", "|", "└", "`", "─", "-", "┼", "+",
	"⠋", "|", "⠙", "/", "⠹", "-", "⠸", `\`, "⠼", "|", "⠴", "/", "⠦", "-", "⠧", `\`, "⠇", "|", "⠏", "/",
	"█", "#", "▉", "#", "▊", "#", "▋", "#", "▌", "#", "▍", "#", "▎", "#", "▏", "#")
