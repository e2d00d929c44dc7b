package tui

import (
	"encoding/json"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/journal"
)

// field is what is typed in answer to a question.
type field int

const (
	fieldNone     field = iota // a key answers
	fieldReason                // why a call is denied
	fieldEdit                  // other arguments of a call
	fieldHappened              // the result of a call that took effect
	fieldAnswer                // to a question of the model
	fieldLimit                 // by how much a limit is raised
)

// asking is a question that waits for the person.
type asking struct {
	Question
	reply chan Answer
	field field
	each  bool // one call after the other
	at    int  // the call that is asked about then
	words map[string]journal.CallDecision
	draft string // of the input, to be put back
	// touched is when the question was shown, or when a key came while nobody could
	// have read it yet.
	touched time.Time
}

// seen reports whether the person can have seen the question: it stands there whole, and
// nobody has typed for a moment. A key that comes before is none for it.
func (m *model) seen() bool {
	standing := !m.printing && len(m.prints) == 0
	return m.calm == 0 || standing && m.now().Sub(m.asking.touched) >= m.calm
}

func (m *model) ask(it questionItem) {
	m.endReply()
	a := &asking{Question: it.question, reply: it.reply, words: map[string]journal.CallDecision{}, draft: m.input.Value(), touched: m.now()}
	m.asking = a
	if a.Problem != "" {
		a.touched = time.Time{} // the person is answering it already
		m.warn(a.Problem)
	}
	s := m.style()
	switch {
	case a.Ask.Kind == journal.ApprovalInDoubt:
		a.each = true
		m.card("This was cut off while it ran; nobody knows whether it took effect", a.Ask.Calls[:min(1, len(a.Ask.Calls))])
	case a.Ask.Kind == journal.ApprovalInput:
		m.question()
	case a.Problem != "":
	default:
		m.card(render.NeedApproval(a.Ask.Calls), a.Ask.Calls)
	}
	if a.Ask.Kind != journal.ApprovalInput && len(a.Ask.Calls) == 0 {
		m.print(s.Dim("  (no call is open)"))
	}
}

// question shows a question of the model, or about a limit.
func (m *model) question() {
	a, s := m.asking, m.style()
	text, head := a.Ask.Question, "The model asks you"
	a.field = fieldAnswer
	if len(a.Ask.Calls) == 0 {
		a.field, head, text = fieldLimit, "A limit was reached", a.Ask.Reason
	}
	m.edit("")
	if a.Problem != "" {
		return
	}
	m.gap()
	m.print(s.Bold(s.Yellow("? " + head)))
	m.print(lines(s.Quoted(text))...)
	if a.Choices != "" {
		m.print("  " + s.Dim(oneLine(a.Choices, 4*m.width)))
	}
}

// card shows what is asked about.
func (m *model) card(head string, calls []journal.ApprovalItem) {
	s := m.style()
	m.gap()
	m.print(s.Bold(s.Yellow("? " + head)))
	for i := range calls {
		m.print(lines(s.Item(&calls[i], false))...)
	}
}

// edit puts a text into the input.
func (m *model) edit(text string) {
	m.input.SetValue(text)
	m.input.MoveToEnd()
}

// dropQuestion takes a question away; the input is the person's own again.
func (m *model) dropQuestion() *asking {
	if m.asking != nil && m.asking.field != fieldNone {
		m.edit(m.asking.draft)
	}
	return nil
}

// answer answers the question.
func (m *model) answer(a Answer) {
	m.asking.reply <- a
	m.asking = m.dropQuestion()
}

// keysText tells which keys answer.
func (a *asking) keysText() string {
	switch a.field {
	case fieldReason:
		return "why? the model reads it · enter send · esc back"
	case fieldEdit:
		return "other arguments, as JSON · enter approves these · esc back"
	case fieldHappened:
		return "its result, for the model to read · enter send · esc back"
	case fieldAnswer:
		return "enter answers · esc later · ctrl-c stops the turn"
	case fieldLimit:
		return "how many " + a.Unit + " more? enter grants · n and enter: no more, it ends with what it has · esc later"
	}
	text := render.KeysText(a.keys())
	if a.each && a.Ask.Kind != journal.ApprovalInDoubt {
		text += " · esc back"
	}
	return text
}

// keys are the keys that answer now.
func (a *asking) keys() []render.Key {
	if a.Ask.Kind == journal.ApprovalInDoubt {
		return render.DoubtKeys(false)
	}
	return render.CallKeys(a.Ask.Calls, a.each)
}

