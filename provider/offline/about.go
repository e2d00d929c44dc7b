package offline

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
)

var (
	// isWorking asks how or why something works as it does, isWhatIs what it is.
	isWorking = pattern(`^(?:how|why)\s+(?:does|do|did|is|are)\s+(?:the\s+|an?\s+)?(\S+)\s+\S.*$|^wie\s+funktioniert\s+(?:der\s+|die\s+|das\s+)?(\S+)$`)
	isWhatIs  = pattern(please + `(?:(?:what|who)(?:'s|\s+is|\s+are|\s+does|\s+do)|(?:tell\s+me|what)\s+about|explain|describe|was\s+(?:ist|macht)|erkläre?)\s+(?:the\s+|an?\s+|der\s+|die\s+|das\s+)?(\S+)(?:\s+(?:do|about|for|mean))?$`)
	noTopics  = pattern(`^(?:it|its|this|that|these|those|there|here|up|new|next|i|we|you|they|he|she|my|your|people|everything|\d+)$`)
)

// readme finds the README of a folder; "" = there is none.
func (t *turn) readme(folder string) (name string, l listing, done bool) {
	l, done = t.folder(folder)
	i := slices.IndexFunc(l.Entries, func(e entry) bool { return !e.IsDir && strings.HasPrefix(strings.ToLower(e.Name), "readme") })
	if i >= 0 {
		name = path.Join(folder, l.Entries[i].Name)
	}
	return name, l, done
}

// overview tells what a project says of itself: the folder and its README.
func overview(t *turn, c clause, _ string) (string, bool) {
	name, l, done := t.readme(c.folder)
	switch {
	case !done:
		return "", false
	case l.problem != "":
		return cannot("list this folder", l.problem), true
	case name == "":
		return "There is no README that says what this is.\n" + describe(l, c.folder), true
	}
	d, done := t.read(name)
	switch {
	case !done:
		return "", false
	case d.problem != "":
		return d.failure() + "\n\n" + describe(l, c.folder), true
	}
	return excerpt(d) + "\n\n" + outline(d, false) + "\n\n" + describe(l, c.folder), true
}

// excerpt is the first paragraph of a text, said to be one.
func excerpt(d document) string {
	p := paragraph(d.text)
	if p == "" {
		return fmt.Sprintf("%s%s has no paragraph of text that I could quote.", d.note, visible(d.path))
	}
	return fmt.Sprintf("%sI can only quote. This is an excerpt, the first paragraph of %s:\n> %s", d.note, visible(d.path), p)
}

// aboutWhat is the one word that a question about the project is about; "" = it is
// about something else.
func aboutWhat(c clause) string {
	if len(c.files) > 0 {
		return ""
	}
	m := isWorking.FindStringSubmatch(c.text)
	if m == nil {
		if m = isWhatIs.FindStringSubmatch(c.text); m == nil {
			return ""
		}
		m = append(m, "")
	}
	word := cmp.Or(m[1], m[2])
	if oneMark.MatchString(word) && len(c.quotes) > 0 {
		word = c.quotes[0]
	}
	if word = trimWord(word); noTopics.MatchString(word) || len(word) > 64 || strings.ContainsAny(word, " \n‹›") {
		return ""
	}
	return word
}

// askReadme answers what something is, or how it works, with the beginning of the
// README, if that speaks of it at all.
func askReadme(t *turn, c clause, _ string) (string, bool) {
	what := aboutWhat(c)
	name, l, done := t.readme("")
	switch {
	case !done:
		return "", false
	case l.problem != "":
		return cannot("look for a README", l.problem) + "\n\n" + help(t), true
	case name == "":
		return unknown(what) + fmt.Sprintf(", and there is no README here that I could quote.\n\n%s", help(t)), true
	}
	d, done := t.read(name)
	switch {
	case !done:
		return "", false
	case d.problem != "":
		return d.failure(), true
	case !strings.Contains(strings.ToLower(d.text), strings.ToLower(what)):
		return unknown(what) + fmt.Sprintf(", and %s does not mention it. What I can do is to look for words; try:\n- Which files mention %q?\n- Where is %s defined?",
			visible(d.path), what, what), true
	}
	return excerpt(d) + fmt.Sprintf("\n\nThe question itself I cannot answer. To read on, ask:\n- Show me %s\n- Which files mention %q?", visible(d.path), what), true
}

// unknown says what the rules know of a word: nothing, but for the name of the
// runtime that they belong to.
func unknown(what string) string {
	if strings.EqualFold(what, "toolcrib") {
		return "toolcrib is the runtime that this model runs in: it offers tools to models, judges each call and keeps a journal; " +
			"`toolcrib --help` lists its commands. More I do not know"
	}
	return fmt.Sprintf("I know nothing about %q", what)
}
