package render

import (
	"fmt"
	"io"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/toolcrib/toolcrib/guard"
)

// Bounds of a column that has to give way.
const (
	columnGap   = 2
	leastColumn = 8
)

// Table writes rows in columns, the first row as a heading. Cells are made
// visible. Where the width of the style is known, the widest columns give way until
// the lines fit, but for the first: it names what the row is about.
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
	if s.Width > 0 || s.Columns != nil {
		fit(widths, s.width())
	}
	for r, row := range rows {
		var b strings.Builder
		for c, cell := range row {
			cell = cut(cell, widths[c], false)
			b.WriteString(cell)
			b.WriteString(strings.Repeat(" ", widths[c]-ansi.StringWidth(cell)+columnGap))
		}
		text := strings.TrimRight(b.String(), " ")
		if r == 0 {
			text = s.Bold(text)
		}
		fmt.Fprintln(w, text)
	}
}

// fit narrows the widest columns, but for the first, until all have room; columns
// that are narrow already stay so.
func fit(widths []int, room int) {
	over := columnGap*(len(widths)-1) - room
	for _, width := range widths {
		over += width
	}
	for over > 0 {
		widest := 0
		for c := 1; c < len(widths); c++ {
			if widest == 0 || widths[c] > widths[widest] {
				widest = c
			}
		}
		if widest == 0 || widths[widest] <= leastColumn {
			return
		}
		widths[widest]--
		over--
	}
}
