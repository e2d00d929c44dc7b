package worker

import (
	"encoding/json"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/journal"
)

// Bus carries hints between the servers of one store. It may lose, double, delay and reorder them, and sends them to no
// others. Its methods do not block.
type Bus interface {
	// ID identifies this server.
	ID() string
	// Alone reports whether there is no other server now, as far as it is known.
	Alone() bool
	// Live reports whether it carries live frames. Otherwise it carries only hints that contain no content.
	Live() bool
	// Send sends a message of a kind to all other servers, or to the one with the ID to.
	Send(kind, to string, body []byte)
	// Receive calls do for the messages of a kind to all, or to this server, one after another.
	Receive(kind string, do func(body []byte))
}

// Kinds of messages.
const (
	// wakeMessage says that a run is to be looked at again when its drive is over, or that something has happened to a
	// child run, for the server that has its parent. If it is lost, the sweep, or the next look at the lease, finds the
	// run; if it comes twice, the second look finds nothing to do.
	wakeMessage = "wake"
	// followMessage says that a run has readers on a server. It is sent again while it has, and applies for a short
	// time; if one is lost, they have the events of the store.
	followMessage = "follow"
	// liveMessage is a live frame of a run, or says that it has new events, which come from the store. Each has a
	// number, by which those that come late or twice are left out, and those that are lost are counted. If the bus
	// carries no live frames, it has no number.
	liveMessage = "live"
)

const (
	followEvery = time.Second
	followLasts = 4 * followEvery
	// maxReaders bounds the servers that have readers of a run.
	maxReaders = 100
)

