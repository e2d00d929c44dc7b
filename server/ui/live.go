package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/worker"
)

// sse writes Server-Sent Events. Their data is JSON.
type sse struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// sseTimeout bounds the time until a client has read the data written.
const sseTimeout = 30 * time.Second

// maxStreams bounds the open streams of a user.
const maxStreams = 64

// streams counts the open streams of each user.
type streams struct {
	mu sync.Mutex
	of map[string]int
}

// begin counts a stream until end is called.
func (s *streams) begin(user string) (end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[user] >= maxStreams {
		err := toolcrib.Errorf(toolcrib.CodeCapacityExceeded, "more than %d pages of %s are open; close some", maxStreams, user)
		err.RetryAfter = time.Second
		return nil, err
	}
	if s.of == nil {
		s.of = map[string]int{}
	}
	s.of[user]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.of[user]--; s.of[user] == 0 {
			delete(s.of, user)
		}
	}, nil
}

// stream begins a stream of events, which must be ended.
func (p *page) stream() (_ *sse, end func(), err error) {
	if end, err = p.streams.begin(p.Who.User); err != nil {
		return nil, nil, err
	}
	p.wrote = true
	h := p.W.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // for nginx and others
	p.W.WriteHeader(http.StatusOK)
	return &sse{p.W, http.NewResponseController(p.W)}, end, nil
}

// send writes an event. If id is 0, it has none.
func (e *sse) send(id toolcrib.Seq, event string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if id > 0 {
		b.WriteString("id: " + strconv.FormatUint(uint64(id), 10) + "\n")
	}
	b.WriteString("event: " + event + "\ndata: ")
	b.Write(text)
	b.WriteString("\n\n")
	return e.write(b.Bytes())
}

// ping keeps proxies from closing a stream on which nothing happens.
func (e *sse) ping() error { return e.write([]byte(": ping\n\n")) }

func (e *sse) write(p []byte) error {
	_ = e.control.SetWriteDeadline(time.Now().Add(sseTimeout)) // if the connection supports it
	if _, err := e.w.Write(p); err != nil {
		return err
	}
	return e.control.Flush()
}

const (
	flushEvery = 40 * time.Millisecond  // frames in between are sent together
	lookAgain  = 200 * time.Millisecond // after a frame: not all events have one
	growEvery  = time.Second            // how often the bars of work in progress grow
	maxBehind  = 4 * storyEvents        // how far before the last known event a live story begins at most
)

// live is the live part of the page of a run. It sends the events
//
//   - parts: {html, say}: entries of the story, or the timeline, and the head of the page, which replace those with
//     their IDs, or follow the last entry; and a text to announce
//   - text: a list of [ID, text], to be added to the end of elements
//   - end: the run has ended
type live struct {
	*page
	out    *sse
	story  *story
	deltas []delta
	forms  map[string]string // elements of the calls that the model is writing, by their IDs
	joined map[string]bool   // elements with text
	status string            // with which the forms of the page were made
	bars   bool              // the page shows the timeline instead of the story
	stale  bool              // the journal has events that were not read
	idle   bool              // it is time for a ping
}

// delta is a piece of a reply in progress.
type delta struct {
	part string // text, thinking, or a call
	name string // of a new call
	id   string
	from int
	text string
}

type parts struct {
	HTML []string `json:"html"`
	Say  string   `json:"say,omitempty"`
}

// followRun streams the events of a run after a given one.
func followRun(p *page) error {
	run, err := p.Service.FindRun(p, p.Who, p.R.PathValue("id"))
	if err != nil {
		return err
	}
	if run.PrunedAt != nil {
		return errNoPage(p)
	}
	after, err := seqOf(p.R.FormValue("after"))
	if last := p.R.Header.Get("Last-Event-ID"); err == nil && last != "" {
		after, err = seqOf(last)
	}
	from, wrong := seqOf(p.R.FormValue("from"))
	if err != nil || wrong != nil {
		return bad("after, from, Last-Event-ID: must be numbers of events")
	}
	after = min(after, run.LastSeq)
	from = max(min(from, after), after-min(after, maxBehind))
	l := &live{
		page: p, status: headOf(run).Shown, story: newStory(run.ID, from), bars: p.R.FormValue("view") == "timeline",
	}
	for e, err := range p.Service.JournalAfter(p, p.Who, run.ID, l.story.From) {
		if err != nil {
			return err
		}
		if e.Seq > after {
			break
		}
		l.story.take(e)
	}
	l.story.took()
	l.story.touch(l.story.round) // it is streamed from the beginning
	out, end, err := p.stream()
	if err != nil {
		return err
	}
	defer end()
	if l.out = out; out.ping() == nil {
		err = l.run(after)
	}
	if err != nil && p.R.Context().Err() == nil {
		p.Log.Debug("a live page ended", "request_id", p.ID, "error", err)
	}
	return nil // the client connects again
}

