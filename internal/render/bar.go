package render

import "strings"

// Bar draws a share of most as a bar of at most width columns, in eighths of a
// column. What is more than nothing is never drawn as nothing.
func Bar(value, most float64, width int) string {
	if !(value > 0) || !(most > 0) || width < 1 {
		return ""
	}
	eighths := max(int(min(value/most, 1)*float64(width)*8+0.5), 1)
	text := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		text += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return text
}
