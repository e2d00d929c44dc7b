package tui

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"github.com/toolcrib/toolcrib/internal/render"
)

// keysText lists the keys that answer the question, once it accepts keys.
func (m *model) keysText() string {
	if !m.seen() {
		return "a moment: what you type now is added to your message"
	}
	a := m.asking
	text := a.Prompt()
	switch a.Field {
	case render.FieldReason, render.FieldHappened:
		text += " · enter send · esc back"
	case render.FieldEdit:
		text += " · enter approves these · esc back"
	case render.FieldAnswer, render.FieldLimit:
		text += " · enter answers · esc later · ctrl-c stops the turn"
	}
	if a.Field == render.NoField && a.Each() {
		text += " · esc back"
	}
	return text
}

// key handles a key.
func (m *model) key(k tea.KeyPressMsg) tea.Cmd {
	name := k.String()
	leaving := m.leaving
	m.leaving, m.hint = false, ""
	switch name {
	case "ctrl+c":
		return m.interrupt(leaving)
	case "ctrl+d":
		if m.value() == "" && m.asking == nil {
			return m.leave()
		}
	case "ctrl+z":
		return tea.Suspend
	case "ctrl+l":
		return tea.ClearScreen
	case "ctrl+o":
		m.unfold(0)
		return nil
	}
	if m.asking != nil && !m.seen() {
		m.asking.touched = m.now()
		if name == "enter" {
			return nil // the text typed so far is kept
		}
	} else if m.asking != nil && m.askKey(k) {
		return nil
	}
	if m.search != nil && m.searchKey(k) {
		return nil
	}
	switch name {
	case "esc":
		if m.working && !m.stopped {
			return m.interrupt(false)
		}
		return nil
	case "shift+tab":
		m.talk.NextMode()
		return nil
	case "ctrl+r":
		if m.asking == nil {
			m.search = &search{at: len(m.history.Lines()), draft: m.value()}
			m.searched()
		}
		return nil
	case "enter":
		return m.enter()
	case "tab":
		return m.complete()
	case "up":
		if m.input.Line() == 0 && m.input.LineInfo().RowOffset == 0 {
			m.recallAt(m.recall - 1)
			return nil
		}
	case "down":
		if m.recall < len(m.history.Lines()) && m.input.Line() == m.input.LineCount()-1 {
			m.recallAt(m.recall + 1)
			return nil
		}
	}
	if m.standIns.put(k.Text) != k.Text {
		m.insert(k.Text)
		return nil
	}
	var cmd tea.Cmd
	m.input, cmd = m.input.Update(k)
	return cmd
}

// interrupt handles ctrl-c, and esc during an operation: it stops the operation, or empties the input,
// or leaves if it is pressed twice.
func (m *model) interrupt(again bool) tea.Cmd {
	m.search = nil
	switch {
	case m.working && m.stopped:
		m.hint = "stopping… (ctrl-c once more leaves at once)"
		if again {
			return m.leave()
		}
		m.leaving = true
	case m.working:
		m.stopped, m.after = true, false
		m.asking = m.dropQuestion()
		// queued messages were for the stopped operation: the user sends them again, or not
		if len(m.queued) > 0 {
			m.edit(strings.TrimLeft(strings.Join(append(m.queued, m.value()), "\n"), "\n"))
			m.queued = nil
		}
		m.cancel(m.stops)
	case m.value() != "":
		m.input.Reset()
		m.recall = len(m.history.Lines())
	case again:
		return m.leave()
	default:
		m.leaving = true
		m.hint = "ctrl-c once more leaves, as does ctrl-d"
	}
	return nil
}

// leave ends the conversation.
func (m *model) leave() tea.Cmd {
	if m.working && !m.stopped {
		m.after = true
		m.hint = "leaving when the turn has ended; ctrl-c stops it, and stays"
		return nil
	}
	m.quit = true
	return nil
}

