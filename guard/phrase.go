package guard

import (
	"regexp"
	"strings"
)

// Instruction-like phrases in untrusted data. The list is short on purpose:
// marking is a hint to the model, and no defence; what a tainted run may do is the
// gate's matter.
var phrases = regexp.MustCompile(strings.NewReplacer(
	// A word may follow an escape of JSON, and words may be parted by one.
	// All of its backslashes: JSON within JSON has several.
	"^", `(?:\b|\\+[nrtfb])`, " ", `(?:\s|\\+[nrtfb])+`, "~", `(?:\s|\\+[nrtfb])*`,
).Replace(`(?i)^(?:ignore|disregard|forget) (?:all )?(?:of )?(?:the |my |your |any )?(?:previous|prior|above|earlier|preceding)(?: (?:instructions?|directions?|prompts?|rules?|context|messages?))?` +
	`|^you are now\b` +
	`|^act as (?:an? )?\w+` +
	`|^pretend (?:to be|you are)\b` +
	`|^system prompt~:` +
	`|^new instructions?~:` +
	`|^(?:do not|don't|never) (?:tell|inform|mention (?:this |it )?to) the user\b`))

// The mark around an instruction-like phrase.
const (
	phraseMark    = "[instruction-like text in data: "
	phraseMarkEnd = "]"
)

// PhraseNeutralized replaces a phrase where the text need not be kept (contract
// §10).
const PhraseNeutralized = "[neutralized]"

// MarkPhrases puts a mark around phrases that read like instructions; the text
// stays (contract §7). The marks hold no quotes, so that JSON stays JSON. s itself
// is returned if there are none.
func MarkPhrases(s string) string {
	if !phrases.MatchString(s) {
		return s
	}
	return phrases.ReplaceAllStringFunc(s, func(phrase string) string { return phraseMark + phrase + phraseMarkEnd })
}

// NeutralizePhrases replaces phrases that read like instructions by
// [PhraseNeutralized], and tells how many there were.
func NeutralizePhrases(s string) (string, int) {
	n := len(phrases.FindAllStringIndex(s, -1))
	if n == 0 {
		return s, 0
	}
	return phrases.ReplaceAllLiteralString(s, PhraseNeutralized), n
}
