package channels

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/channel"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// work processes the messages of a lane in their order.
func (l *line) work(n *lane) {
	for {
		l.mu.Lock()
		n.now = nil
		if len(n.waiting) == 0 || l.ctx.Err() != nil {
			delete(l.lanes, n.at)
			n.bounds.lanes--
			l.mu.Unlock()
			return
		}
		r := n.waiting[0]
		n.now, n.waiting = r, n.waiting[1:]
		l.mu.Unlock()
		if err := l.finish(n, r); err != nil && l.ctx.Err() == nil {
			l.fail(err)
		}
	}
}

// finish processes a message until it is answered.
func (l *line) finish(n *lane, r *record) error {
	for {
		waits, err := l.carry(n, r)
		l.left()
		if err != nil || !waits {
			return err
		}
		if err := l.park(n, r); err != nil {
			return err
		}
		l.mu.Lock()
		l.queued++
		l.mu.Unlock()
	}
}

// park waits until the run of a message no longer waits for a person, wherever that was decided, or asks something
// else. Further messages of the lane are refused meanwhile.
func (l *line) park(n *lane, r *record) error {
	tick := time.NewTicker(tend)
	defer tick.Stop()
	for {
		l.mu.Lock()
		later := len(n.waiting) // those that come after the next look may come after its end
		l.mu.Unlock()
		rec, err := l.o.Runs.Look(l.ctx, r.Run)
		switch {
		case err != nil && !errors.Is(err, toolcrib.ErrNotFound): // the store is gone for now
			later = 0
		case err != nil, !rec.Status.Parked(), asks(&rec) && r.unasked(&rec):
			return nil
		}
		text := "Your last message still waits"
		if r.Asked != nil {
			text += " for a decision on " + r.Asked.Code
		}
		text += ". Send cancel to end it."
		for range later {
			l.mu.Lock()
			one := n.waiting[0]
			n.waiting = n.waiting[1:]
			l.mu.Unlock()
			if word, code, _ := split(one.Message.Text); verbs[word].decision != "" {
				l.say(&one.Message, unknown(code)+" "+text)
			} else {
				l.say(&one.Message, text)
			}
			err := l.forget(one)
			l.left()
			if err != nil {
				return err
			}
		}
		select {
		case <-n.came:
		case <-tick.C:
		case <-l.ctx.Done():
			return context.Cause(l.ctx)
		}
	}
}

// fail ends the line after an error of the store. It restarts from the stored records.
func (l *line) fail(err error) {
	l.log.Error("messages cannot be processed; restarting from the stored ones", "error", err)
	l.end(err)
}

// carry processes a message until it is answered or its run waits for a person. An error is one of the store.
func (l *line) carry(n *lane, r *record) (waits bool, err error) {
	for _, slots := range []chan struct{}{n.bounds.slots, l.slots} {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-l.ctx.Done():
			return false, context.Cause(l.ctx)
		}
	}
	if r.Run == "" {
		if refused, err := l.begin(r); err != nil || refused {
			return false, err
		}
	}
	for {
		if err := l.o.Runs.Wait(l.ctx, r.Run); err != nil {
			if l.ctx.Err() != nil || l.pause(retryLeast) != nil {
				return false, context.Cause(l.ctx)
			}
			continue // it was interrupted, and continues elsewhere
		}
		rec, err := l.o.Runs.Look(l.ctx, r.Run)
		switch {
		case errors.Is(err, toolcrib.ErrNotFound): // removed
			return false, l.forget(r)
		case err != nil:
			return false, err
		case rec.Status.Ended():
			return false, l.answer(r, &rec)
		case asks(&rec) && (r.unasked(&rec) || r.Sending == rec.Pending.ApprovalID):
			if again, err := l.ask(r, rec.Pending.ApprovalID); err != nil || !again {
				return true, err
			}
		case rec.Status.Parked():
			return true, nil
		}
	}
}

// unasked reports whether the question that a run waits for was not posted.
func (r *record) unasked(rec *store.RunRecord) bool {
	return r.Asked == nil || r.Asked.Approval != rec.Pending.ApprovalID
}