// enter sends the input. After a backslash it starts another line instead.
func (m *model) enter() tea.Cmd {
	text := m.value()
	if strings.HasSuffix(text, `\`) && m.input.Line() == m.input.LineCount()-1 {
		m.edit(strings.TrimSuffix(text, `\`) + "\n")
		return nil
	}
	if text = strings.TrimRight(text, " \n"); strings.TrimSpace(text) == "" {
		return nil
	}
	if m.working && len(m.queued) >= maxQueued {
		m.hint = "too many messages wait already"
		return nil
	}
	m.input.Reset()
	if err := m.history.Add(text); err != nil {
		m.note(err.Error())
	}
	m.recall = len(m.history.Lines())
	if n, ok := showNumber(text); ok {
		m.said(text)
		m.unfold(n)
		return nil
	}
	if !m.working {
		return m.send(text)
	}
	m.queued = append(m.queued, text)
	return nil
}

// showNumber parses the command /show, which only the screen can perform; 0 is the last item.
func showNumber(line string) (n int, ok bool) {
	name, number, _ := strings.Cut(strings.TrimSpace(line), " ")
	if number = strings.Trim(number, " #"); number != "" {
		n, _ = strconv.Atoi(number)
		n = cmp.Or(n, -1)
	}
	return n, name == "/show"
}

// recallAt shows an older message, or after the last one the draft.
func (m *model) recallAt(at int) {
	all := m.history.Lines()
	if m.recall >= len(all) {
		m.draft = m.value()
	}
	if m.recall = min(max(at, 0), len(all)); m.recall == len(all) {
		m.edit(m.draft)
	} else {
		m.edit(all[m.recall])
	}
}

// complete finds the completions of the input.
func (m *model) complete() tea.Cmd {
	line, talk := m.value(), m.talk
	word := line[strings.LastIndexAny(line, " \n")+1:]
	if !strings.HasPrefix(word, "@") && (!strings.HasPrefix(line, "/") || strings.Contains(line, "\n")) {
		return nil
	}
	m.completing = true
	return func() tea.Msg { return completedMsg{line, talk.Complete(line)} }
}

// completed completes the input as far as that is unambiguous, and lists the completions.
func (m *model) completed(found completedMsg) {
	line, all := found.line, found.all
	m.completing = false
	switch {
	case line != m.value(): // a question has changed it meanwhile
		return
	case len(all) == 0:
		m.hint = "nothing to complete"
		return
	case len(all) == 1:
		m.edit(all[0])
		return
	}
	common := all[0]
	words := make([]string, len(all))
	for i, one := range all {
		for !strings.HasPrefix(one, common) {
			_, size := utf8.DecodeLastRuneInString(common)
			common = common[:len(common)-size]
		}
		words[i] = one[strings.LastIndexByte(strings.TrimRight(one, " "), ' ')+1:]
	}
	if len(common) > len(line) {
		m.edit(common)
	}
	m.hint = strings.Join(words, "  ")
}

// paste inserts a pasted text.
func (m *model) paste(text string) {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	if m.asking != nil && m.asking.Field == render.NoField {
		return
	}
	if len(text)+m.input.Length() > maxInput || strings.Count(text, "\n")+m.input.LineCount() > maxInputLines {
		m.hint = fmt.Sprintf("what was pasted is too long: at most %d lines and %d kB; attach it with /attach FILE",
			maxInputLines, maxInput>>10)
		return
	}
	m.insert(text)
}

// search is a search in the history.
type search struct {
	text  string // text to find
	at    int    // index into the history; its length if nothing was found yet
	draft string // input before the search
}

// searchKey handles a key during a search. handled is false for a key that accepts the result and has
// another meaning in addition.
func (m *model) searchKey(k tea.KeyPressMsg) (handled bool) {
	s := m.search
	switch name := k.String(); {
	case name == "esc":
		m.search = nil
		m.edit(s.draft)
		return true
	case name == "ctrl+r":
		m.searched()
		return true
	case name == "backspace":
		_, size := utf8.DecodeLastRuneInString(s.text)
		s.text, s.at = s.text[:len(s.text)-size], len(m.history.Lines())
	case k.Text != "":
		s.text, s.at = s.text+k.Text, len(m.history.Lines())
	default:
		m.search, m.recall = nil, s.at
		return name == "enter" // enter accepts the result, which another enter sends
	}
	m.searched()
	return true
}

// searched shows the next older message that contains the text.
func (m *model) searched() {
	s, all := m.search, m.history.Lines()
	for i := min(s.at, len(all)) - 1; i >= 0 && s.text != ""; i-- {
		if strings.Contains(strings.ToLower(all[i]), strings.ToLower(s.text)) {
			s.at = i
			m.edit(all[i])
			break
		}
	}
	m.hint = "search: " + s.text + " · ctrl-r older · enter takes it · esc back"
	if s.text != "" && s.at == len(all) {
		m.hint = "not found: " + s.text + " · esc back"
	}
}

// asking is a question that waits for an answer.
type asking struct {
	render.Dialog
	reply chan Answer
	draft string // input before the question
	// touched is the time when the question was shown, or of a key that came before it could be read.
	touched time.Time
}

// seen reports whether the question can have been read: it is shown completely and no key has been
// typed for a moment. A key that comes earlier is ignored.
func (m *model) seen() bool {
	standing := !m.printing && len(m.prints) == 0
	return m.calm == 0 || standing && m.now().Sub(m.asking.touched) >= m.calm
}

func (m *model) ask(q Question, reply chan Answer) {
	m.endReply()
	a := &asking{reply: reply, draft: m.value(), touched: m.now()}
	a.Dialog = render.Dialog{Question: q, Style: m.style(), Edits: true, Mark: "? "}
	m.asking, m.search = a, nil
	if a.Problem != "" {
		a.touched = time.Time{} // the person is already answering
		m.warn(a.Problem)
	}
	m.step(render.NoField, a.Open(), nil)
}

// step shows the next text, passes the input to the next field, and takes the answer. field is the
// previous field.
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

// dropQuestion removes the question and restores the user's input. The time of the question is not part
// of the time that is shown.
func (m *model) dropQuestion() *asking {
	m.began = m.now()
	if m.asking != nil && m.asking.Field != render.NoField {
		m.edit(m.asking.draft)
	}
	return nil
}

// askKey handles a key while a question waits. handled is false for keys of the input.
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
		shown, answer, problem := a.Enter(m.value())
		m.hint = problem
		m.step(field, shown, answer)
	case name == "up", name == "down":
		return field != render.FieldEdit // a field has no history
	default:
		return name == "tab"
	}
	return true
}
