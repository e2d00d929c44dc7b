package access

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/secure/precis"
	"golang.org/x/text/unicode/norm"

	"github.com/toolcrib/toolcrib"
)

// Bounds of a name. In UTF-8 it is a file name on every system, and a session ID by
// the rules of C13.
const (
	MaxNameBytes = 128
	MaxNameRunes = 64
)

// reserved are names with a meaning of their own. Names with a colon (local:OSUSER)
// cannot be given to a user at all.
var reserved = []string{"anonymous", "local", "nobody", "system", "toolcrib"}

func bad(format string, args ...any) error {
	return toolcrib.Errorf(toolcrib.CodeBadRequest, format, args...)
}

// CheckName returns a name of a user or group in its normal form (RFC 8265, case
// preserved: full-width letters become plain, NFC), or says what is wrong with it. A
// name has letters of one script, digits 0 to 9, and . _ - @ + between them; it
// begins and ends with a letter or digit.
func CheckName(text string) (string, error) {
	const use = "use letters, digits and . _ - @ + between them"
	switch {
	case text == "":
		return "", bad("a name must not be empty")
	case len(text) > 4*MaxNameBytes: // before any work on it
		return "", tooLong()
	case !utf8.ValidString(text):
		return "", bad("the name %+q is not valid UTF-8; %s", clip(text), use)
	}
	for _, r := range text {
		if problem := badRune(r); problem != "" {
			return "", bad("the name %+q %s; %s", clip(text), problem, use)
		}
	}
	name, err := precis.UsernameCasePreserved.String(text)
	if err != nil {
		return "", bad("the name %+q has a character, or an order of characters, that names must not have (RFC 8265); %s",
			clip(text), use)
	}
	if len(name) > MaxNameBytes || utf8.RuneCountInString(name) > MaxNameRunes {
		return "", tooLong()
	}
	if problem := badForm(name); problem != "" {
		return "", bad("the name %+q %s", clip(name), problem)
	}
	return name, nil
}

func tooLong() error {
	return bad("a name has at most %d characters and %d bytes", MaxNameRunes, MaxNameBytes)
}

func clip(text string) string {
	for i := range text {
		if i > MaxNameBytes {
			return text[:i] + "…"
		}
	}
	return text
}

const (
	punctuation = "._-@+"
	fullWidth   = 'ａ' - 'a' // how far the full-width forms are from ASCII
)

// badRune says what is wrong with a character; "" if nothing.
func badRune(r rune) string {
	if r >= '!'+fullWidth && r <= '~'+fullWidth { // it becomes plain
		r -= fullWidth
	}
	switch {
	case r == ' ':
		return "has a space, which names must not have"
	case r < utf8.RuneSelf && isLetterOrDigit(byte(r)), strings.ContainsRune(punctuation, r), r == 'ー', r == '々':
		return ""
	case r >= utf8.RuneSelf && !unicode.Is(unicode.Lm, r) && (unicode.IsLetter(r) || unicode.IsMark(r)):
		return ""
	}
	return "has the character " + strings.Trim(strconv.QuoteRuneToASCII(r), "'") + ", which names must not have"
}