// begin starts the run of a message. refused reports that it was not started, and that its sender was told why.
func (l *line) begin(r *record) (refused bool, err error) {
	set := l.o.Host.Config().Channels[l.name]
	for pause := retryLeast; ; pause = min(2*pause, retryMost) {
		who, err := l.o.Runs.Act(l.ctx, r.User, r.Known)
		var run toolcrib.RunID
		if err == nil {
			q := Request{Agent: set.Inbound.Agent, Session: session(l.name, &r.Message), Key: l.name + " " + r.key}
			q.Prompt, q.Taint = l.prompt(&r.Message)
			run, err = l.o.Runs.Begin(l.ctx, who, q)
		}
		switch code := toolcrib.CodeOf(err); {
		case err == nil:
			l.mu.Lock()
			r.Run = run
			l.mu.Unlock()
			return false, l.save(r)
		case l.ctx.Err() != nil:
			return false, context.Cause(l.ctx)
		case code == toolcrib.CodeCapacityExceeded || code == toolcrib.CodeOverloaded || code == toolcrib.CodeRateLimited:
		case code == "" || code == toolcrib.CodeInternal:
			l.log.Error("a run cannot be started", "user", r.User, "error", err)
			l.say(&r.Message, "This message was not processed: the server has an error, which is in its log.")
			return true, l.forget(r)
		default:
			l.log.Warn("a run is refused", "user", r.User, "error", err)
			l.say(&r.Message, "This message was not processed: "+shown(err.Error()))
			return true, l.forget(r)
		}
		if err := l.pause(pause); err != nil {
			return false, err
		}
	}
}

// ask posts the question that a run waits for. again reports that the run no longer waits for it.
func (l *line) ask(r *record, approval string) (again bool, err error) {
	who, err := l.o.Runs.Act(l.ctx, r.User, r.Known)
	var v *api.Approval
	if err == nil {
		v, err = l.o.Runs.Approval(l.ctx, who, approval)
	}
	switch {
	case errors.Is(err, toolcrib.ErrNotFound), err == nil && v.Status != api.ApprovalPending:
		return true, l.pause(retryLeast) // decided elsewhere, or expired
	case err != nil:
		l.log.Warn("a question cannot be read", "run", r.Run, "approval", approval, "error", err)
		return false, l.pause(retryLeast)
	}
	a := &asked{
		Approval: v.ID, Digest: v.Digest, Schema: v.Schema, Code: codeOf(v.ID, v.Digest),
		Question: v.Kind == journal.ApprovalInput && len(v.Calls) > 0,
	}
	text := l.question(v, a)
	if r.Sending == v.ID && !l.api.Deduplicates() {
		text = "(This question may have been posted before; it can be decided once.)\n" + text
	}
	parts := l.api.Parts(text)
	if len(parts) > maxQuestionParts {
		a.Partly = true
		parts = append(parts[:maxQuestionParts-1], l.api.Parts(l.partly(v, a))...)
	}
	l.mu.Lock()
	if r.Asked != nil && r.Asked.Code != a.Code {
		r.Asked = nil
	}
	l.mu.Unlock()
	for i, part := range parts {
		reply := l.reply(r, fmt.Sprintf("%s %d", v.ID, i), part)
		if i == len(parts)-1 {
			reply.Buttons = a.buttons(v)
			l.mu.Lock()
			r.Asked = a // it may be decided as soon as it is seen
			l.mu.Unlock()
		}
		id, failed, err := l.send(r, v.ID, reply)
		if err != nil {
			return false, err
		}
		l.mu.Lock()
		a.MessageID = id
		if failed != "" {
			r.Asked = a
		}
		l.mu.Unlock()
		if failed != "" { // the run still waits, and can be decided elsewhere
			l.notice("run %s waits for %s, and its question may not have been posted: %s", r.Run, v.ID, failed)
			break
		}
	}
	r.Sending = ""
	return false, l.save(r)
}