// run passes on the frames of the run until it has ended.
func (l *live) run(after toolcrib.Seq) error {
	ctx, cancel := context.WithCancel(l)
	frames, ended := make(chan journal.Frame, 64), make(chan error, 1)
	pass := func(f journal.Frame) error {
		select {
		case frames <- f:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	go func() {
		f := worker.Follow{Run: string(l.story.Run), After: after, Idle: func() error { return pass(journal.Frame{}) }}
		ended <- l.Pool.Follow(ctx, l.Who, f, pass)
		close(frames)
	}()
	err := l.pass(frames)
	cancel()
	for range frames { // until Follow has returned
		continue
	}
	followed := <-ended
	if err == nil && followed == nil {
		return l.out.send(0, "end", struct{}{})
	}
	if err == nil {
		err = followed
	}
	return err
}

func (l *live) pass(frames <-chan journal.Frame) error {
	l.stale = true
	timer := time.NewTimer(0)
	defer timer.Stop()
	var grow <-chan time.Time // nil for a story
	if l.bars {
		tick := time.NewTicker(growEvery)
		defer tick.Stop()
		grow = tick.C
	}
	again := false
	for {
		select {
		case f, ok := <-frames:
			if !ok {
				l.stale = true
				return l.flush()
			}
			l.frame(f)
			timer.Reset(flushEvery)
		case <-timer.C:
			stale := l.stale || again
			if l.stale = stale; stale && !again {
				timer.Reset(lookAgain)
			}
			again = stale && !again
			if err := l.flush(); err != nil {
				return err
			}
		case <-grow:
			l.story.touchWork()
			if err := l.flush(); err != nil {
				return err
			}
		}
	}
}

// frame takes a frame. Kept ones are read from the journal, which has more.
func (l *live) frame(f journal.Frame) {
	switch v := f.Data.(type) {
	case journal.TextView:
		part := "text"
		if f.Event == journal.FrameThinking {
			part = "thinking"
		}
		l.delta(delta{part: part, from: v.From, text: v.Text})
	case journal.CallDeltaView:
		l.delta(delta{part: "call", id: v.ID, name: v.Name, text: v.ArgumentsDelta})
	case journal.ProgressView:
		l.delta(delta{part: "progress", id: v.ID, text: v.Message})
	case nil:
		l.idle = true
	case journal.MessageView:
		l.deltas, l.stale = nil, true // the reply has all of them
	default:
		l.stale = true
	}
}

func (l *live) delta(d delta) {
	if l.bars { // a timeline shows no text
		return
	}
	if n := len(l.deltas); n > 0 && d.part != "progress" && d.name == "" && l.deltas[n-1].part == d.part &&
		l.deltas[n-1].id == d.id {
		l.deltas[n-1].text += d.text
		return
	}
	l.deltas = append(l.deltas, d)
}

// flush sends the changes since its last call.
func (l *live) flush() error {
	open := l.story.round != nil && l.story.round.Round.Open
	if l.stale || len(l.deltas) > 0 && !open {
		if err := l.story.read(l.Service.JournalAfter(l, l.Who, l.story.Run, l.story.Last)); err != nil {
			return err
		}
	}
	l.stale = false
	if err := l.sendParts(); err != nil {
		return err
	}
	if err := l.sendText(); err != nil {
		return err
	}
	if l.idle {
		l.idle = false
		return l.out.ping()
	}
	return nil
}

// sendParts sends the entries that have changed, or the timeline that they are part of.
func (l *live) sendParts() error {
	changed := l.story.took()
	if len(changed) == 0 {
		return nil
	}
	if n := len(l.story.Items) - storyItems; n > 0 {
		l.story.Items = slices.Clone(l.story.Items[n:])
		l.story.Earlier = l.story.Items[0].Seq
	}
	if !l.bars {
		l.decidable(l.story)
	}
	var out parts
	for _, i := range changed {
		if say := l.said(i); say != "" {
			out.Say = say
		}
		if l.bars {
			continue
		}
		if i.Round != nil {
			l.forms, l.joined = nil, nil
		}
		html, err := l.fragment("run", "item", i)
		if err != nil {
			return err
		}
		out.HTML = append(out.HTML, html)
	}
	if err := l.around(&out); err != nil {
		return err
	}
	return l.out.send(l.story.Last, "parts", out)
}

// around adds the timeline and the head of the page as they are now and, if the status has changed, its forms.
func (l *live) around(out *parts) error {
	run, err := l.Service.FindRun(l, l.Who, string(l.story.Run))
	if err != nil {
		return err
	}
	if l.bars {
		t, err := l.timelineOf(run, l.story)
		if err != nil {
			return err
		}
		html, err := l.fragment("run", "timeline", t)
		if err != nil {
			return err
		}
		out.HTML = append(out.HTML, html)
	}
	h := headOf(run)
	head, err := l.fragment("run", "run-head", h)
	if out.HTML = append(out.HTML, head); err != nil || h.Shown == l.status {
		return err
	}
	l.status = h.Shown
	tools, err := l.toolsOf(h)
	if err != nil {
		return err
	}
	html, err := l.fragment("run", "run-tools", tools)
	out.HTML = append(out.HTML, html)
	return err
}

// said returns the announcement of an entry, or "". Each is announced once.
func (l *live) said(i *item) string {
	say := func(key string, args ...any) string {
		if i.added {
			return ""
		}
		i.added = true
		return l.texts.text(l.language, key, args...)
	}
	switch {
	case i.Ask != nil && i.Ask.Open:
		return say("run.say_ask", guard.Clip(guard.Visible(i.Ask.Reason), 200))
	case i.Call != nil && i.Call.State == string(toolcrib.ResultRefused):
		return say("run.say_refused", guard.Visible(i.Call.Name))
	case i.End != nil:
		return say("status." + string(i.End.Status))
	}
	return ""
}

// sendText sends the reply in progress, if its request is still open.
func (l *live) sendText() error {
	var pieces [][2]string
	var html []string
	deltas := l.deltas
	l.deltas = nil
	for _, d := range deltas {
		if d.part == "progress" {
			if i := l.story.calls[d.id]; i != nil && i.Call.Result == nil {
				text, err := l.fragment("run", "progress", map[string]any{"ID": i.ID, "Text": d.text})
				if err != nil {
					return err
				}
				html = append(html, text)
			}
			continue
		}
		if l.story.round == nil || !l.story.round.Round.Open {
			continue
		}
		to, form, err := l.element(d)
		if err != nil {
			return err
		}
		if form != "" {
			html = append(html, form)
		}
		text := guard.Visible(d.text)
		if !l.joined[to] && d.from > 0 {
			text = "… " + text
		}
		if l.joined == nil {
			l.joined = map[string]bool{}
		}
		l.joined[to] = true
		pieces = append(pieces, [2]string{to, text})
	}
	if len(html) > 0 {
		if err := l.out.send(0, "parts", parts{HTML: html}); err != nil {
			return err
		}
	}
	if len(pieces) > 0 {
		return l.out.send(0, "text", pieces)
	}
	return nil
}

// element returns the element to which a piece is added. form is the part of a call that is new.
func (l *live) element(d delta) (to, form string, err error) {
	at := l.story.round.ID
	if d.part != "call" {
		return at + "-" + d.part, "", nil
	}
	if to = l.forms[d.id]; to != "" {
		return to + "-arguments", "", nil
	}
	if l.forms == nil {
		l.forms = map[string]string{}
	}
	to = at + "-call" + strconv.Itoa(len(l.forms))
	l.forms[d.id] = to
	form, err = l.fragment("run", "forming", map[string]any{"ID": to, "In": at + "-calls", "Name": d.name})
	return to + "-arguments", form, err
}

// seqOf reads the number of an event; "" is 0.
func seqOf(text string) (toolcrib.Seq, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	return toolcrib.Seq(n), err
}
