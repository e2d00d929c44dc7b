package access

import (
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// Keys tell names apart: two names of which either key is the same are the same or
// look alike, and only one of them may exist. A store keeps both under a unique
// index. They are no names, and are not shown.
type Keys struct {
	Folded string // what is left when case does not count
	Look   string // as it is written
}

// KeysOf returns the keys of a name that [CheckName] returned. They follow the idea
// of the skeletons of UTS 39, with a table that is small because a name is of one
// script and of letters in use today.
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

// prototype is what a character stands for. Where case does not count, a small
// letter is also what its capital looks like: т is Т is T is t.
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
	for _, row := range rows {
		for _, pair := range strings.Fields(row) {
			runes := []rune(pair)
			table[runes[0]] = string(runes[1:])
		}
	}
	return table
}

func quoted(r rune) string { return strconv.QuoteRuneToASCII(r) }

// scripts are those that people write with today (UAX 31, recommended scripts).
var scripts = []string{
	"Latin", "Cyrillic", "Greek", "Arabic", "Armenian", "Bengali", "Bopomofo", "Devanagari", "Ethiopic", "Georgian",
	"Gujarati", "Gurmukhi", "Han", "Hangul", "Hebrew", "Hiragana", "Kannada", "Katakana", "Khmer", "Lao",
	"Malayalam", "Myanmar", "Oriya", "Sinhala", "Tamil", "Telugu", "Thaana", "Thai", "Tibetan",
}

// together are scripts that one language mixes (UTS 39, 5.2). Latin letters go with
// none but those, which nobody takes for Latin.
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
		script := scriptOf(r)
		switch {
		case script == "" && (unicode.IsLetter(r) || unicode.IsMark(r)):
			if unicode.Is(unicode.Common, r) || unicode.IsMark(r) {
				continue // such as ー; a mark is judged below
			}
			return "has the letter " + quoted(r) + " of a script that names must not have"
		case script == "":
			continue
		case script == "Latin" && rareLatin(r):
			return "has the letter " + quoted(r) + ", which is too easily taken for another one"
		}
		found[script] = true
	}
	if problem := badMarks(name, found); problem != "" {
		return problem
	}
	if len(found) > 1 && !oneLanguage(found) {
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

// rareLatin tells whether a letter is neither in the alphabets of Latin-1 and Latin
// Extended-A nor one of A to Z with marks.
func rareLatin(r rune) bool {
	if r <= 0x17f || r == 'ə' || r == 'Ə' {
		return false
	}
	first := []rune(norm.NFD.String(string(r)))[0]
	return first > unicode.MaxASCII
}

// badMarks refuses marks that do not belong to a script, in names of those scripts
// that write them as a part of the letter: there they hide more than they tell.
func badMarks(name string, found map[string]bool) string {
	row := 0
	for _, r := range name {
		if !unicode.IsMark(r) {
			row = 0
			continue
		}
		row++
		if row > 3 || scriptOf(r) == "" && (found["Latin"] || found["Greek"] || found["Cyrillic"] || len(found) == 0) {
			return "has a mark that belongs to no letter: " + quoted(r)
		}
	}
	return ""
}

func oneLanguage(found map[string]bool) bool {
	for _, group := range together {
		n := 0
		for _, script := range group {
			if found[script] {
				n++
			}
		}
		if n == len(found) {
			return true
		}
	}
	return false
}
