package access

import (
	"strconv"
	"strings"
)

const (
	maxCapabilityBytes = 128
	maxVersion         = 9999
)

// capability is a name with a version, as rag.query@1.0.
type capability struct {
	name         string
	major, minor int
}

// parseCapability reads NAME@MAJOR.MINOR: lower-case words joined by dots, and a
// version. Anything else, a wildcard too, is none.
func parseCapability(text string) (c capability, ok bool) {
	name, version, ok := strings.Cut(text, "@")
	if !ok || len(text) > maxCapabilityBytes || !capabilityName(name) {
		return c, false
	}
	major, minor, ok := strings.Cut(version, ".")
	if !ok {
		return c, false
	}
	c = capability{name: name, major: number(major), minor: number(minor)}
	return c, c.major >= 0 && c.minor >= 0
}

func capabilityName(name string) bool {
	word := 0
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', word > 0 && (c >= '0' && c <= '9' || c == '_' || c == '-'):
			word++
		case c == '.' && word > 0:
			word = 0
		default:
			return false
		}
	}
	return word > 0
}

// number reads a decimal without leading zeros; -1 if it is none.
func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > maxVersion || strconv.Itoa(n) != text {
		return -1
	}
	return n
}

// covers is the rule of versions (CAP §2.1): the same major, and at least the minor
// that was granted.
func (c capability) covers(offered capability) bool {
	return c.name == offered.name && c.major == offered.major && offered.minor >= c.minor
}
