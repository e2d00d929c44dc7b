package channels

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/channel"
	"github.com/toolcrib/toolcrib/journal"
)

// codePrefix begins the codes of approvals.
const codePrefix = "apr-"

// codeOf returns the code of an approval as it was shown. It is short and reveals nothing about the run.
func codeOf(approval, digest string) string {
	sum := sha256.Sum256([]byte(approval + " " + digest))
	return codePrefix + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:5]))
}

type verb struct{ decision, done string }

// verbs are the words that decide.
var verbs = map[string]verb{
	"approve": {journal.DecisionApprove, "Approved"}, "deny": {journal.DecisionDeny, "Denied"},
	"answer": {journal.DecisionAnswer, "Answered"}, "retry": {journal.DecisionRetry, "Retried"},
	"not-happened": {journal.DecisionNotHappened, "Marked as not happened"},
}

// buttons returns the buttons of a question. Each has the command that the same answer has as a text.
func (a *asked) buttons(v *api.Approval) []channel.Button {
	deny := channel.Button{Label: "Deny", Token: "deny " + a.Code}
	switch {
	case v.Kind == journal.ApprovalInDoubt:
		return []channel.Button{
			{Label: "Run it again", Token: "retry " + a.Code}, {Label: "It did not happen", Token: "not-happened " + a.Code},
		}
	case v.Kind == journal.ApprovalCall && !a.Partly:
		return []channel.Button{{Label: "Approve", Token: "approve " + a.Code}, deny}
	}
	return []channel.Button{deny}
}

const help = "Write what you want done; each chat and thread is a conversation of its own.\n" +
	"cancel ends what is running or waiting. Questions are decided by their buttons, or by a message: " +
	"approve CODE, deny CODE REASON, answer CODE TEXT."

// split splits a command into its word, a code and the words after that.
func split(text string) (word, code, words string) {
	word, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	word, _, _ = strings.Cut(strings.ToLower(strings.TrimPrefix(word, "/")), "@") // a group names the bot
	code, words, _ = strings.Cut(strings.TrimSpace(rest), " ")
	return word, strings.ToLower(code), strings.TrimSpace(words)
}

// unknown is the answer to a code that no question in the chat has.
func unknown(code string) string {
	return fmt.Sprintf("Nothing is decided: no approval that waits in this chat has the code %q.", shown(code))
}

// command does what a message commands, if it is a command: to decide, to cancel, to help.
func (l *line) command(m *channel.Message, user string, known bool) (done bool, err error) {
	text := m.Text
	if m.PressID != "" || m.Press != "" {
		text = m.Press
	}
	word, code, words := split(text)
	r, a := l.find(func(r *record) bool { // the question of the model that it replies to
		return m.ReplyTo != "" && r.Asked.Question && r.Asked.MessageID == m.ReplyTo && r.Message.Chat == m.Chat
	})
	v, decides := verbs[word]
	switch {
	case decides && strings.HasPrefix(code, codePrefix):
		return true, l.decide(m, user, known, code, v, words)
	case m.Press != "" || m.PressID != "":
		l.say(m, "This button is not known here.")
		return true, nil
	case r != nil && !m.Forwarded:
		return true, l.decide(m, user, known, a.Code, verbs["answer"], m.Text)
	case code == "" && (word == "cancel" || word == "stop") && !m.Forwarded:
		return true, l.cancel(m, user, known)
	case code == "" && strings.HasPrefix(m.Text, "/") && (word == "start" || word == "help"):
		l.say(m, help)
		return true, nil
	}
	return false, nil
}

// decide decides on the approval with a code. The sender must be one who may decide it; the digest is that of what was
// posted. What is stale, or of another chat, changes nothing.
func (l *line) decide(m *channel.Message, user string, known bool, code string, v verb, words string) error {
	r, a := l.find(func(r *record) bool { return r.Asked.Code == code && r.Message.Chat == m.Chat })
	switch {
	case m.Forwarded:
		l.say(m, "A forwarded message decides nothing.")
		return nil
	case r == nil:
		l.say(m, unknown(code))
		return nil
	case a.Partly && v.decision == journal.DecisionApprove:
		l.say(m, "Nothing is decided: "+code+" is too long to be shown in full here; approve it on the page or the command line.")
		return nil
	}
	d := Decision{Approval: a.Approval, Digest: a.Digest, Decision: v.decision, Schema: a.Schema}
	if v.decision == journal.DecisionAnswer {
		d.Answer = words
	} else {
		d.Reason = words
	}
	who, err := l.o.Runs.Act(l.ctx, user, known)
	if err == nil {
		err = l.o.Runs.Decide(l.ctx, who, d)
	}
	switch code := toolcrib.CodeOf(err); {
	case err == nil:
	case code == "" || l.ctx.Err() != nil: // the store is gone for now, and the message is delivered again
		return err
	case code == toolcrib.CodeNotFound: // who may not decide must not learn of the run
		l.say(m, "Nothing is decided: this is not for you to decide.")
		return nil
	default:
		l.log.Info("a decision is refused", "user", user, "approval", a.Approval, "error", err)
		l.say(m, "Nothing is decided: "+shown(err.Error()))
		return nil
	}
	done := fmt.Sprintf("%s by %s (%s).", v.done, shown(user), a.Code)
	l.say(m, done)
	if m.PressID != "" { // the answer to a press is seen by who pressed only
		inChat := *m
		inChat.PressID = ""
		l.say(&inChat, done)
	}
	r.lane.wake()
	return nil
}

// maxCancel bounds the time to cancel a run, during which no other messages are taken.
const maxCancel = 5 * time.Second

// cancel ends the run of a sender's messages to a session.
func (l *line) cancel(m *channel.Message, user string, known bool) error {
	l.mu.Lock()
	n := l.lanes[laneOf(l.name, user, m)]
	var run toolcrib.RunID
	switch {
	case n == nil:
	case n.now != nil:
		run = n.now.Run
	case len(n.waiting) > 0: // after a start
		run = n.waiting[0].Run
	}
	l.mu.Unlock()
	switch {
	case n == nil:
		l.say(m, "Nothing is running in this conversation.")
		return nil
	case run == "":
		l.say(m, "Your last message has not been started yet. Send cancel again when it has.")
		return nil
	}
	ctx, end := context.WithTimeout(l.ctx, maxCancel)
	defer end()
	who, err := l.o.Runs.Act(ctx, user, known)
	if err == nil {
		err = l.o.Runs.Cancel(ctx, who, run)
	}
	switch {
	case err == nil:
		n.wake()
	case l.ctx.Err() != nil || toolcrib.CodeOf(err) == "" && ctx.Err() == nil: // as in decide
		return err
	default:
		l.say(m, "Not cancelled: "+shown(err.Error()))
	}
	return nil
}