func isLetterOrDigit(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// badForm says what is wrong with a name of permitted characters; "" if nothing.
func badForm(name string) string {
	first, _ := utf8.DecodeRuneInString(name)
	last, _ := utf8.DecodeLastRuneInString(name)
	switch {
	case strings.Contains(name, ".."):
		return `must not have ".."`
	case strings.ContainsRune(punctuation, first), unicode.IsMark(first), strings.ContainsRune(punctuation, last):
		return "must begin and end with a letter or digit"
	case slices.ContainsFunc(reserved, func(word string) bool { return strings.EqualFold(word, name) }):
		return "is reserved; choose another one"
	}
	return badScript(name)
}

// TakenBy returns why a name cannot be given beside an existing one: they are the same
// in another case or form, or look alike. It returns nil if there is no such reason.
func TakenBy(name, existing string) error {
	a, b := KeysOf(name), KeysOf(existing)
	switch {
	case name == existing:
		return toolcrib.Errorf(toolcrib.CodeConflict, "%s exists already", existing)
	case strings.EqualFold(name, existing):
		return toolcrib.Errorf(toolcrib.CodeConflict,
			"%s exists already as %s: names that differ only in case are the same", name, existing)
	case a.Folded == b.Folded, a.Look == b.Look:
		return toolcrib.Errorf(toolcrib.CodeConflict,
			"%s (%+q) looks like %s (%+q), which exists already; choose a name that cannot be mistaken for it",
			name, name, existing, existing)
	}
	return nil
}

// RemovedName is the conflict of a name with that of a user who was removed.
func RemovedName(name, removed string) error {
	return toolcrib.Errorf(toolcrib.CodeConflict, "the name %s is, or looks like, that of %s, a user who was removed; "+
		"choose another one, since runs and notes of theirs may still be kept", name, removed)
}

// Keys tell names apart: two names with either key in common are the same or look
// alike, and only one of them may exist. A store keeps both under a unique index. They
// are not names, and are not shown.
type Keys struct {
	Folded string // what is left when case does not count
	Look   string // as it is written
}

// KeysOf returns the keys of a name that [CheckName] returned. They follow the
// skeletons of UTS 39, with a table that is small because a name is of one script and
// of letters in use today.
func KeysOf(name string) Keys {
	decomposed := norm.NFKD.String(name)
	folded := norm.NFKD.String(cases.Fold().String(decomposed))
	folded = strings.ReplaceAll(folded, "i\u0307", "i") // a small i has its dot already (İ)
	return Keys{Folded: skeleton(folded, true), Look: skeleton(decomposed, false)}
}

func skeleton(text string, folded bool) string {
	var b strings.Builder
	for _, r := range text {
		b.WriteString(prototype(r, folded))
	}
	return norm.NFC.String(b.String())
}

// prototype returns what a character stands for. Where case does not count, a small
// letter also stands for what its capital looks like: т is Т is T is t.
func prototype(r rune, folded bool) string {
	like, ok := lookalikes[r]
	if !ok && folded && r > unicode.MaxASCII { // a small i is no l, though a capital I is
		like, ok = lookalikes[unicode.ToUpper(r)]
	}
	if !ok {
		like = string(r)
	}
	if !folded {
		return like
	}
	like = strings.ToLower(like)
	if again, ok := lookalikes[[]rune(like)[0]]; ok && len(like) == 1 { // М is M is m is rn
		return again
	}
	return like
}

// lookalikes are characters that many fonts draw like others. It is never changed.
var lookalikes = pairs(
	// Digits and Latin
	"0O 1l Il |l ıi ĸk þp mrn wvv æae œoe",
	// Cyrillic
	"аa еe ѕs іi јj оo рp сc уy хx һh ԁd ԛq ԝvv ѵv үy ӏl гr ьb "+
		"АA ВB ЕE ЅS Іl ЈJ КK МM НH ОO РP СC ТT УY ХX ԚQ ԜW ѴV ҮY Ӏl З3 з3 Ӡ3 ӡ3 ҺH ԌG ГΓ ПΠ фφ ФΦ",
	// Greek
	"αa γy ηn ιi κk νv οo ρp σo ςc τt υu χx ωvv "+
		"ΑA ΒB ΕE ΖZ ΗH Ιl ΚK ΜM ΝN ΟO ΡP ΤT ΥY ΧX ϲc ϹC ϳj ͿJ",
	// Armenian, Hebrew, Arabic, and round letters of other scripts
	"օo ՕO ոn ՈU սu ՍU հh յj գq զq ցg լl ՏS ք4 "+
		"סo וl ןl اl هo ہo ەo ဝo ഠo ჿo ଠo",
	// Han and Kana
	"ロ口 カ力 エ工 ニ二 ハ八 ト卜 タ夕 ー一 ヘへ ベべ ペぺ リり チ千 ミ三 メ乂 ノ丿 セせ ヲヨ",
	// Marks
	"\u0326\u0327 \u0306\u030c",
)

// pairs reads a table: a character, then what it looks like.
func pairs(rows ...string) map[rune]string {
	table := map[rune]string{}
	for _, pair := range strings.Fields(strings.Join(rows, " ")) {
		runes := []rune(pair)
		table[runes[0]] = string(runes[1:])
	}
	return table
}

// scripts are those that people write with today (UAX 31, recommended scripts).
var scripts = []string{
	"Latin", "Cyrillic", "Greek", "Arabic", "Armenian", "Bengali", "Bopomofo", "Devanagari", "Ethiopic", "Georgian",
	"Gujarati", "Gurmukhi", "Han", "Hangul", "Hebrew", "Hiragana", "Kannada", "Katakana", "Khmer", "Lao",
	"Malayalam", "Myanmar", "Oriya", "Sinhala", "Tamil", "Telugu", "Thaana", "Thai", "Tibetan",
}

// together are the scripts that one language mixes (UTS 39, 5.2). Latin is mixed only
// with those that nobody takes for Latin.
var together = [][]string{
	{"Latin", "Han", "Hiragana", "Katakana"},
	{"Latin", "Han", "Bopomofo"},
	{"Latin", "Han", "Hangul"},
}

// badScript refuses a name that mixes scripts, and letters that only historians and
// linguists use: nearly all look-alikes are among them.
func badScript(name string) string {
	found := map[string]bool{}
	for _, r := range name {
		switch script := scriptOf(r); {
		case script == "" && unicode.IsLetter(r) && !unicode.Is(unicode.Common, r): // ー is common
			return "has the letter " + strconv.QuoteRuneToASCII(r) + " of a script that names must not have"
		case script == "Latin" && rareLatin(r):
			return "has the letter " + strconv.QuoteRuneToASCII(r) + ", which is too easily taken for another one"
		case script != "":
			found[script] = true
		}
	}
	if problem := badMarks(name, found); problem != "" {
		return problem
	}
	oneLanguage := slices.ContainsFunc(together, func(group []string) bool {
		for script := range found {
			if !slices.Contains(group, script) {
				return false
			}
		}
		return true
	})
	if len(found) > 1 && !oneLanguage {
		return "mixes letters of several scripts, some of which look alike; write it in one script"
	}
	return ""
}

func scriptOf(r rune) string {
	if r < unicode.MaxASCII {
		if unicode.IsLetter(r) {
			return "Latin"
		}
		return ""
	}
	for _, name := range scripts {
		if unicode.Is(unicode.Scripts[name], r) {
			return name
		}
	}
	return ""
}

// rareLatin reports whether a letter is neither in the alphabets of Latin-1 and Latin
// Extended-A nor one of A to Z with marks.
func rareLatin(r rune) bool {
	return r > 0x17f && r != 'ə' && r != 'Ə' && []rune(norm.NFD.String(string(r)))[0] > unicode.MaxASCII
}

// badMarks refuses more than three marks in a row, and marks of no script in names of
// those scripts that write them as a part of the letter.
func badMarks(name string, found map[string]bool) string {
	partOfLetter := found["Latin"] || found["Greek"] || found["Cyrillic"] || len(found) == 0
	row := 0
	for _, r := range name {
		if !unicode.IsMark(r) {
			row = 0
			continue
		}
		row++
		if row > 3 || scriptOf(r) == "" && partOfLetter {
			return "has a mark that belongs to no letter: " + strconv.QuoteRuneToASCII(r)
		}
	}
	return ""
}
