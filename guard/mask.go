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

// Secret is a value that must not be shown, and its name, which is shown instead.
type Secret struct{ Name, Value string }

// maxSecretName bounds a name in a mark, in bytes.
const maxSecretName = 64

// Mark returns the text that replaces the secret of this name: "[secret:NAME]". Characters
// of the name other than letters, digits and "._-" are written as "_".
func Mark(name string) string { return "[secret:" + markName(name) + "]" }

func markName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r == '.' || r < 0x80 && tokenChar(byte(r)) {
			return r
		}
		return '_'
	}, name)
	if name == "" {
		return "unnamed"
	}
	return name[:min(len(name), maxSecretName)]
}

// MinSecretBytes is the least length of a secret that is masked by value. A
// shorter one would be found in ordinary words, and hides little.
const MinSecretBytes = 6

// MinRefusedBytes is the least length of a secret because of which a call is refused if its
// arguments contain the value. A shorter one may be an ordinary word.
const MinRefusedBytes = 12

// minPartBytes is the least length of a word in a secret of several lines that is masked by
// itself, because a key file is also read line by line.
const minPartBytes = 20

// minEncodedBytes is the least length of a piece of base64 that is recognized as a secret.
const minEncodedBytes = 8

// Masker replaces known secrets by their [Mark] wherever they occur.
// It finds each secret verbatim, escaped as in JSON and URLs (query and path), and in
// base64 (standard and URL, padded or not, also inside longer data such as
// "user:password"); of a secret of several lines also its long words.
// Overlapping secrets become one mark, that of the first. The marks themselves are left
// alone, so masking twice changes nothing. Text in the form of a token or an invite
// ([TokenPrefix], [BusTokenPrefix], [InvitePrefix]) is always masked.
//
// [Masker.Learn] adds secrets to a Masker that is in use, for all who share it. A Masker is
// safe for concurrent use, must not be copied, and its zero value is ready for use. A nil
// Masker masks nothing.
type Masker struct {
	learning sync.Mutex // held while known is replaced
	known    atomic.Pointer[spellings]
}

// form is one spelling of a secret, or its mark.
type form struct{ text, name string }

// spellings are the secrets of a Masker at one time; they are immutable.
type spellings struct {
	secrets []Secret // sorted by value, then by name
	forms   []form   // sorted by text, each at least MinSecretBytes long
	longest int

	// The search moves a window of MinSecretBytes over the text: shift is the distance
	// that the last two bytes of the window allow; where it is 0, buckets lists the forms
	// whose first window ends with them.
	shift   [windowKinds]uint8
	buckets map[uint16][]form

	// arguments are the forms because of which a call is refused: the marks of all secrets,
	// and the secrets of at least MinRefusedBytes.
	arguments *spellings
}

const windowKinds = 4096

func windowKind(a, b byte) uint16 { return (uint16(a)<<5 ^ uint16(b)) % windowKinds }

// noSecrets has the mark of access tokens only.
var noSecrets = newSpellings(nil)

// NewMasker makes a Masker of secrets, in any order. Space around a value is ignored, and so
// are values shorter than [MinSecretBytes].
func NewMasker(secrets ...Secret) *Masker {
	m := new(Masker)
	m.Learn(secrets...)
	return m
}

// Learn adds secrets for all who use m: from now on they are masked, in an open stream from
// its next piece on. Text that is already masked does not change. Secrets that m has cost
// little; a new one costs as much as making a Masker of all. On a nil Masker, Learn does
// nothing.
func (m *Masker) Learn(secrets ...Secret) {
	if m == nil || !m.now().lacks(secrets) {
		return
	}
	m.learning.Lock()
	defer m.learning.Unlock()
	m.known.Store(m.now().with(secrets))
}

// usable returns a secret without the space around it, with its name as in its mark;
// false if it is too short.
func (s Secret) usable() (Secret, bool) {
	s.Name, s.Value = markName(s.Name), strings.TrimSpace(s.Value)
	return s, len(s.Value) >= MinSecretBytes
}

func compareSecrets(a, b Secret) int {
	return cmp.Or(cmp.Compare(a.Value, b.Value), cmp.Compare(a.Name, b.Name))
}

