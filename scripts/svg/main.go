// Command svg draws what a terminal was sent, from standard input, as an SVG. It knows
// the few sequences that toolcrib writes: colours, bold, dim, and erasing a line.
package main

import (
	"bufio"
	"fmt"
	"html"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	cellWidth  = 8.4 // of a character of 14 pixels
	lineHeight = 20
	margin     = 20
)

// sequence is what a terminal acts on: colours are kept, the rest has no picture.
var sequence = regexp.MustCompile("\x1b\\[([0-9;?]*)([A-Za-z])")

var classes = map[string]string{
	"1": "b", "2": "d", "31": "red", "32": "green", "33": "yellow", "36": "cyan",
}

// draw returns one line with its colours as spans, and its width in characters.
func draw(line string) (svg string, width int) {
	var b strings.Builder
	var on []string
	text := func(s string) {
		if s == "" {
			return
		}
		width += utf8.RuneCountInString(s)
		fmt.Fprintf(&b, `<tspan class="%s">%s</tspan>`, strings.Join(on, " "), html.EscapeString(s))
	}
	at := 0
	for _, found := range sequence.FindAllStringSubmatchIndex(line, -1) {
		text(line[at:found[0]])
		at = found[1]
		if line[found[4]:found[5]] != "m" {
			continue
		}
		for code := range strings.SplitSeq(line[found[2]:found[3]], ";") {
			if class := classes[code]; class != "" {
				on = append(on, class)
			} else {
				on = nil
			}
		}
	}
	text(line[at:])
	return b.String(), width
}

func main() {
	var lines []string
	widest := 0
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		line := strings.TrimSuffix(in.Text(), "\r")
		if at := strings.LastIndex(line, "\r\x1b[K"); at >= 0 {
			line = line[at:] // what was there before was erased
		}
		svg, width := draw(strings.TrimPrefix(line, "\r"))
		lines, widest = append(lines, svg), max(widest, width)
	}
	wide, high := 2*margin+float64(widest)*cellWidth, 2*margin+len(lines)*lineHeight
	fmt.Printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" width="%.0f" height="%d">
<style>text{font:14px ui-monospace,Menlo,Consolas,monospace;fill:#d8dee9;white-space:pre}`+
		`.b{font-weight:bold}.d{opacity:.6}.red{fill:#f28b82}.green{fill:#81c995}.yellow{fill:#fdd663}.cyan{fill:#78d9ec}</style>
<rect width="100%%" height="100%%" rx="8" fill="#1b1f27"/>
`, wide, high, wide, high)
	for i, line := range lines {
		fmt.Printf("<text x=\"%d\" y=\"%d\" xml:space=\"preserve\">%s</text>\n", margin, margin+14+i*lineHeight, line)
	}
	fmt.Println("</svg>")
}
