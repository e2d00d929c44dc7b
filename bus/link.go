package bus

import (
	"encoding/binary"
	"errors"
	"time"
)

// kind is the kind of a message of an exchange.
type kind byte

// Kinds of messages. A longer content is cut into parts: all but the last have the bit more.
const (
	kindReady    kind = iota + 1 // the caller may send the rest of the body
	kindAccepted                 // all checks have passed; the handler runs
	kindBody                     // of the caller: the rest of the body
	kindFrame
	kindDone    // the result; the last message
	kindError   // the last message
	kindAck     // number of counted messages that were used; sent if nothing else was for 3 seconds
	kindCancel  // of the caller; it does not wait for messages before it
	kindSession // of the serving node: its key for a session
	kindMost    = kindSession

	more kind = 0x80
)

// Bounds of an exchange.
const (
	MaxBody  = 16 << 20 // bytes of a request's or result's JSON
	MaxFrame = 1 << 20  // bytes of a frame

	window   = 16 // counted messages that wait for an acknowledgement
	ackEvery = 8
	reorder  = 16 + window // messages that wait for one before them: a whole window, and what is not counted

	partBytes  = 64 << 10
	aliveEvery = 3 * time.Second
	aliveFirst = time.Second // the caller hears that its call is being checked
	gapLasts   = 5 * time.Second
	silence    = 15 * time.Second
	firstWait  = 5 * time.Second // for the first message of the other end
)

// counted reports whether messages of a kind need room in the window of the receiver.
func (k kind) counted() bool {
	k &^= more
	return k == kindBody || k == kindFrame || k == kindDone
}

// limit returns the most bytes of a content.
func (k kind) limit() int {
	switch k &^ more {
	case kindBody, kindDone:
		return MaxBody
	case kindFrame:
		return MaxFrame + maxEvent + 1
	}
	return maxErrorBytes
}

// limit returns the most bytes of a content that the other end may send now.
func (l *link) limit(k kind) int {
	switch {
	case k == kindBody:
		return l.body
	case l.serving && (k != kindFrame || !l.begun):
		return 4 // of an acknowledgement
	}
	return k.limit()
}

// message is a message of an exchange after the first.
type message struct {
	number  uint32
	kind    kind
	payload []byte
}

// link orders the messages of one end of an exchange, and bounds those that wait. It has no clock and sends nothing.
type link struct {
	heard, spoke time.Time // when the last message was received and sent
	gap          time.Time // since when a message is missing; zero if none is

	next  uint32 // number of the next message to send
	sent  uint32 // counted messages that were sent
	acked uint32 // of these, used by the other end

	want    uint32             // number of the next message to receive
	early   map[uint32]message // after a missing one
	counted uint32             // counted messages that were received
	used    uint32             // of these, used by this end
	told    uint32             // the last acknowledgement

	serving bool // this end serves: the caller sends the body and frames only
	begun   bool // the caller may send frames
	body    int  // bytes of the rest of the body, which it may send

	partial []byte // content of the parts that were received
	of      kind   // its kind
	frames  []received
}

// received is a frame that waits.
type received struct {
	payload []byte
	counted uint32 // with its last message
}

var (
	errGap     = errors.New("a message was lost")
	errSilence = errors.New("the other node does not answer")
	errGone    = errors.New("the other node is no longer connected to the bus")
	errUnread  = errors.New("the caller does not read the result")
	errBroken  = errors.New("the other node breaks the protocol")
)

// room reports whether a counted message can be sent.
func (l *link) room() bool { return l.sent-l.acked < window }

// send numbers a message.
func (l *link) send(now time.Time, k kind, payload []byte) message {
	m := message{number: l.next, kind: k, payload: payload}
	l.next++
	l.spoke = now
	if k.counted() {
		l.sent++
	}
	return m
}

// ack returns an acknowledgement if one is due, or always.
func (l *link) ack(now time.Time, always bool) (m message, due bool) {
	if !always && l.used-l.told < ackEvery {
		return m, false
	}
	l.told = l.used
	return l.send(now, kindAck, binary.BigEndian.AppendUint32(nil, l.told)), true
}

// receive takes a message in any order, and returns the contents that are complete now, in order. Frames are queued.
func (l *link) receive(now time.Time, m message) (whole []message, err error) {
	l.heard = now
	ahead := m.number - l.want
	if ahead >= reorder { // a duplicate, or so far ahead that others are lost
		return nil, nil
	}
	if ahead > 0 {
		k := m.kind &^ more
		if len(m.payload) > l.limit(k) || k == kindBody && len(l.early) > 1+l.body/partBytes {
			return nil, errBroken
		}
		if l.early == nil {
			l.early = map[uint32]message{}
		}
		if l.gap.IsZero() {
			l.gap = now
		}
		l.early[m.number] = m
		return nil, nil
	}
	for more := true; more; m, more = l.early[l.want] {
		delete(l.early, l.want)
		l.want++
		w, complete, err := l.take(m)
		if err != nil {
			return whole, err
		}
		if complete {
			whole = append(whole, w)
		}
	}
	l.gap = time.Time{}
	if len(l.early) > 0 {
		l.gap = now
	}
	return whole, nil
}

// take takes the next message in order.
func (l *link) take(m message) (whole message, complete bool, err error) {
	k, held := m.kind&^more, 0
	if l.of == k {
		held = len(l.partial)
	}
	switch {
	case k == kindAck:
		if len(m.payload) != 4 {
			return whole, false, errBroken
		}
		acked := binary.BigEndian.Uint32(m.payload)
		if acked-l.acked > l.sent-l.acked {
			return whole, false, errBroken
		}
		l.acked = acked
		return whole, false, nil
	case k == 0 || k > kindMost, held+len(m.payload) > l.limit(k),
		l.of != 0 && l.of != k && k != kindDone && k != kindError:
		return whole, false, errBroken
	case !k.counted():
		return m, m.kind&more == 0, nil
	}
	if l.counted++; l.counted-l.used > window {
		return whole, false, errBroken
	}
	defer l.use()
	if m.kind&more != 0 {
		if l.of != k {
			l.partial = nil
		}
		l.partial, l.of = append(l.partial, m.payload...), k
		return whole, false, nil
	}
	if l.of == k {
		m.payload = append(l.partial, m.payload...)
	}
	l.partial, l.of = nil, 0
	if k == kindFrame {
		l.frames = append(l.frames, received{m.payload, l.counted})
	}
	return message{number: m.number, kind: k, payload: m.payload}, true, nil
}

// use counts what was received as used, unless frames wait.
func (l *link) use() {
	if len(l.frames) == 0 {
		l.used = l.counted
	}
}

// frame returns the next frame.
func (l *link) frame() (payload []byte, ok bool) {
	if len(l.frames) == 0 {
		return nil, false
	}
	f := l.frames[0]
	l.frames = l.frames[1:]
	l.used = f.counted
	l.use()
	return f.payload, true
}

// check returns an error if the other end is lost, and whether it must hear of this one.
func (l *link) check(now time.Time, started time.Time) (alive bool, err error) {
	switch {
	case l.heard.IsZero() && now.Sub(started) > firstWait, !l.heard.IsZero() && now.Sub(l.heard) > silence:
		return false, errSilence
	case !l.gap.IsZero() && now.Sub(l.gap) > gapLasts:
		return false, errGap
	}
	last, every := l.spoke, aliveEvery
	if last.IsZero() {
		if last = started; l.serving {
			every = aliveFirst
		}
	}
	return now.Sub(last) >= every, nil
}
