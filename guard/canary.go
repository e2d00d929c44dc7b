package guard

import "strings"

// CanaryPrefix begins every canary: a token that stands only inside untrusted
// data, so that whoever repeats it has repeated that data (contract §7).
const CanaryPrefix = "CC_CANARY_"

// CanaryRedacted is what stands where a canary leaked.
const CanaryRedacted = "[CANARY_REDACTED]"

// RedactCanary replaces the canary wherever it stands in s, in any letter case, and
// tells how often. An empty canary is nowhere. s itself is returned if it does not
// occur.
func RedactCanary(s, canary string) (redacted string, count int) {
	if canary == "" || len(s) < len(canary) {
		return s, 0
	}
	var b strings.Builder
	done := 0
	for i := 0; i+len(canary) <= len(s); {
		if !strings.EqualFold(s[i:i+len(canary)], canary) {
			i++
			continue
		}
		b.WriteString(s[done:i])
		b.WriteString(CanaryRedacted)
		i += len(canary)
		done = i
		count++
	}
	if count == 0 {
		return s, 0
	}
	b.WriteString(s[done:])
	return b.String(), count
}

// CanaryStream redacts a canary in text that comes in pieces. The zero value with an
// empty canary passes everything on.
type CanaryStream struct {
	canary string
	held   string // what may be the beginning of the canary
}

// NewCanaryStream makes a stream for one canary.
func NewCanaryStream(canary string) *CanaryStream { return &CanaryStream{canary: canary} }

// Write returns what can be shown so far.
func (c *CanaryStream) Write(piece string) string {
	if c.canary == "" {
		return piece
	}
	text, _ := RedactCanary(c.held+piece, c.canary)
	keep := 0
	for n := min(len(text), len(c.canary)-1); n > 0; n-- {
		if strings.EqualFold(text[len(text)-n:], c.canary[:n]) {
			keep = n
			break
		}
	}
	c.held = text[len(text)-keep:]
	return text[:len(text)-keep]
}

// Flush returns what was held back, at the end.
func (c *CanaryStream) Flush() string {
	rest := c.held
	c.held = ""
	return rest
}