// lacks reports whether one of the secrets is long enough to be masked and not in k.
func (k *spellings) lacks(secrets []Secret) bool {
	return slices.ContainsFunc(secrets, func(s Secret) bool {
		s, ok := s.usable()
		if !ok {
			return false
		}
		_, known := slices.BinarySearchFunc(k.secrets, s, compareSecrets)
		return !known
	})
}

func (k *spellings) with(more []Secret) *spellings {
	all := slices.Clone(k.secrets)
	for _, s := range more {
		if s, ok := s.usable(); ok {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, compareSecrets)
	return newSpellings(slices.Compact(all))
}

// newSpellings expects sorted and usable secrets.
func newSpellings(secrets []Secret) *spellings {
	k := &spellings{secrets: secrets}
	var marks []form
	for _, f := range tokenForms {
		marks = append(marks, form{Mark(f.name), f.name})
	}
	var long []form
	for _, s := range secrets {
		marks = append(marks, form{Mark(s.Name), s.Name})
		forms := appendForms(nil, s)
		k.forms = appendParts(append(k.forms, forms...), s)
		if len(s.Value) >= MinRefusedBytes {
			long = append(long, forms...)
		}
	}
	k.index(marks)
	k.arguments = &spellings{forms: long}
	k.arguments.index(marks)
	return k
}

// now returns the current secrets. An operation calls it once, so that all of it is masked
// alike.
func (m *Masker) now() *spellings {
	if k := m.known.Load(); k != nil {
		return k
	}
	return noSecrets
}

// index sorts the forms and prepares the search. A text that is a form of several secrets
// keeps the first name.
func (k *spellings) index(marks []form) {
	k.forms = append(k.forms, marks...)
	slices.SortFunc(k.forms, func(a, b form) int {
		return cmp.Or(cmp.Compare(a.text, b.text), cmp.Compare(a.name, b.name))
	})
	k.forms = slices.CompactFunc(k.forms, func(a, b form) bool { return a.text == b.text })
	for i := range k.shift {
		k.shift[i] = MinSecretBytes - 1
	}
	k.buckets = make(map[uint16][]form, len(k.forms))
	for _, f := range k.forms {
		k.longest = max(k.longest, len(f.text))
		for i := 1; i < MinSecretBytes; i++ {
			at := windowKind(f.text[i-1], f.text[i])
			k.shift[at] = min(k.shift[at], uint8(MinSecretBytes-1-i))
		}
		at := windowKind(f.text[MinSecretBytes-2], f.text[MinSecretBytes-1])
		k.buckets[at] = append(k.buckets[at], f)
	}
	for _, b := range k.buckets {
		slices.SortStableFunc(b, func(x, y form) int { return cmp.Compare(len(y.text), len(x.text)) })
	}
}

// appendForms appends the spellings in which a secret may occur.
func appendForms(forms []form, s Secret) []form {
	add := func(text string) {
		if len(text) >= MinSecretBytes {
			forms = append(forms, form{text, s.Name})
		}
	}
	inside := string(appendInside(nil, s.Value))
	add(s.Value)
	add(url.QueryEscape(s.Value))
	add(url.PathEscape(s.Value))
	add(inside)
	add(strings.ReplaceAll(inside, "/", `\/`))
	if html, err := json.Marshal(s.Value); err == nil {
		add(string(html[1 : len(html)-1]))
	}
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		add(enc.EncodeToString([]byte(s.Value)))
		add(enc.WithPadding('=').EncodeToString([]byte(s.Value)))
		// Inside longer data, only the characters that depend on the secret alone are the
		// same each time.
		for before := range 3 {
			all := enc.EncodeToString(append(make([]byte, before), s.Value...))
			from := (before*8 + 5) / 6
			to := (before + len(s.Value)) * 8 / 6
			if to-from >= minEncodedBytes {
				add(all[from:to])
			}
		}
	}
	return forms
}

