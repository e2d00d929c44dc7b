package guard

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// Mask is what stands where a secret stood.
const Mask = "***"

// MinSecretBytes is the length from which on a secret is masked by value. A
// shorter one would be found in ordinary words, and hides little.
const MinSecretBytes = 6

// minEncodedBytes is the least length of a piece of base64 that is taken for a
// secret.
const minEncodedBytes = 8

// Masker replaces known secrets by [Mask] wherever they stand (contract §2). It
// knows each secret as it is, escaped as in JSON and URLs (query and path), and in
// base64 (standard and URL, padded or not, also inside longer data such as
// "user:password").
// Pieces that overlap or touch become one [Mask]. What has the form of an access token
// ([TokenPrefix] and three parts of base64url) is masked whoever it belongs to.
//
// A Masker never changes; it is safe for concurrent use. A nil Masker masks
// nothing.
type Masker struct {
	secrets []string
	forms   []string // all spellings, sorted by their bytes, each at least MinSecretBytes long
	longest int

	// The search steps over text in windows of MinSecretBytes: shift says how far
	// the window may move for the last two bytes in it, buckets (where shift is 0)
	// which forms end their first window with them.
	shift   *[windowKinds]uint8
	buckets map[uint16][]string
}

const windowKinds = 4096

func windowKind(a, b byte) uint16 { return (uint16(a)<<5 ^ uint16(b)) % windowKinds }

// NewMasker makes a Masker of secret values. Space around a secret does not count;
// values shorter than [MinSecretBytes] are ignored, and so is the order.
func NewMasker(secrets ...string) *Masker { return (*Masker)(nil).With(secrets...) }

// With returns a Masker that knows more secrets; m stays as it is.
func (m *Masker) With(more ...string) *Masker {
	n := new(Masker)
	if m != nil {
		n.secrets = slices.Clone(m.secrets)
	}
	for _, s := range more {
		if s = strings.TrimSpace(s); len(s) >= MinSecretBytes {
			n.secrets = append(n.secrets, s)
		}
	}
	slices.Sort(n.secrets)
	n.secrets = slices.Compact(n.secrets)
	for _, s := range n.secrets {
		n.forms = appendForms(n.forms, s)
	}
	slices.Sort(n.forms)
	n.forms = slices.Compact(n.forms)
	n.index()
	return n
}

func (m *Masker) index() {
	if len(m.forms) == 0 {
		return
	}
	m.shift = new([windowKinds]uint8)
	for i := range m.shift {
		m.shift[i] = MinSecretBytes - 1
	}
	m.buckets = make(map[uint16][]string, len(m.forms))
	for _, f := range m.forms {
		m.longest = max(m.longest, len(f))
		for i := 1; i < MinSecretBytes; i++ {
			k := windowKind(f[i-1], f[i])
			m.shift[k] = min(m.shift[k], uint8(MinSecretBytes-1-i))
		}
		k := windowKind(f[MinSecretBytes-2], f[MinSecretBytes-1])
		m.buckets[k] = append(m.buckets[k], f)
	}
	for _, b := range m.buckets {
		slices.SortStableFunc(b, func(x, y string) int { return cmp.Compare(len(y), len(x)) })
	}
}

// appendForms appends the spellings under which a secret may turn up.
func appendForms(forms []string, secret string) []string {
	forms = append(forms, secret, url.QueryEscape(secret), url.PathEscape(secret),
		string(appendInside(nil, secret)),
		strings.ReplaceAll(string(appendInside(nil, secret)), "/", `\/`))
	if html, err := json.Marshal(secret); err == nil {
		forms = append(forms, string(html[1:len(html)-1]))
	}
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		forms = append(forms, enc.EncodeToString([]byte(secret)), enc.WithPadding('=').EncodeToString([]byte(secret)))
		// Where other data stands before and after the secret, only the characters
		// that depend on nothing but the secret are the same each time.
		for before := range 3 {
			all := enc.EncodeToString(append(make([]byte, before), secret...))
			from := (before*8 + 5) / 6
			to := (before + len(secret)) * 8 / 6
			if to-from >= minEncodedBytes {
				forms = append(forms, all[from:to])
			}
		}
	}
	return slices.DeleteFunc(forms, func(f string) bool { return len(f) < MinSecretBytes })
}

// Empty tells whether there is nothing to mask, which only a nil Masker can say: any
// other masks access tokens.
func (m *Masker) Empty() bool { return m == nil }

// Mask returns s with every secret replaced; s itself, without allocation, if none
// occurs.
func (m *Masker) Mask(s string) string {
	from, to := nextSecret(m, s, 0)
	if from < 0 {
		return s
	}
	return string(maskFrom(m, make([]byte, 0, len(s)), s, from, to))
}

// MaskBytes is [Masker.Mask] for bytes; b is never changed.
func (m *Masker) MaskBytes(b []byte) []byte {
	from, to := nextSecret(m, b, 0)
	if from < 0 {
		return b
	}
	return maskFrom(m, make([]byte, 0, len(b)), b, from, to)
}

