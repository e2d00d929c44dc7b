package worker

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// A slow reader gets the pieces of a reply joined into larger ones, and a report if there were too many.
func TestFollower_JoinsPieces(t *testing.T) {
	one := &Subscription{ready: make(chan struct{}, 1)}
	said := ""
	say := func(text string, after toolcrib.Seq) {
		view := journal.TextView{Text: text, From: len(said)}
		one.put(&queuedFrame{Frame: journal.Frame{Event: journal.FrameToken, Data: view}, after: after})
		said += text
	}
	for i := range 5000 {
		say("word "+strconv.Itoa(i)+" ", 3)
	}
	heard, n := "", len(one.queue)
	for _, f := range one.queue {
		heard += f.Data.(journal.TextView).Text
	}
	if one.missed != 0 || heard != said || n > maxQueued {
		t.Errorf("%d left out, %d pieces, %d of %d bytes", one.missed, n, len(heard), len(said))
	}
	delta := func(name, text string) *queuedFrame {
		view := journal.CallDeltaView{ID: "call_1", Name: name, ArgumentsDelta: text}
		return &queuedFrame{Frame: journal.Frame{Event: journal.FrameToolCallDelta, Data: view}, after: 3}
	}
	call := delta("read_file", "{")
	if !call.join(delta("", "}")) || call.Data.(journal.CallDeltaView).ArgumentsDelta != "{}" {
		t.Errorf("%+v", call)
	}
	if call.join(delta("read_file", "{")) { // a name begins another call
		t.Errorf("%+v", call)
	}
	for seq := toolcrib.Seq(4); one.missed == 0; seq++ { // frames after different events
		if say("x", seq); len(one.queue) > maxQueued {
			t.Fatal("the queue grows without end")
		}
	}
	if say("y", 3); one.missed != 2 || len(one.queue) != maxQueued {
		t.Errorf("%d left out, %d queued", one.missed, len(one.queue))
	}
	// Kept frames are then read from the store; the report counts live ones only.
	one, p := &Subscription{ready: make(chan struct{}, 1)}, &Pool{}
	for seq := range toolcrib.Seq(maxQueued + 10) {
		one.put(&queuedFrame{Frame: journal.Frame{Seq: seq + 1, Event: string(journal.KindMessage)}, after: seq + 1})
	}
	for f, ok := p.dequeue(one); ok; f, ok = p.dequeue(one) {
		if behind, _ := p.lagged(one); behind != (f.Seq == maxQueued) {
			t.Fatalf("at event %d of %d that are queued: behind %v", f.Seq, maxQueued, behind)
		}
	}
	if one.missed != 0 {
		t.Errorf("%d kept frames count as left out", one.missed)
	}
}

func TestUntilSweep(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		0: time.Second, 100 * time.Millisecond: 5 * time.Second, time.Minute: 30 * time.Second,
	} {
		if got := untilSweep(took); got != want {
			t.Errorf("after a sweep of %v: %v, want %v", took, got, want)
		}
	}
}

// onBus is a bus that keeps the last message.
type onBus struct {
	last  []byte
	hints bool // it carries no live frames
}

func (*onBus) ID() string                        { return "here" }
func (*onBus) Alone() bool                       { return false }
func (b *onBus) Send(_, _ string, body []byte)   { b.last = body }
func (*onBus) Receive(string, func(body []byte)) {}
func (b *onBus) Live() bool                      { return !b.hints }

// A bus without live frames carries that there are new events, and no content: neither pieces of replies nor questions.
func TestBus_HintsHaveNoContent(t *testing.T) {
	b := &onBus{hints: true}
	from := &Pool{bus: b, drives: map[*Drive]bool{}, runs: map[toolcrib.RunID]*Drive{}}
	s := &Subscription{ready: make(chan struct{}, 1), Attends: true}
	to := &Pool{
		bus: b, follow: map[toolcrib.RunID]map[*Subscription]bool{"run_a": {s: true}}, heard: map[toolcrib.RunID]numbered{},
	}
	to.tellFollowed("run_a")
	var m message
	if err := json.Unmarshal(b.last, &m); err != nil || m.Reader != "here" || m.Attends {
		t.Fatalf("%s, %v", b.last, err)
	}
	d := from.newDrive("run_a")
	d.readers = map[string]reader{"there": {until: time.Now().Add(time.Hour)}}
	b.last = nil
	token := queuedFrame{Frame: journal.Frame{Event: journal.FrameToken, Data: journal.TextView{Text: "secret"}}}
	if from.forward(d, &token, false, true) || from.forward(d, &token, true, true) || from.forward(d, nil, false, false) || b.last != nil {
		t.Errorf("a live frame counts as sent: %s", b.last)
	}
	for seq := range toolcrib.Seq(3) {
		kept := queuedFrame{Frame: journal.Frame{Seq: seq + 1, Event: string(journal.KindMessage), Data: "secret"}, after: seq + 1}
		if !from.forward(d, &kept, false, true) || string(b.last) != `{"run":"run_a"}` {
			t.Errorf("the hint is %s", b.last)
		}
		m = message{}
		if err := json.Unmarshal(b.last, &m); err != nil {
			t.Fatal(err)
		}
		to.hear(&m)
	}
	if len(s.queue) == 0 || !s.queue[0].remote || s.missed != 0 {
		t.Errorf("the reader has %+v, %d left out", s.queue, s.missed)
	}
}

