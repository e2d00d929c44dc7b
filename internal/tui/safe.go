package tui

import (
	"html"
	"regexp"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/toolcrib/toolcrib/guard"
)

// visible shows what a text really holds; tabs become spaces, because a tab has
// no width that could be counted.
func visible(text string) string {
	return strings.ReplaceAll(guard.Visible(text), "\t", "    ")
}

// oneLine makes a text one visible line of at most width columns.
func oneLine(text string, width int) string {
	const most = 1 << 14 // what is longer does not show anyway
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	text = strings.Join(strings.Fields(text), " ")
	return ansi.Truncate(guard.Visible(text), max(width, 1), "…")
}

// reference is a character reference of HTML, which Markdown reads too.
var reference = regexp.MustCompile(`&(?:#[0-9]{1,8}|#[xX][0-9a-fA-F]{1,8}|[A-Za-z][A-Za-z0-9]{1,32});?`)

// plainReferences shows references to characters that are not visible for what
// they are: "&#27;" would become an escape character after everything was made
// visible. A reference that names a letter stays.
func plainReferences(text string) string {
	if !strings.Contains(text, "&") {
		return text
	}
	return reference.ReplaceAllStringFunc(text, func(ref string) string {
		char := html.UnescapeString(ref)
		if char == ref || char == "\u00a0" {
			return ref
		}
		if shown := guard.Visible(char); shown != char {
			return shown
		}
		return ref
	})
}

// onlyColours lets visible text and the sequences of colours pass, and nothing
// else that a terminal would obey: links of terminals (OSC 8) are left out, any
// other sequence is shown for what it is. Without color no sequence passes.
func onlyColours(text string, color bool) string {
	var b strings.Builder
	for text != "" {
		i := strings.IndexByte(text, 0x1b)
		if i < 0 {
			i = len(text)
		}
		b.WriteString(visible(text[:i]))
		text = text[i:]
		if text == "" {
			break
		}
		if n := colourLen(text); n > 0 {
			if color {
				b.WriteString(text[:n])
			}
			text = text[n:]
			continue
		}
		if n := linkLen(text); n > 0 {
			text = text[n:]
			continue
		}
		b.WriteString(guard.Visible("\x1b"))
		text = text[1:]
	}
	return b.String()
}

// colourLen is the length of the colour sequence (SGR) that text begins with; 0 =
// none, or one that would hide or blink.
func colourLen(text string) int {
	if !strings.HasPrefix(text, "\x1b[") {
		return 0
	}
	end := strings.IndexFunc(text[2:], func(r rune) bool { return (r < '0' || r > '9') && r != ';' })
	if end < 0 || end > 64 || text[2+end] != 'm' {
		return 0
	}
	params := strings.Split(text[2:2+end], ";")
	for i := 0; i < len(params); i++ {
		switch params[i] {
		case "38", "48", "58": // what follows is a colour
			i += 2
			if i-1 < len(params) && params[i-1] == "2" {
				i += 2
			}
		case "5", "6", "8":
			return 0
		}
	}
	return 2 + end + 1
}

// linkLen is the length of the link sequence (OSC 8) that text begins with.
func linkLen(text string) int {
	if !strings.HasPrefix(text, "\x1b]8;") {
		return 0
	}
	for i := 4; i < len(text); i++ {
		switch {
		case text[i] == 0x07:
			return i + 1
		case text[i] == 0x1b && i+1 < len(text) && text[i+1] == '\\':
			return i + 2
		case text[i] < 0x20 || text[i] == 0x7f:
			return 0
		}
	}
	return 0
}

// emptyEnd is what is at the end of a line and shows nothing.
var emptyEnd = regexp.MustCompile(`(?:\x1b\[[0-9;]*m| )+$`)

// trimmed takes padding from the ends of lines, and empty lines from both ends.
func trimmed(text string) []string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		cut := emptyEnd.ReplaceAllString(l, "")
		if strings.Contains(cut, "\x1b") {
			cut += "\x1b[0m"
		}
		lines[i] = cut
	}
	for len(lines) > 0 && lines[0] == "" {
		lines = lines[1:]
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// fit breaks lines that are wider than the terminal: a line that the terminal
// breaks itself would put everything after it in the wrong place.
func fit(lines []string, width int) []string {
	out := make([]string, 0, len(lines))
	for _, l := range lines {
		if width < 1 || ansi.StringWidth(l) <= width {
			out = append(out, l)
			continue
		}
		out = append(out, strings.Split(ansi.Hardwrap(l, width, true), "\n")...)
	}
	return out
}

// wrapped breaks a visible text at words.
func wrapped(text string, width int) []string {
	return fit(lines(ansi.Wrap(text, max(width, 1), "")), max(width, 1))
}

// asciiSigns are the signs of this package and of package render, for terminals
// that cannot show them.
var asciiSigns = strings.NewReplacer(
	"●", "*", "└", "`-", "…", "...", "·", "-", "❯", ">", "✓", "ok", "✗", "x", "■", "#", "∴", "~", "•", "-", "│", "|", "─", "-", "┼", "+", "–", "-",
)
