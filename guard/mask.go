package guard

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
// A Masker can learn more secrets while it is in use ([Masker.Learn]): whoever shares it
// masks them from then on. It is safe for concurrent use, must not be copied, and is
// ready for use when zero. A nil Masker masks nothing.
type Masker struct {
	learning sync.Mutex // of what is stored in known
	known    atomic.Pointer[spellings]
}

// spellings are the secrets of a Masker at one time; they never change. nil = there are
// none.
type spellings struct {
	secrets []string // sorted
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

// With returns a Masker of its own that knows more secrets; m stays as it is.
func (m *Masker) With(more ...string) *Masker {
	n := new(Masker)
	if m != nil {
		n.known.Store(m.known.Load())
	}
	n.Learn(more...)
	return n
}

// Learn makes more secrets known to all who use m, from now on: what they mask later has
// none of them, a stream that is open with its next piece at the latest. What was masked
// before stays as it was. Secrets that are known cost little; a new one costs as much as
// making a Masker of all. A nil Masker can learn nothing.
func (m *Masker) Learn(secrets ...string) {
	if m == nil || !m.known.Load().lacks(secrets) {
		return
	}
	m.learning.Lock()
	defer m.learning.Unlock()
	m.known.Store(m.known.Load().with(secrets))
}

// lacks tells whether one of the secrets is to be masked and not known.
func (k *spellings) lacks(secrets []string) bool {
	return slices.ContainsFunc(secrets, func(s string) bool {
		if s = strings.TrimSpace(s); len(s) < MinSecretBytes {
			return false
		}
		if k == nil {
			return true
		}
		_, known := slices.BinarySearch(k.secrets, s)
		return !known
	})
}

func (k *spellings) with(more []string) *spellings {
	n := new(spellings)
	if k != nil {
		n.secrets = slices.Clone(k.secrets)
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

// now are the secrets that are known at the moment: what belongs together is masked by
// one of it.
func (m *Masker) now() *spellings {
	if m == nil {
		return nil
	}
	return m.known.Load()
}

func (k *spellings) index() {
	if len(k.forms) == 0 {
		return
	}
	k.shift = new([windowKinds]uint8)
	for i := range k.shift {
		k.shift[i] = MinSecretBytes - 1
	}
	k.buckets = make(map[uint16][]string, len(k.forms))
	for _, f := range k.forms {
		k.longest = max(k.longest, len(f))
		for i := 1; i < MinSecretBytes; i++ {
			at := windowKind(f[i-1], f[i])
			k.shift[at] = min(k.shift[at], uint8(MinSecretBytes-1-i))
		}
		at := windowKind(f[MinSecretBytes-2], f[MinSecretBytes-1])
		k.buckets[at] = append(k.buckets[at], f)
	}
	for _, b := range k.buckets {
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
	if m.Empty() {
		return s
	}
	k := m.now()
	from, to := nextSecret(k, s, 0)
	if from < 0 {
		return s
	}
	return string(maskFrom(k, make([]byte, 0, len(s)), s, from, to))
}

// MaskBytes is [Masker.Mask] for bytes; b is never changed.
func (m *Masker) MaskBytes(b []byte) []byte {
	if m.Empty() {
		return b
	}
	return m.now().maskBytes(b)
}

func (k *spellings) maskBytes(b []byte) []byte {
	from, to := nextSecret(k, b, 0)
	if from < 0 {
		return b
	}
	return maskFrom(k, make([]byte, 0, len(b)), b, from, to)
}

// maskFrom appends s to dst with its secrets replaced, of which s[from:to] is the
// first.
func maskFrom[T bytestring](k *spellings, dst []byte, s T, from, to int) []byte {
	done := 0
	for from >= 0 {
		dst = append(dst, s[done:from]...)
		dst = append(dst, Mask...)
		done = to
		from, to = nextSecret(k, s, to)
	}
	return append(dst, s[done:]...)
}

// nextSecret finds the next stretch of s from i on that secrets cover, overlapping
// and touching ones joined; -1 = none.
func nextSecret[T bytestring](k *spellings, s T, i int) (from, to int) {
	from, to = firstSecret(k, s, i)
	if from < 0 {
		return -1, -1
	}
	for i = from + 1; i <= to; i++ {
		next, end := firstSecret(k, s, i)
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
func firstSecret[T bytestring](k *spellings, s T, i int) (from, to int) {
	for window := firstWindow; i < len(s); window *= 2 {
		end := min(i+window, len(s))
		from, to = firstForm(k, s, i, end)
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
func firstForm[T bytestring](k *spellings, s T, i, end int) (from, to int) {
	if k == nil || len(k.forms) == 0 {
		return -1, -1
	}
	for last := i + MinSecretBytes - 1; last < min(len(s), end+MinSecretBytes-1); {
		at := windowKind(s[last-1], s[last])
		if d := k.shift[at]; d > 0 {
			last += int(d)
			continue
		}
		start := last - MinSecretBytes + 1
		for _, f := range k.buckets[at] {
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
	k := m.now()
	s := scanner{raw: raw, maxDepth: maxScanDepth}
	from, to, err := s.document()
	if err != nil && (k == nil || len(k.forms) == 0) {
		if at, _ := nextSecret(k, raw, 0); at < 0 {
			return raw // no secret is known that could hide in it
		}
	}
	if err != nil {
		return appendQuoted(nil, string(k.maskBytes(raw)))
	}
	raw = raw[from:to:to]
	if !k.inJSON(raw) {
		return raw
	}
	out := k.rewriteSecrets(raw)
	if left, _ := nextSecret(k, out, 0); left >= 0 {
		return appendQuoted(nil, string(k.maskBytes(out)))
	}
	return out
}

// inJSON tells whether a checked JSON value holds a secret, as written or as meant.
func (k *spellings) inJSON(raw []byte) bool {
	if from, _ := nextSecret(k, raw, 0); from >= 0 {
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
			if from, _ := nextSecret(k, text, 0); from >= 0 {
				return true
			}
		}
		i = end
	}
	return false
}

// rewriteSecrets writes a checked JSON value anew with its secrets replaced.
func (k *spellings) rewriteSecrets(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		switch c := raw[i]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
		case c == '"':
			end := stringEnd(raw, i)
			out = appendQuoted(out, string(k.maskBytes(appendDecoded(nil, raw[i+1:end-1]))))
			i = end
		case c == '-' || c >= '0' && c <= '9':
			end := i + 1
			for end < len(raw) && strings.IndexByte("+-.eE0123456789", raw[end]) >= 0 {
				end++
			}
			if from, _ := nextSecret(k, raw[i:end], 0); from >= 0 {
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
