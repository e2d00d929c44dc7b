package render

import (
	"fmt"
	"io"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/toolcrib/toolcrib/guard"
)

// Table writes rows in columns, the first row as a heading. Cells are made
// visible. The last column is cut at the width of the style if that is known.
func (s Style) Table(w io.Writer, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	widths := make([]int, len(rows[0]))
	for r := range rows {
		for c := range rows[r] {
			rows[r][c] = guard.Visible(strings.Join(strings.Fields(rows[r][c]), " "))
			widths[c] = max(widths[c], ansi.StringWidth(rows[r][c]))
		}
	}
	for r, row := range rows {
		var b strings.Builder
		used := 0
		for c, cell := range row {
			if c == len(row)-1 {
				if room := s.Width - used; s.Width > 0 && room > 10 {
					cell = ansi.Truncate(cell, room, "…")
				}
				b.WriteString(cell)
				break
			}
			b.WriteString(cell)
			b.WriteString(strings.Repeat(" ", widths[c]-ansi.StringWidth(cell)+2))
			used += widths[c] + 2
		}
		text := strings.TrimRight(b.String(), " ")
		if r == 0 {
			text = s.Bold(text)
		}
		fmt.Fprintln(w, text)
	}
}
