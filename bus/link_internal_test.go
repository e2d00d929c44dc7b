package bus

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
)

func nobody(context.Context, Key) (toolcrib.Trust, error) { return "", nil }

// Two links over a network that doubles and reorders messages, within a window: what one end sends arrives in order,
// once, and neither has more waiting than the window.
func TestLink_Property(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var a, b link
		var toB, toA []message
		sent, used := 0, 0
		want := rapid.IntRange(1, 200).Draw(r, "frames")
		pick := func(in []message) (message, []message) {
			// Messages overtake each other by less than the reorder buffer holds.
			i := rapid.IntRange(0, min(len(in), 8)-1).Draw(r, "which")
			m := in[i]
			if rapid.IntRange(0, 4).Draw(r, "again") > 0 {
				in = append(append([]message(nil), in[:i]...), in[i+1:]...)
			}
			return m, in
		}
		for step := 0; used < want; step++ {
			if step > 100*want+1000 {
				r.Fatalf("it hangs: %d sent, %d used, %+v, %+v", sent, used, a, b)
			}
			switch what := rapid.IntRange(0, 3).Draw(r, "what"); {
			case what == 0 && sent < want && a.room():
				toB = append(toB, a.send(noon, kindFrame, []byte(fmt.Sprint(sent))))
				sent++
			case what == 1 && len(toB) > 0:
				var m message
				m, toB = pick(toB)
				if _, err := b.receive(noon, m); err != nil {
					r.Fatal(err)
				}
			case what == 2 && len(toA) > 0:
				var m message
				m, toA = pick(toA)
				if _, err := a.receive(noon, m); err != nil {
					r.Fatal(err)
				}
			case what == 3:
				if payload, ok := b.frame(); ok {
					if string(payload) != fmt.Sprint(used) {
						r.Fatalf("frame %d is %s", used, payload)
					}
					used++
				}
				if m, due := b.ack(noon, false); due {
					toA = append(toA, m)
				}
			}
			if len(b.frames) > window || len(b.early) > reorder {
				r.Fatalf("%d frames and %d messages wait", len(b.frames), len(b.early))
			}
		}
	})
}

// An end that does not keep to the window, or says that it has used what was not sent, is refused.
func TestLink_BrokenPeer(t *testing.T) {
	var l link
	var err error
	for i := range uint32(window + 1) {
		_, err = l.receive(noon, message{number: i, kind: kindFrame})
		if (err != nil) != (i == window) {
			t.Errorf("frame %d: %v", i, err)
		}
	}
	for what, m := range map[string]message{
		"an acknowledgement of nothing":  {kind: kindAck, payload: []byte{0, 0, 0, 1}},
		"a short acknowledgement":        {kind: kindAck, payload: []byte{0}},
		"an unknown kind":                {kind: 99},
		"no kind":                        {},
		"a long error":                   {kind: kindError, payload: make([]byte, maxErrorBytes+1)},
		"an error that is cut in parts?": {kind: kindError | more, payload: make([]byte, maxErrorBytes+1)},
	} {
		var l link
		if _, err := l.receive(noon, m); err == nil {
			t.Errorf("%s was accepted", what)
		}
	}
	var parts link
	for i := range uint32(MaxFrame/partBytes + 2) {
		_, err = parts.receive(noon, message{number: i, kind: kindFrame | more, payload: make([]byte, partBytes)})
	}
	if err == nil {
		t.Error("a frame of any length was accepted")
	}
	var cut link
	for i := range uint32(2) { // the error comes in the middle of a frame, which is longer than errors may be
		_, _ = cut.receive(noon, message{number: i, kind: kindFrame | more, payload: make([]byte, maxErrorBytes)})
	}
	all, err := cut.receive(noon, message{number: 2, kind: kindError, payload: []byte("{}")})
	if err != nil || len(all) != 1 || string(all[0].payload) != "{}" {
		t.Errorf("an error in the middle of a frame: %v, %v", all, err)
	}
}

func TestLink_LostAndSilent(t *testing.T) {
	l := link{heard: noon}
	for _, n := range []uint32{0, 2, 3} {
		if _, err := l.receive(noon, message{number: n, kind: kindFrame}); err != nil {
			t.Fatal(err)
		}
	}
	if len(l.frames) != 1 {
		t.Errorf("%d frames after a gap", len(l.frames))
	}
	if _, err := l.check(noon.Add(gapLasts), noon); err != nil {
		t.Error(err)
	}
	if _, err := l.check(noon.Add(gapLasts+1), noon); err == nil {
		t.Error("a gap lasts")
	}
	if whole, err := l.receive(noon.Add(time.Second), message{number: 1, kind: kindFrame}); err != nil || len(whole) != 3 {
		t.Errorf("%d messages, %v", len(whole), err)
	}
	if alive, err := l.check(noon.Add(silence), noon); err != nil || !alive {
		t.Errorf("%v, %v", alive, err)
	}
	if _, err := l.check(noon.Add(silence+2*time.Second), noon); err == nil {
		t.Error("silence lasts")
	}
}

// A place that fails half of its calls gets no more for a minute, then one; if that succeeds, it starts afresh.
func TestHealth_Quarantine(t *testing.T) {
	var h health
	now := noon
	for i := range 4 {
		h.record(now, i%4 == 0, time.Second)
		if h.quarantined(now) {
			t.Fatalf("quarantined after %d calls", i+1)
		}
	}
	h.record(now, false, time.Second)
	if !h.quarantined(now) || !h.quarantined(now.Add(59*time.Second)) {
		t.Error("not quarantined after 4 of 5 failed")
	}
	now = now.Add(61 * time.Second)
	if h.quarantined(now) {
		t.Error("no probe")
	}
	h.probing(now)
	if !h.quarantined(now) {
		t.Error("two probes")
	}
	h.record(now, false, time.Second)
	if !h.quarantined(now.Add(59 * time.Second)) {
		t.Error("a probe failed, and calls go there")
	}
	now = now.Add(61 * time.Second)
	h.probing(now)
	h.record(now, true, time.Second)
	h.record(now, false, time.Second)
	if h.quarantined(now) {
		t.Error("a probe succeeded, and calls do not go there")
	}
}

func TestScore(t *testing.T) {
	of := func(load float64, local bool, calls ...bool) float64 {
		var h health
		for _, ok := range calls {
			h.record(noon, ok, 100*time.Millisecond)
		}
		return h.score(load, local)
	}
	for _, tt := range []struct{ got, want float64 }{
		{(*health)(nil).score(0, false), 500},
		{of(0, true), 450},
		{of(0.5, false), 750},
		{of(0, false, true), 100},
		{of(0, false, true, false), 600},
		{of(1, true, true), 150},
		{of(0, false, false), 1500},
	} {
		if tt.got != tt.want {
			t.Errorf("%v, want %v", tt.got, tt.want)
		}
	}
}