// message is the body of a message.
type message struct {
	Run     toolcrib.RunID  `json:"run"`
	Reader  string          `json:"reader,omitempty"`
	Attends bool            `json:"attends,omitempty"`
	Ready   bool            `json:"ready,omitempty"` // the sender does not continue the run
	Drive   toolcrib.Seq    `json:"drive,omitempty"` // last event before the drive: a later one has a larger number
	N       uint64          `json:"n,omitempty"`
	After   toolcrib.Seq    `json:"after,omitempty"`
	Event   string          `json:"event,omitempty"`
	From    int             `json:"from,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// reader is another server with readers of a run that is driven here.
type reader struct {
	until   time.Time
	attends bool
}

// numbered is the last message of a drive that was received.
type numbered struct {
	drive toolcrib.Seq
	n     uint64
}

// TellReady tells the servers on a bus that a run can continue. The caller drives no runs.
func TellReady(bus Bus, run toolcrib.RunID) {
	body, _ := json.Marshal(message{Run: run, Ready: true}) // cannot fail
	bus.Send(wakeMessage, "", body)
}

// runID matches the ID of a run in a message.
var runID = lazyregexp.New(`^run_[0-9A-Za-z_]{1,64}$`)

// listen receives the messages of the other servers.
func (p *Pool) listen() {
	receive := func(kind string, do func(*message)) {
		p.bus.Receive(kind, func(body []byte) {
			var m message
			if json.Unmarshal(body, &m) == nil && runID.MatchString(string(m.Run)) {
				p.mu.Lock()
				do(&m)
				p.mu.Unlock()
				if m.Ready { // one of the servers gets its lease
					p.put(m.Run)
				}
			}
		})
	}
	receive(wakeMessage, func(m *message) {
		p.soon(m.Run)
		p.tellChild(m.Run)
		if d := p.runs[m.Run]; d != nil && d.taken() {
			d.again = true
		}
	})
	receive(followMessage, func(m *message) {
		d := p.runs[m.Run]
		if _, known := d.readerOf(m.Reader); d != nil && (known || len(d.readers) < maxReaders) {
			if d.readers == nil {
				d.readers = map[string]reader{}
			}
			d.readers[m.Reader] = reader{time.Now().Add(followLasts), m.Attends}
		}
	})
	receive(liveMessage, p.hear)
	p.running.Go(func() {
		for Pause(p.ctx, followEvery) == nil {
			p.mu.Lock()
			for run := range p.follow {
				p.tellFollowed(run)
			}
			p.mu.Unlock()
		}
	})
}

// readerOf returns another server with readers of the run. The pool is locked.
func (d *Drive) readerOf(id string) (reader, bool) {
	if d == nil {
		return reader{}, false
	}
	r, ok := d.readers[id]
	return r, ok
}

// tellFollowed tells the server that drives a run that it has readers here. The pool is locked.
func (p *Pool) tellFollowed(run toolcrib.RunID) {
	if p.bus == nil || p.runs[run] != nil || len(p.follow[run]) == 0 {
		return
	}
	m := message{Run: run, Reader: p.bus.ID()}
	for s := range p.follow[run] {
		m.Attends = m.Attends || s.Attends && p.bus.Live()
	}
	p.tell(followMessage, "", &m)
}

// tell sends a message.
func (p *Pool) tell(kind, to string, m *message) {
	if p.bus == nil {
		return
	}
	if body, err := json.Marshal(m); err == nil {
		p.bus.Send(kind, to, body)
	}
}

// forward sends a frame of a drive to the servers that have readers of its run, or only to those with attended ones,
// and reports whether there are some. The pool is locked.
func (p *Pool) forward(d *Drive, f *queuedFrame, attended, do bool) (some bool) {
	hints := p.bus != nil && !p.bus.Live()
	if hints && (f == nil || f.Seq == 0 && f.Event != "") {
		return false
	}
	var m *message
	for id, r := range d.readers {
		switch {
		case time.Now().After(r.until):
			delete(d.readers, id)
			continue
		case attended && !r.attends:
			continue
		}
		if some = true; !do {
			continue
		}
		switch {
		case m != nil:
		case hints:
			m = &message{Run: d.run}
		default:
			d.forwarded++
			m = &message{
				Run: d.run, Drive: d.after, N: d.forwarded, After: f.after, Attends: attended,
			}
			if f.Seq == 0 && f.Event != "" {
				m.Event = f.Event
				if text, ok := f.Data.(journal.TextView); ok {
					m.From = text.From
				}
				m.Data, _ = json.Marshal(f.Data) // it is sent to clients in the same form
			}
		}
		p.tell(liveMessage, id, m)
	}
	return some
}

// hear passes a live frame from the server that drives a run on to its readers here. The pool is locked.
func (p *Pool) hear(m *message) {
	last := p.heard[m.Run]
	readers := p.follow[m.Run]
	switch {
	case len(readers) == 0 || p.runs[m.Run] != nil:
		return
	case m.N == 0 || p.bus != nil && !p.bus.Live(): // a hint; on such a bus, anybody can send more than that
		for s := range readers {
			s.put(&queuedFrame{remote: true})
		}
		return
	case m.Drive < last.drive || m.Drive == last.drive && m.N <= last.n:
		return
	}
	missed := 0
	if m.Drive == last.drive {
		missed = int(m.N - last.n - 1)
	}
	p.heard[m.Run] = numbered{m.Drive, m.N}
	f := queuedFrame{after: m.After, remote: true} // the rest of the store is to be read
	if m.Event != "" {
		if f.Event, f.Data = m.Event, m.view(); f.Data == nil {
			return
		}
	}
	for s := range readers {
		s.missed += missed
		if !m.Attends || s.Attends {
			s.put(&f)
		}
	}
}

// view returns the data of a live frame, or nil if it is none that this version knows.
func (m *message) view() any {
	var view any
	switch m.Event {
	case journal.FrameToken, journal.FrameThinking:
		view = &journal.TextView{}
	case journal.FrameToolCallDelta:
		view = &journal.CallDeltaView{}
	case journal.FrameToolProgress:
		view = &journal.ProgressView{}
	case string(journal.KindConfirmationRequired):
		view = &journal.ConfirmationView{}
	}
	if view == nil || json.Unmarshal(m.Data, view) != nil {
		return nil
	}
	switch v := view.(type) {
	case *journal.TextView:
		v.From = m.From
		return *v
	case *journal.CallDeltaView:
		return *v
	case *journal.ProgressView:
		return *v
	case *journal.ConfirmationView:
		return *v
	}
	return nil
}