// On a bus to which each role of the database can send, what claims to be a live frame is only a hint.
func TestBus_ForgedFrames(t *testing.T) {
	s := &Subscription{ready: make(chan struct{}, 1)}
	to := &Pool{
		bus:    &onBus{hints: true},
		follow: map[toolcrib.RunID]map[*Subscription]bool{"run_a": {s: true}}, heard: map[toolcrib.RunID]numbered{},
	}
	var m message
	if err := json.Unmarshal([]byte(`{"run":"run_a","n":1,"event":"token","data":{"text":"forged"}}`), &m); err != nil {
		t.Fatal(err)
	}
	to.hear(&m)
	if len(s.queue) != 1 || s.queue[0].Event != "" || s.queue[0].Data != nil {
		t.Errorf("queued: %+v", s.queue)
	}
}

// Pieces of an earlier drive that come late are left out, whatever the clocks of the servers.
func TestBus_DrivesInOrder(t *testing.T) {
	b := &onBus{}
	from := &Pool{bus: b, drives: map[*Drive]bool{}, runs: map[toolcrib.RunID]*Drive{}}
	s := &Subscription{ready: make(chan struct{}, 1)}
	to := &Pool{
		follow: map[toolcrib.RunID]map[*Subscription]bool{"run_a": {s: true}}, heard: map[toolcrib.RunID]numbered{},
	}
	drives := map[toolcrib.Seq]*Drive{}
	for _, after := range []toolcrib.Seq{9, 3} { // the clock of the server that takes the run over is behind
		d := from.newDrive("run_a")
		d.after, d.readers = after, map[string]reader{"there": {until: time.Now().Add(time.Hour)}}
		drives[after] = d
	}
	for i, after := range []toolcrib.Seq{3, 9, 3, 9} {
		view := journal.TextView{Text: strconv.Itoa(i)}
		from.forward(drives[after], &queuedFrame{Frame: journal.Frame{Event: journal.FrameToken, Data: view}, after: after}, false, true)
		var m message
		if err := json.Unmarshal(b.last, &m); err != nil {
			t.Fatal(err)
		}
		to.hear(&m)
	}
	said := ""
	for _, f := range s.queue {
		said += f.Data.(journal.TextView).Text
	}
	if said != "013" {
		t.Errorf("pieces %s, want 0, 1 and 3", said)
	}
}

// On a bus that doubles, loses, delays and reorders messages, no piece of a reply comes twice or after a later one, and
// each that does not come is counted, except for those after the last one.
func TestBus_DoublesAndReorders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := &onBus{}
		from := &Pool{bus: b, drives: map[*Drive]bool{}, runs: map[toolcrib.RunID]*Drive{}}
		d := from.newDrive("run_a")
		d.readers = map[string]reader{"there": {until: time.Now().Add(time.Hour)}}
		var sent []message
		for i := range rapid.IntRange(1, 40).Draw(t, "pieces") {
			view := journal.TextView{Text: strconv.Itoa(i)}
			from.forward(d, &queuedFrame{Frame: journal.Frame{Event: journal.FrameToken, Data: view}}, false, true)
			var m message
			if err := json.Unmarshal(b.last, &m); err != nil {
				t.Fatal(err)
			}
			for range rapid.IntRange(0, 3).Draw(t, "times") {
				sent = append(sent, m)
			}
		}
		for i := range sent { // each is delayed by a few others
			j := min(i+rapid.IntRange(0, 4).Draw(t, "delay"), len(sent)-1)
			sent[i], sent[j] = sent[j], sent[i]
		}
		s := &Subscription{ready: make(chan struct{}, 1)}
		to := &Pool{
			bus: b, follow: map[toolcrib.RunID]map[*Subscription]bool{"run_a": {s: true}}, heard: map[toolcrib.RunID]numbered{},
		}
		for i := range sent {
			to.hear(&sent[i])
		}
		last := -1
		for _, f := range s.queue {
			n, err := strconv.Atoi(f.Data.(journal.TextView).Text)
			if err != nil || n <= last {
				t.Fatalf("piece %d after %d, %v", n, last, err)
			}
			last = n
		}
		if len(s.queue)+s.missed != last+1 {
			t.Fatalf("%d pieces and %d that are missing, up to piece %d", len(s.queue), s.missed, last)
		}
	})
}
