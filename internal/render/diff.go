package render

import (
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// previewRows is how many rows a line of a preview has before somebody asks for all.
const previewRows = 4

// Preview shows what a call would change; of long lines both ends, unless whole.
func (s Style) Preview(p *toolcrib.Preview, whole bool) string {
	if p == nil || strings.TrimRight(p.Text, "\n") == "" {
		return ""
	}
	tone := func(l string) string { return l }
	if p.Kind == "diff" {
		tone = s.diffLine
	}
	lines := strings.Split(strings.TrimRight(p.Text, "\n"), "\n")
	var b strings.Builder
	for _, l := range lines {
		if !whole {
			l = cut(blanks(guard.Visible(l), blanksInRow), previewRows*(s.width()-5), true)
		}
		first := true
		b.WriteString(s.quoted(l, func(row string) string {
			if !first {
				return row // what it begins with says nothing
			}
			first = false
			return tone(row)
		}))
	}
	return b.String()
}

func (s Style) diffLine(l string) string {
	switch {
	case strings.HasPrefix(l, "+++"), strings.HasPrefix(l, "---"):
		return s.Bold(l)
	case strings.HasPrefix(l, "@@"):
		return s.Cyan(l)
	case strings.HasPrefix(l, "+"):
		return s.Green(l)
	case strings.HasPrefix(l, "-"):
		return s.Red(l)
	}
	return l
}
