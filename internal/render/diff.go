package render

import (
	"fmt"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// previewLines is how much of a preview is shown before somebody asks for more.
const previewLines = 40

// moreLines says how to see the rest of a preview.
const moreLines = "more lines (s shows all)"

// Preview shows what a call would change, in at most most lines (0 = all).
func (s Style) Preview(p *toolcrib.Preview, most int) string {
	if p == nil || p.Text == "" {
		return ""
	}
	lines := strings.Split(strings.TrimRight(p.Text, "\n"), "\n")
	shown := len(lines)
	if most > 0 && shown > most {
		shown = most
	}
	var b strings.Builder
	for _, l := range lines[:shown] {
		// Nothing of a change may be out of sight when somebody asked to see it all.
		width := s.width() - 4
		if most == 0 {
			width = 1 << 16
		}
		l = cutLine(l, width)
		if p.Kind == "diff" {
			l = s.diffLine(l)
		}
		fmt.Fprintf(&b, "    %s\n", l)
	}
	if more := len(lines) - shown; more > 0 {
		fmt.Fprintf(&b, "    %s\n", s.Dim(fmt.Sprintf("… %d %s", more, moreLines)))
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
