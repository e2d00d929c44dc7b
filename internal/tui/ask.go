package tui

import (
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/toolcrib/toolcrib/internal/render"
)

// asking is a question that waits for the person.
type asking struct {
	render.Dialog
	reply chan Answer
	draft string // of the input, to be put back
	// touched is when the question was shown, or when a key came while nobody could
	// have read it yet.
	touched time.Time
}

// seen reports whether the person can have seen the question: it stands there whole, and
// nobody has typed for a moment. A key that comes before does not count.
func (m *model) seen() bool {
	standing := !m.printing && len(m.prints) == 0
	return m.calm == 0 || standing && m.now().Sub(m.asking.touched) >= m.calm
}

func (m *model) ask(it questionItem) {
	m.endReply()
	a := &asking{reply: it.reply, draft: m.input.Value(), touched: m.now()}
	a.Dialog = render.Dialog{Question: it.question, Style: m.style(), Edits: true, Mark: "? "}
	m.asking, m.search = a, nil
	if a.Problem != "" {
		a.touched = time.Time{} // the person is answering it already
		m.warn(a.Problem)
	}
	m.step(render.NoField, a.Open(), nil)
}

// step shows what comes next, gives the input to what is typed now, and takes the answer;
// field is what was typed before.
func (m *model) step(field render.Field, shown string, answer *Answer) {
	a := m.asking
	if shown != "" {
		m.gap()
		m.print(lines(shown)...)
	}
	switch {
	case a.Field == field:
	case a.Field == render.NoField:
		m.edit(a.draft)
	default:
		m.edit(a.Draft())
	}
	if answer != nil {
		a.reply <- *answer
		m.asking = m.dropQuestion()
	}
}

// edit puts a text into the input.
func (m *model) edit(text string) {
	m.input.SetValue(text)
	m.input.MoveToEnd()
	m.input, _ = m.input.Update(nil) // shows where the cursor is
}

// dropQuestion takes a question away; the input is the person's own again.
func (m *model) dropQuestion() *asking {
	if m.asking != nil && m.asking.Field != render.NoField {
		m.edit(m.asking.draft)
	}
	return nil
}

// keysText tells which keys answer.
func (a *asking) keysText() string {
	switch a.Field {
	case render.FieldReason:
		return "why? the model reads it · enter send · esc back"
	case render.FieldEdit:
		return "other arguments, as JSON · enter approves these · esc back"
	case render.FieldHappened:
		return "its result, for the model to read · enter send · esc back"
	case render.FieldAnswer:
		if len(a.Options) > 0 {
			return "the answer, or its number · enter answers · esc later · ctrl-c stops the turn"
		}
		return "enter answers · esc later · ctrl-c stops the turn"
	case render.FieldLimit:
		return "how many " + a.Unit + " more? enter grants · n and enter: no more, it ends with what it has · esc later"
	}
	text := render.KeysText(a.Keys())
	if a.Each() {
		text += " · esc back"
	}
	return text
}

// askKey is a key while a question waits. handled is false for keys of the input.
func (m *model) askKey(k tea.KeyPressMsg) (handled bool) {
	a, name := m.asking, k.String()
	field := a.Field
	a.Style = m.style()
	switch {
	case name == "esc":
		m.step(field, "", a.Back())
	case field == render.NoField:
		shown, answer := a.Press(render.Pressed(a.Keys(), name))
		m.step(field, shown, answer)
	case name == "enter":
		shown, answer, problem := a.Enter(m.input.Value())
		m.hint = problem
		m.step(field, shown, answer)
	case name == "up", name == "down":
		return field != render.FieldEdit // no history here
	default:
		return name == "tab"
	}
	return true
}