// askKey is a key while a question waits. handled is false for keys of the input.
func (m *model) askKey(k tea.KeyPressMsg) (handled bool) {
	a := m.asking
	if a.field != fieldNone {
		return m.fieldKey(k)
	}
	key := render.Pressed(a.keys(), k.String())
	if a.Ask.Kind == journal.ApprovalInDoubt {
		m.doubtKey(key)
		return true
	}
	switch key {
	case render.KeyYes:
		m.word(journal.DecisionApprove)
	case render.KeyNo:
		m.word(journal.DecisionDeny)
	case render.KeyNoWhy:
		a.field = fieldReason
		m.edit("")
	case render.KeyEdit:
		a.field = fieldEdit
		m.edit(indented(a.Ask.Calls[a.at].Arguments))
	case render.KeyEach:
		m.oneByOne()
	case render.KeyAlways:
		r := journal.Remember{Scope: journal.RememberRun}
		m.note(render.RememberText(a.Ask.Calls, r))
		m.answer(Answer{Decision: journal.DecisionApprove, Remember: &r})
	case render.KeyShow:
		m.showAll()
	case render.KeyLater:
		m.answer(Answer{Later: true})
	}
	if k.String() == "esc" && a.each {
		a.each, a.at = false, 0
		clear(a.words)
	}
	return true
}

func (m *model) oneByOne() {
	m.asking.each = true
	m.card("One by one", m.asking.Ask.Calls[:1])
}

func (m *model) showAll() {
	a, s := m.asking, m.style()
	calls := a.Ask.Calls
	if a.each {
		calls = calls[a.at : a.at+1]
	}
	m.gap()
	for i := range calls {
		m.print(lines(s.Item(&calls[i], true))...)
	}
}

// word is the person's word on all calls, or on the one that is asked about.
func (m *model) word(decision string) {
	a := m.asking
	if !a.each {
		m.answer(Answer{Decision: decision})
		return
	}
	m.one(journal.CallDecision{Decision: decision}, "")
}

// one decides on one call, and goes to the next.
func (m *model) one(d journal.CallDecision, reason string) {
	a := m.asking
	if len(a.Ask.Calls) == 0 {
		m.answer(Answer{Later: true})
		return
	}
	a.words[a.Ask.Calls[a.at].ID] = d
	a.at++
	if a.at == len(a.Ask.Calls) || !a.each {
		m.answer(Answer{Calls: a.words, Reason: reason})
		return
	}
	head := "The next one"
	if a.Ask.Kind == journal.ApprovalInDoubt {
		head = "This was cut off as well"
	}
	if a.field != fieldNone {
		a.field = fieldNone
		m.edit(a.draft)
	}
	m.card(head, a.Ask.Calls[a.at:a.at+1])
}

func (m *model) doubtKey(key string) {
	switch key {
	case render.KeyRetry:
		m.one(journal.CallDecision{Decision: journal.DecisionRetry}, "")
	case render.KeyNo:
		m.one(journal.CallDecision{Decision: journal.DecisionNotHappened}, "")
	case render.KeyHappened:
		m.asking.field = fieldHappened
		m.edit("")
	case render.KeyShow:
		m.showAll()
	case render.KeyLater:
		if len(m.asking.words) > 0 {
			m.answer(Answer{Calls: m.asking.words})
			break
		}
		m.answer(Answer{Later: true})
	}
}

// fieldKey is a key while something is typed in answer to a question.
func (m *model) fieldKey(k tea.KeyPressMsg) bool {
	a := m.asking
	switch k.String() {
	case "esc":
		if a.field == fieldAnswer || a.field == fieldLimit {
			m.answer(Answer{Later: true})
			break
		}
		a.field = fieldNone
		m.edit(a.draft)
	case "enter":
		m.typed(strings.TrimSpace(m.input.Value()))
	case "up", "down", "tab":
		return a.field != fieldEdit || k.String() == "tab" // no history here
	default:
		return false
	}
	return true
}

// typed takes what was typed in answer to a question.
func (m *model) typed(text string) {
	a := m.asking
	switch a.field {
	case fieldReason:
		d := journal.CallDecision{Decision: journal.DecisionDeny}
		if a.each {
			m.one(d, text)
			return
		}
		m.answer(Answer{Decision: journal.DecisionDeny, Reason: text})
	case fieldEdit:
		if !json.Valid([]byte(text)) {
			m.hint = "this is no JSON"
			return
		}
		m.one(journal.CallDecision{Decision: journal.DecisionApprove, Arguments: json.RawMessage(text)}, "")
	case fieldHappened:
		if text == "" {
			return
		}
		m.one(journal.CallDecision{Decision: journal.DecisionHappened, Result: render.JSONOrText(text)}, "")
	case fieldAnswer:
		if text != "" {
			m.answer(Answer{Decision: journal.DecisionAnswer, Text: text})
		}
	case fieldLimit:
		switch {
		case text == "":
		case strings.EqualFold(text, render.KeyNo):
			m.answer(Answer{Decision: journal.DecisionDeny})
		default:
			m.answer(Answer{Text: text})
		}
	}
}

// indented is JSON over several lines, to be edited. What a person would not see
// is written as an escape, which is the same to JSON.
func indented(raw json.RawMessage) string {
	var v any
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return string(raw)
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if e.Encode(v) != nil {
		return string(raw)
	}
	return escaped(strings.TrimRight(b.String(), "\n"))
}
