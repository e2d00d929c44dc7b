package tui

import (
	"regexp"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/render"
)

// visible shows what a text really holds; tabs become spaces, because a tab has
// no width that could be counted.
func visible(text string) string {
	return strings.ReplaceAll(guard.Visible(text), "\t", "    ")
}

// oneLine makes a text one visible line of at most width columns.
func oneLine(text string, width int) string { return render.Line(text, width) }

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
	"●", "*", "└", "`-", "…", "...", "·", "-", "❯", ">", "✓", "ok", "✗", "x", "■", "#", "∴", "~", "•", "-", "│", "|", "─",
	"-", "┼", "+", "–", "-",
)
