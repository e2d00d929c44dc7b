package offline

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const maxNames = 8 // names that one order to read is taken to list

var (
	// A name may hold any character but those that end a word or mean something else
	// around it. A path is names with slashes between them.
	pathLike = regexp.MustCompile(`^(?:\.{0,2}/)?` + nameRune + `+(?:/` + nameRune + `+)*/?$`)
	withDot  = regexp.MustCompile(`^` + nameRune + `*[^\s.` + notInNames + `]\.[A-Za-z][A-Za-z0-9]{0,9}$`)
	dotFile  = regexp.MustCompile(`^\.[\pL_][\pL\pN\pM_.-]+$`)
	// spaced is a name that can only stand in quotes.
	spaced = regexp.MustCompile(`^[^\n\x00]*[^\s.]\.[A-Za-z][A-Za-z0-9]{0,9}$`)

	// readOrder is an order to read or a question that asks for no more than what is in
	// something; what follows is its name.
	readOrder = pattern(please + `(?:` +
		`(?:show|read|open|cat|print|display|view|zeige?|lies|öffne)(?:\s+(?:me|us|mir|uns))?` +
		`|(?:what(?:'s|\s+is|\s+are)?\s+)?(?:the\s+)?contents?\s+of` +
		`|what(?:'s|\s+is|\s+are)\s+(?:written\s+)?(?:in|inside(?:\s+of)?)` +
		`|was\s+(?:steht|ist)\s+in` +
		`)\s+(\S.*)$`)
	// saysOrder has the name in its middle.
	saysOrder  = pattern(`^what\s+(?:does|do)\s+(\S.*?)\s+(?:say|contain|hold)$`)
	beforeName = pattern(`^(?:(?:all\s+of\s+|the\s+|my\s+|our\s+|den\s+|die\s+|das\s+|dem\s+|der\s+)*(?:whole\s+|full\s+|entire\s+)?(?:contents?\s+of\s+(?:the\s+)?|inhalt\s+von\s+)?(?:(?:file|datei|folder|directory|ordner)\s+)?(?:called\s+|named\s+)?)`)
	afterName  = pattern(`(?:\s*,?\s+(?:file|folder|directory|datei|ordner|please|bitte|now|(?:to|for)\s+me|out|an))+$`)
	betweens   = pattern(`\s*,\s*(?:and\s+|und\s+)?|\s+(?:and|und)\s+`)
	oneMark    = regexp.MustCompile(`^‹\d+›$`)

	// writeTarget is a quoted name at the end of an order to write or change.
	writeTarget = pattern(`\b(?:to|into|in|as|file|called|named|nach|datei)\s+(‹\d+›)(?:\s+with\b.*)?\s*$`)
	// aboutFile is what is asked about files, so that a quoted name with spaces is one.
	aboutFile = []*regexp.Regexp{isUnit, isSize, isDigest, isTitle, isSpan, isReading}
)

const (
	notInNames = "/\\\\:*?\"<>|{}\\[\\];!,‹›“”„«»…`"
	nameRune   = `[^\s` + notInNames + `]`
)

// noNames are words that stand where a name could, and are none.
var noNames = []string{
	"it", "its", "that", "this", "these", "those", "them", "they", "everything", "anything", "something", "nothing", "all", "more",
	"me", "us", "you", "here", "there", "again", "on", "up", "out", "alles", "hier", "es", "das", "dies", "mir", "general", "detail",
}

// names reads the names in an order that only asks to read. sure tells that one at
// least is quoted or looks like a path; else they are words that could be names.
func (c clause) names(quotes []string) (names []string, sure bool) {
	target := ""
	text := strings.TrimRight(strings.TrimSpace(c.text), endMarks+" ")
	if m := saysOrder.FindStringSubmatch(text); m != nil {
		target = m[1]
	} else if m := readOrder.FindStringSubmatch(text); m != nil {
		target = m[1]
	}
	target = afterName.ReplaceAllString(strings.TrimSpace(target), "")
	if rest := beforeName.ReplaceAllString(target, ""); rest != "" {
		target = rest
	}
	if target == "" {
		return nil, false
	}
	for _, word := range betweens.Split(target, maxNames+1) {
		word = strings.TrimSpace(word)
		name := trimWord(word)
		switch {
		case oneMark.MatchString(word):
			name, sure = strings.TrimSpace(unquote(word, quotes)), true
			if strings.Contains(name, "*") {
				return nil, false // a pattern
			}
		case isPath(name):
			sure = true
		case name == "" || strings.ContainsAny(name, " \t\n"+"‹›*") || slices.Contains(noNames, strings.ToLower(name)) || !pathLike.MatchString(name):
			return nil, false
		}
		if name == "" || len(name) > 4096 {
			return nil, false
		}
		names = append(names, name)
	}
	return names, sure
}

// quotedFiles finds quoted names that only their place tells from quoted texts.
func (c clause) quotedFiles(quotes []string) []string {
	text := strings.TrimRight(c.text, endMarks+" ")
	if isWrite.MatchString(text) || isReplace.MatchString(text) {
		m := writeTarget.FindStringSubmatch(text)
		if m == nil {
			return nil
		}
		if name := unquote(m[1], quotes); name != "" && !strings.ContainsAny(name, "\n*") && len(name) <= 200 {
			return []string{name}
		}
		return nil
	}
	for _, q := range c.quotes {
		if len(q) <= 200 && !strings.Contains(q, "*") && spaced.MatchString(q) && !lineWith.MatchString(text) &&
			slices.ContainsFunc(aboutFile, func(rule *regexp.Regexp) bool { return rule.MatchString(text) }) &&
			!isFind.MatchString(text) && !isFileOf.MatchString(text) {
			return []string{q}
		}
	}
	return nil
}

// trimWord leaves out the marks around a word, but not the dot that a name begins
// with.
func trimWord(word string) string {
	word = strings.TrimLeft(strings.TrimRight(word, endMarks), strings.ReplaceAll(endMarks, ".", ""))
	return strings.TrimSuffix(word, "'s")
}

// visible shows a name on one line: what cannot be printed, such as a line break,
// is escaped.
func visible(name string) string {
	if strings.IndexFunc(name, func(r rune) bool { return !strconv.IsGraphic(r) }) < 0 {
		return name
	}
	var b strings.Builder
	for _, r := range name {
		if strconv.IsGraphic(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}