// appendParts appends the long words of a secret of several lines.
func appendParts(forms []form, s Secret) []form {
	if !strings.Contains(s.Value, "\n") {
		return forms
	}
	for _, word := range strings.Fields(s.Value) {
		if len(word) >= minPartBytes {
			forms = append(forms, form{word, s.Name}, form{string(appendInside(nil, word)), s.Name})
		}
	}
	return forms
}

// Empty reports whether m masks nothing, which is so only if it is nil: any other Masker
// masks access tokens.
func (m *Masker) Empty() bool { return m == nil }

// Mask returns s with every secret replaced; s itself, without allocation, if none
// occurs.
func (m *Masker) Mask(s string) string {
	if out := masked(m, s); out != nil {
		return string(out)
	}
	return s
}

// MaskBytes is [Masker.Mask] for bytes; b is never changed.
func (m *Masker) MaskBytes(b []byte) []byte {
	if out := masked(m, b); out != nil {
		return out
	}
	return b
}

// masked returns s with every secret replaced; nil if none occurs.
func masked[T bytestring](m *Masker, s T) []byte {
	if m.Empty() {
		return nil
	}
	all := stretches(m.now(), s)
	if exposed(all, s).none() {
		return nil
	}
	return appendMarks(make([]byte, 0, len(s)), s, all)
}

// Clean returns s fit to be read: cleaned as [Clean] does, then masked. A nil Masker
// only cleans.
func (m *Masker) Clean(s string) string { return m.Mask(Clean(s)) }

// Contains reports whether a call with s in its arguments is refused: s contains the mark of a
// secret, or the value of one of at least [MinRefusedBytes].
func (m *Masker) Contains(s string) bool {
	return !m.Empty() && !holds(m.now().arguments, s).none()
}

// SecretIn returns the name of a secret in the texts of a value, found as by [Masker.Contains]; "" if
// it has none.
func (m *Masker) SecretIn(value any) (name string) {
	text, err := json.Marshal(value)
	if err != nil || m.Empty() {
		return ""
	}
	return m.now().arguments.inJSON(text, holds[[]byte]).name
}

// Arguments looks for secrets in the canonical arguments of a call, which must not run with
// one: the mark of a secret, or the value of one of at least [MinRefusedBytes], however it is
// escaped. If it finds one, it returns its name, and the arguments as they may be stored and
// shown, with marks for values; otherwise raw itself and "".
func (m *Masker) Arguments(raw json.RawMessage) (kept json.RawMessage, secret string) {
	if m.Empty() {
		return raw, ""
	}
	k := m.now().arguments
	found := k.inJSON(raw, holds[[]byte])
	if found.none() {
		return raw, ""
	}
	kept, err := Arguments(k.maskJSON(raw))
	if err != nil { // no longer an object, or too long
		kept = json.RawMessage("{}")
	}
	return kept, found.name
}

func appendMasked[T bytestring](k *spellings, dst []byte, s T) []byte {
	return appendMarks(dst, s, stretches(k, s))
}

func appendMarks[T bytestring](dst []byte, s T, all []found) []byte {
	done := 0
	for _, f := range all {
		dst = append(dst, s[done:f.from]...)
		dst = append(dst, Mark(f.name)...)
		done = f.to
	}
	return append(dst, s[done:]...)
}

// found is a stretch of a text that secrets or marks cover; name is that of the first of
// them.
type found struct {
	from, to int // from is -1 if there is no such stretch
	name     string
}

func (f found) none() bool { return f.from < 0 }

var nothing = found{from: -1, to: -1}

// stretches returns the stretches of s that secrets and marks cover, in their order, overlapping ones joined.
func stretches[T bytestring](k *spellings, s T) (all []found) {
	for i := 0; ; {
		f := firstForm(k, s, i, len(s))
		if f.none() {
			break
		}
		all, i = append(all, f), f.from+1
	}
	forms := len(all)
	if all = appendTokens(all, s); len(all) < 2 {
		return all
	}
	if len(all) > forms {
		slices.SortStableFunc(all, func(a, b found) int {
			return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(b.to, a.to))
		})
	}
	joined := all[:1]
	for _, f := range all[1:] {
		if last := &joined[len(joined)-1]; f.from < last.to {
			last.to = max(last.to, f.to)
		} else {
			joined = append(joined, f)
		}
	}
	return joined
}