// maskFrom appends s to dst with its secrets replaced, of which s[from:to] is the
// first.
func maskFrom[T bytestring](m *Masker, dst []byte, s T, from, to int) []byte {
	done := 0
	for from >= 0 {
		dst = append(dst, s[done:from]...)
		dst = append(dst, Mask...)
		done = to
		from, to = nextSecret(m, s, to)
	}
	return append(dst, s[done:]...)
}

// nextSecret finds the next stretch of s from i on that secrets cover, overlapping
// and touching ones joined; -1 = none.
func nextSecret[T bytestring](m *Masker, s T, i int) (from, to int) {
	if m.Empty() {
		return -1, -1
	}
	from, to = firstSecret(m, s, i)
	if from < 0 {
		return -1, -1
	}
	for i = from + 1; i <= to; i++ {
		next, end := firstSecret(m, s, i)
		if next < 0 || next > to {
			break
		}
		i, to = next, max(to, end)
	}
	return from, to
}

// firstWindow is how far ahead both kinds of secrets are looked for at first.
const firstWindow = 256

// firstSecret finds the leftmost form or token from i on, and of those that begin
// there the longest; -1 = none. It looks in growing windows, so that many secrets of
// one kind do not make it go through the whole text for the other kind each time.
func firstSecret[T bytestring](m *Masker, s T, i int) (from, to int) {
	for window := firstWindow; i < len(s); window *= 2 {
		end := min(i+window, len(s))
		from, to = firstForm(m, s, i, end)
		if from >= 0 {
			end = from + 1
		}
		token, tokenEnd := firstToken(s, i, end)
		switch {
		case token >= 0 && (from < 0 || token < from):
			return token, tokenEnd
		case from >= 0:
			if token == from {
				to = max(to, tokenEnd)
			}
			return from, to
		}
		i = end
	}
	return -1, -1
}

// firstForm finds the leftmost form that begins in s[i:end], and of those that begin
// there the longest; -1 = none.
func firstForm[T bytestring](m *Masker, s T, i, end int) (from, to int) {
	if len(m.forms) == 0 {
		return -1, -1
	}
	for last := i + MinSecretBytes - 1; last < min(len(s), end+MinSecretBytes-1); {
		k := windowKind(s[last-1], s[last])
		if d := m.shift[k]; d > 0 {
			last += int(d)
			continue
		}
		start := last - MinSecretBytes + 1
		for _, f := range m.buckets[k] {
			if len(f) <= len(s)-start && string(s[start:start+len(f)]) == f {
				return start, start + len(f)
			}
		}
		last++
	}
	return -1, -1
}

// MaskJSON masks the strings of a JSON value, keys too, however their characters
// are escaped. The result is valid JSON without a secret: a number that holds one
// becomes the string "***"; if one stretches over several strings, the whole value
// becomes a JSON string of its masked text. So does what is no JSON. Raw itself is returned if no secret occurs, compact JSON otherwise.
func (m *Masker) MaskJSON(raw json.RawMessage) json.RawMessage {
	if m.Empty() {
		return raw
	}
	s := scanner{raw: raw, maxDepth: maxScanDepth}
	from, to, err := s.document()
	if err != nil && len(m.forms) == 0 {
		if at, _ := nextSecret(m, raw, 0); at < 0 {
			return raw // no secret is known that could hide in it
		}
	}
	if err != nil {
		return appendQuoted(nil, m.Mask(string(raw)))
	}
	raw = raw[from:to:to]
	if !m.inJSON(raw) {
		return raw
	}
	out := m.rewriteSecrets(raw)
	if left, _ := nextSecret(m, out, 0); left >= 0 {
		return appendQuoted(nil, m.Mask(string(out)))
	}
	return out
}

// inJSON tells whether a checked JSON value holds a secret, as written or as meant.
func (m *Masker) inJSON(raw []byte) bool {
	if from, _ := nextSecret(m, raw, 0); from >= 0 {
		return true
	}
	var text []byte
	for i := 0; i < len(raw); {
		if raw[i] != '"' {
			i++
			continue
		}
		end := stringEnd(raw, i)
		if inside := raw[i+1 : end-1]; bytes.IndexByte(inside, '\\') >= 0 {
			text = appendDecoded(text[:0], inside)
			if from, _ := nextSecret(m, text, 0); from >= 0 {
				return true
			}
		}
		i = end
	}
	return false
}

// rewriteSecrets writes a checked JSON value anew with its secrets replaced.
func (m *Masker) rewriteSecrets(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		switch c := raw[i]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
		case c == '"':
			end := stringEnd(raw, i)
			out = appendQuoted(out, string(m.MaskBytes(appendDecoded(nil, raw[i+1:end-1]))))
			i = end
		case c == '-' || c >= '0' && c <= '9':
			end := i + 1
			for end < len(raw) && strings.IndexByte("+-.eE0123456789", raw[end]) >= 0 {
				end++
			}
			if from, _ := nextSecret(m, raw[i:end], 0); from >= 0 {
				out = append(out, `"`+Mask+`"`...)
			} else {
				out = append(out, raw[i:end]...)
			}
			i = end
		default:
			out = append(out, c)
			i++
		}
	}
	return out
}