// answer posts the outcome of a run, and forgets the message.
func (l *line) answer(r *record, rec *store.RunRecord) error {
	if r.Sending == sendingAnswer && !l.api.Deduplicates() {
		return l.undelivered(r, "the server ended while the answer was being sent")
	}
	if _, err := l.o.Runs.Act(l.ctx, r.User, r.Known); err != nil && toolcrib.CodeOf(err) == toolcrib.CodeForbidden {
		return l.undelivered(r, "its sender may no longer read it: "+err.Error())
	}
	parts := l.api.Parts(outcome(rec))
	for r.Part < len(parts) {
		reply := l.reply(r, fmt.Sprintf("answer %d", r.Part), parts[r.Part])
		_, failed, err := l.send(r, sendingAnswer, reply)
		switch {
		case err != nil:
			return err
		case failed != "":
			return l.undelivered(r, failed)
		}
		r.Part++
	}
	return l.forget(r)
}

const sendingAnswer = "answer"

// reply returns a reply to the chat and thread of a message. what distinguishes it from the others.
func (l *line) reply(r *record, what, text string) channel.Reply {
	return channel.Reply{
		Chat: r.Message.Chat, Thread: r.Message.Thread, To: r.Message.ID, Text: text,
		Key: r.key + hash("", what),
	}
}

// send stores that a reply is being sent, and sends it. failed is why it was not sent, or may not have been; an error
// is one of the store.
func (l *line) send(r *record, what string, reply channel.Reply) (id, failed string, err error) {
	pause := retryLeast
	for {
		r.Sending = what
		if err := l.save(r); err != nil {
			return "", "", err
		}
		// An adapter bounds the time of a request.
		id, err = l.api.Send(context.WithoutCancel(l.ctx), reply)
		class, after := channel.ClassOf(err)
		switch {
		case err == nil:
			return id, "", nil
		case class == channel.Refused:
			return "", err.Error(), nil
		case class == channel.Doubt && !l.api.Deduplicates():
			return "", "it is not known whether it has arrived: " + err.Error(), nil
		}
		if class == channel.Later { // a crash during the pause leaves no doubt
			r.Sending = ""
			if err := l.save(r); err != nil {
				return "", "", err
			}
		}
		if err := l.pause(max(pause, after)); err != nil {
			return "", "", err
		}
		pause = min(2*pause, retryMost)
	}
}

// forget removes the record of a message.
func (l *line) forget(r *record) error { return l.put(r, nil) }

// undelivered keeps a message whose answer was not delivered for certain, for doctor, and tells the operator.
func (l *line) undelivered(r *record, why string) error {
	r.Failed, r.Since = why, time.Now().UTC().Truncate(time.Second)
	err := l.save(r)
	l.notice("the answer of run %s was not delivered for certain: %s; toolcrib runs show %s has it", r.Run, why,
		toolcrib.ShortID(r.Run))
	return err
}

func (l *line) notice(format string, args ...any) {
	text := "channel " + l.name + ": " + fmt.Sprintf(format, args...)
	l.o.Host.Notice(text)
	l.log.Warn(text)
}

// say sends a text once, unless too many are waiting. The text may be lost in a crash.
func (l *line) say(m *channel.Message, text string) {
	r := channel.Reply{Chat: m.Chat, Thread: m.Thread, Text: text, Key: keyOf(m) + hash("", text), PressID: m.PressID}
	if m.Press == "" {
		r.To = m.ID
	}
	select {
	case l.out <- r:
	default:
		l.log.Warn("a text was not sent: too many are waiting")
	}
}

// speak sends the texts of say.
func (l *line) speak() {
	for {
		select {
		case <-l.ctx.Done():
			return
		case r := <-l.out:
			for range 3 {
				_, err := l.api.Send(context.WithoutCancel(l.ctx), r)
				class, after := channel.ClassOf(err)
				if err == nil || class != channel.Later {
					if err != nil {
						l.log.Warn("a text was not sent", "error", err)
					}
					break
				}
				if l.pause(max(after, retryLeast)) != nil {
					return
				}
			}
		}
	}
}