// holds returns the first stretch of s, or nothing.
func holds[T bytestring](k *spellings, s T) found {
	return append(stretches(k, s), nothing)[0]
}

// exposes returns the first stretch of s that is not just a mark.
func exposes[T bytestring](k *spellings, s T) found { return exposed(stretches(k, s), s) }

func exposed[T bytestring](all []found, s T) found {
	for _, f := range all {
		if string(s[f.from:f.to]) != Mark(f.name) {
			return f
		}
	}
	return nothing
}

// firstForm returns the leftmost form that begins in s[i:end], the longest of those that
// begin at the same position.
func firstForm[T bytestring](k *spellings, s T, i, end int) found {
	for last := i + MinSecretBytes - 1; last < min(len(s), end+MinSecretBytes-1); {
		at := windowKind(s[last-1], s[last])
		if d := k.shift[at]; d > 0 {
			last += int(d)
			continue
		}
		start := last - MinSecretBytes + 1
		for _, f := range k.buckets[at] {
			if len(f.text) <= len(s)-start && string(s[start:start+len(f.text)]) == f.text {
				return found{start, start + len(f.text), f.name}
			}
		}
		last++
	}
	return nothing
}

// MaskJSON masks the strings of a JSON value, keys included, however their characters
// are escaped. The result is valid JSON without a secret: a number that contains one
// becomes a string, its mark; if a secret stretches over several strings, the whole value
// becomes a JSON string of its masked text, and so does text that is not JSON. Raw itself is
// returned if it is empty or contains no secret, compact JSON otherwise.
func (m *Masker) MaskJSON(raw json.RawMessage) json.RawMessage {
	if m.Empty() || len(raw) == 0 {
		return raw
	}
	k := m.now()
	switch fault := document(raw, anyText); {
	case fault == nil:
		return m.maskChecked(raw)
	case len(k.secrets) == 0 && exposes(k, raw).none():
		return raw // no secret is known that could be escaped in it
	}
	return appendQuoted(nil, appendMasked(k, nil, raw))
}

// maskChecked is MaskJSON for a value that is valid JSON.
func (m *Masker) maskChecked(raw json.RawMessage) json.RawMessage {
	if m.Empty() {
		return raw
	}
	k := m.now()
	if k.inJSON(raw, exposes[[]byte]).none() {
		return raw
	}
	return k.maskJSON(raw)
}

// inJSON searches a valid JSON value as written, and then the text of its strings.
func (k *spellings) inJSON(raw []byte, find func(*spellings, []byte) found) found {
	if f := find(k, raw); !f.none() {
		return f
	}
	var text []byte
	for i := 0; i < len(raw); {
		if raw[i] != '"' {
			i++
			continue
		}
		end := stringEnd(raw, i)
		if quoted := raw[i:end]; bytes.IndexByte(quoted, '\\') >= 0 {
			text = appendDecoded(text[:0], quoted)
			if f := find(k, text); !f.none() {
				return f
			}
		}
		i = end
	}
	return nothing
}

// maskJSON rewrites a valid JSON value with its secrets replaced.
func (k *spellings) maskJSON(raw []byte) []byte {
	out := rewriteJSON(make([]byte, 0, len(raw)), raw, func(dst, quoted []byte) []byte {
		return appendQuoted(dst, appendMasked(k, nil, appendDecoded(nil, quoted)))
	}, k.appendNumber)
	if !exposes(k, out).none() {
		return appendQuoted(nil, appendMasked(k, nil, out))
	}
	return out
}

// numberChar reports whether a byte can be in a JSON number. The e of true and false is
// therefore read as a number, without effect: no secret is that short.
func numberChar(c byte) bool {
	return c >= '0' && c <= '9' || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E'
}

// appendNumber appends a number; one that contains a secret becomes a string.
func (k *spellings) appendNumber(dst, number []byte) []byte {
	if f := exposes(k, number); !f.none() {
		return appendQuoted(dst, Mark(f.name))
	}
	return append(dst, number...)
}
