package offline

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// showFile shows files whole if they are short, else their beginning. What turns
// out to be a folder is listed.
func showFile(t *turn, c clause, _ string) (string, bool) {
	return t.each(c, func(d document) string {
		lines := strings.SplitAfter(strings.TrimSuffix(d.text, "\n"), "\n")
		name := visible(d.path)
		if d.text == "" {
			return d.note + name + " is empty."
		}
		if d.whole && len(lines) <= maxShown+20 && len(d.text) <= 6000 {
			return fmt.Sprintf("%s%s (%s):\n%s", d.note, name, plural(len(lines), "line", "lines"), fence(d.text))
		}
		shown := clip(strings.Join(lines[:min(len(lines), maxShown)], ""))
		return fmt.Sprintf("%sThe beginning of %s (%s%s in all):\n%s", d.note, name, d.atLeast(), plural(len(lines), "line", "lines"), fence(shown))
	})
}

// clip cuts a text to about 6000 bytes, at the bounds of a character.
func clip(s string) string {
	if len(s) <= 6000 {
		return s
	}
	return strings.ToValidUTF8(s[:6000], "") + "…"
}

// each reads the files of a clause and puts together what tell makes of them.
func (t *turn) each(c clause, tell func(document) string) (string, bool) {
	var answers []string
	all := true
	for _, name := range c.files[:min(len(c.files), maxReads)] {
		if strings.HasSuffix(name, "/") {
			text, done := list(t, clause{folder: strings.TrimSuffix(name, "/")}, "")
			answers, all = append(answers, text), all && done
			continue
		}
		d, done := t.read(name)
		switch {
		case !done:
			all = false
		case d.folder:
			text, done := list(t, clause{folder: name}, "")
			answers, all = append(answers, text), all && done
		case d.problem != "":
			answers = append(answers, d.failure())
		default:
			answers = append(answers, tell(d))
		}
	}
	return strings.Join(answers, "\n\n"), all
}

// showWords reads files that are named by plain words: "show me link".
func showWords(t *turn, c clause, previous string) (string, bool) {
	c.files = c.words
	return showFile(t, c, previous)
}

// readSpan shows some lines of a file.
func readSpan(t *turn, c clause, _ string) (string, bool) {
	m := isSpan.FindStringSubmatch(c.text)
	return t.each(c, func(d document) string {
		lines := strings.Split(strings.TrimSuffix(d.text, "\n"), "\n")
		n := number(m[2], 1)
		if m[2] == "" && !strings.HasSuffix(strings.TrimRight(strings.ToLower(m[0]), " "), "line") {
			n = 10
		}
		from, to := 1, n
		switch word := strings.ToLower(m[1]); {
		case m[3] != "":
			from = number(m[3], 1)
			to = number(m[4], from)
		case strings.HasPrefix(word, "l"):
			if !d.whole {
				return fmt.Sprintf("%s%s is too long to be read to its end here, so I cannot show its last lines.", d.note, visible(d.path))
			}
			from, to = max(len(lines)-n+1, 1), len(lines)
		}
		if from > len(lines) {
			return fmt.Sprintf("%s%s has only %s.", d.note, visible(d.path), plural(len(lines), "line", "lines"))
		}
		to = min(max(to, from), len(lines), from+199)
		name := fmt.Sprintf("Lines %d to %d", from, to)
		if from == to {
			name = fmt.Sprintf("Line %d", from)
		}
		return fmt.Sprintf("%s%s of %s:\n%s", d.note, name, visible(d.path), fence(clip(strings.Join(lines[from-1:to], "\n"))))
	})
}

func number(s string, otherwise int) int {
	if n, err := strconv.Atoi(s); err == nil && n > 0 {
		return n
	}
	return otherwise
}

var (
	heading     = regexp.MustCompile(`^#{1,6}\s+\S`)
	declaration = regexp.MustCompile(`^(?:export\s+|pub\s+|public\s+|async\s+|static\s+)*(?:func|type|class|def|interface|struct|enum|trait|impl|fn|function|package|module)\b.*`)
)

// outlineFile gives what rules can give instead of a summary: headings or
// declarations, and the first paragraph.
func outlineFile(t *turn, c clause, _ string) (string, bool) {
	return t.each(c, func(d document) string { return outline(d, true) })
}

func outline(d document, begins bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s: %s%s, %s. I cannot summarise (no language model); this is its outline.\n",
		d.note, visible(d.path), d.atLeast(), plural(count(d.text, "lines"), "line", "lines"), plural(count(d.text, "words"), "word", "words"))
	if p := paragraph(d.text); begins && p != "" {
		fmt.Fprintf(&b, "\nIt begins:\n> %s\n", p)
	}
	var items []string
	markdown := strings.HasSuffix(strings.ToLower(d.path), ".md")
	fenced := false
	for _, line := range strings.Split(d.text, "\n") {
		line = strings.TrimRight(line, " \t\r")
		fenced = fenced != strings.HasPrefix(line, "```")
		switch {
		case markdown && !fenced && heading.MatchString(line):
			level := len(line) - len(strings.TrimLeft(line, "#"))
			items = append(items, strings.Repeat("  ", level-1)+"- "+strings.TrimSpace(strings.TrimLeft(line, "#")))
		case !markdown && declaration.MatchString(line):
			items = append(items, "- `"+oneLine(strings.TrimSuffix(strings.TrimRight(line, " {:"), "("))+"`")
		}
	}
	if len(items) > 0 {
		more := ""
		if len(items) > maxShown {
			more = fmt.Sprintf("\n… and %d more", len(items)-maxShown)
		}
		fmt.Fprintf(&b, "\n%s%s", strings.Join(items[:min(len(items), maxShown)], "\n"), more)
	}
	return strings.TrimRight(b.String(), "\n")
}

// paragraph returns the first paragraph of running text, on one line.
func paragraph(text string) string {
	for _, block := range strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n\n") {
		var lines []string
		for _, line := range strings.Split(block, "\n") {
			line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "//"))
			if heading.MatchString(line) || strings.HasPrefix(line, "[![") || strings.HasPrefix(line, "<") {
				continue
			}
			lines = append(lines, line)
		}
		joined := strings.TrimSpace(strings.Join(lines, " "))
		if len(strings.Fields(joined)) >= 4 && !strings.HasPrefix(joined, "```") {
			return oneLine(joined)
		}
	}
	return ""
}

// showTitle gives the first heading of a file, or its first line.
func showTitle(t *turn, c clause, _ string) (string, bool) {
	return t.each(c, func(d document) string {
		first := ""
		for _, line := range strings.Split(d.text, "\n") {
			if line = strings.TrimSpace(line); heading.MatchString(line) {
				return fmt.Sprintf("%sThe first heading of %s is %q.", d.note, visible(d.path), strings.TrimSpace(strings.TrimLeft(line, "#")))
			}
			if first == "" {
				first = line
			}
		}
		return fmt.Sprintf("%s%s has no heading; its first line is %q.", d.note, visible(d.path), oneLine(first))
	})
}
