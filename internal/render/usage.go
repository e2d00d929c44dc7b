package render

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// Tokens writes a count of tokens: "1,234 tokens (1,100 in, 134 out)", with ~ if
// it is estimated. [toolcrib.Usage.Estimated] does not tell that alone: it is set
// too where only the price is unknown.
func Tokens(u toolcrib.Usage, estimated bool) string {
	approx := ""
	if estimated && u.TotalTokens > 0 {
		approx = "~"
	}
	text := fmt.Sprintf("%s%s tokens", approx, Number(u.TotalTokens))
	if u.TotalTokens == 0 {
		return text
	}
	in := Number(u.InputTokens) + " in"
	if u.CachedInputTokens > 0 {
		in += ", " + Number(u.CachedInputTokens) + " of them cached"
	}
	return fmt.Sprintf("%s (%s, %s out)", text, in, Number(u.OutputTokens))
}

// Cost writes a cost in dollars; "?" if no price is known.
func Cost(u toolcrib.Usage, known bool) string {
	switch {
	case !known && u.CostUSD == 0:
		return "?"
	case u.CostUSD == 0:
		return "$0"
	case u.Estimated:
		return "~" + dollars(u.CostUSD)
	}
	return dollars(u.CostUSD)
}

func dollars(usd float64) string {
	if usd >= 0.01 {
		return fmt.Sprintf("$%.2f", usd)
	}
	return "$" + strconv.FormatFloat(usd, 'f', 6, 64)
}

// Number groups the digits of n in threes.
func Number(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

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
