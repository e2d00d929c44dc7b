package journal_test

import (
	"encoding/hex"
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// The vectors were made by another program from the layout in the comment of
// ChainHash; stored chains depend on them.
func TestChainVectors(t *testing.T) {
	if got := hex.EncodeToString(journal.PayloadHash([]byte("{}"))); got != "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a" {
		t.Errorf("payload hash %s", got)
	}
	first := journal.ChainHash(nil, "run_01JA", 1, journal.KindNotice, time.UnixMicro(1767225600123456),
		journal.PayloadHash([]byte(`{"code":"a","message":"b"}`)))
	if got := hex.EncodeToString(first); got != "1bde99223b9cc6003b905a2126b0847a311af8d698db8dd9fb9b75a9c0c064d5" {
		t.Errorf("first hash %s", got)
	}
	east := time.FixedZone("east", 3600) // the zone is not part of the time
	second := journal.ChainHash(first, "run_01JA", 2, journal.KindDone, time.UnixMicro(-1).In(east), journal.PayloadHash([]byte("{}")))
	if got := hex.EncodeToString(second); got != "56828f75935c4699339855313c2c8ffbe3358b1bbaf22ab726e69c63fecf4eee" {
		t.Errorf("second hash %s", got)
	}
}

// Changing anything that the chain covers changes the hash.
func TestChainCoversAll(t *testing.T) {
	at, hash := time.UnixMicro(1), journal.PayloadHash([]byte("{}"))
	prev := journal.PayloadHash(nil)
	want := journal.ChainHash(prev, "run_a", 1, "notice", at, hash)
	for name, got := range map[string][]byte{
		"prev":    journal.ChainHash(hash, "run_a", 1, "notice", at, hash),
		"none":    journal.ChainHash(nil, "run_a", 1, "notice", at, hash),
		"run":     journal.ChainHash(prev, "run_b", 1, "notice", at, hash),
		"seq":     journal.ChainHash(prev, "run_a", 2, "notice", at, hash),
		"kind":    journal.ChainHash(prev, "run_a", 1, "done", at, hash),
		"time":    journal.ChainHash(prev, "run_a", 1, "notice", at.Add(time.Microsecond), hash),
		"payload": journal.ChainHash(prev, "run_a", 1, "notice", at, prev),
	} {
		if string(got) == string(want) {
			t.Errorf("another %s gives the same hash", name)
		}
	}
}

func TestDigestVector(t *testing.T) {
	got := journal.Digest("run_01JA", 3, toolcrib.Principal{User: "ann"}, []journal.ApprovalItem{
		{ID: "call_1", Name: "write_file", Arguments: json.RawMessage(`{"path":"ü"}`)},
	})
	if got != "56049781c46877faa8edd444005065907c9a60eda888840ccdbcb0d9a27571b3" {
		t.Errorf("digest %s", got)
	}
}

// shown is the state that a decision is bound to.
type shown struct {
	run       string
	iteration int
	user      string
	calls     [][3]string
	bound     []*[3]string // for each call: workspace, path and state of a file; nil if not bound
}

func drawShown(t *rapid.T, label string) shown {
	// A small alphabet of characters of the encoding itself, so that fields that run
	// into each other are generated soon.
	text := rapid.StringMatching(`[1:a]{0,3}`)
	s := shown{
		run: text.Draw(t, label+" run"), iteration: rapid.IntRange(0, 11).Draw(t, label+" iteration"), user: text.Draw(t, label+" user"),
	}
	for range rapid.IntRange(0, 3).Draw(t, label+" calls") {
		s.calls = append(s.calls, [3]string{text.Draw(t, "id"), text.Draw(t, "name"), text.Draw(t, "arguments")})
		var bound *[3]string
		if rapid.Bool().Draw(t, "bound") {
			bound = &[3]string{text.Draw(t, "workspace"), text.Draw(t, "file"), text.Draw(t, "state")}
		}
		s.bound = append(s.bound, bound)
	}
	return s
}

func (s shown) digest() string {
	var items []journal.ApprovalItem
	for i, c := range s.calls {
		item := journal.ApprovalItem{ID: c[0], Name: c[1], Arguments: json.RawMessage(c[2])}
		if b := s.bound[i]; b != nil {
			item.Binding = &journal.Binding{Workspace: b[0]}
			if b[1] != "" {
				item.Binding.Files = []toolcrib.FileState{{Path: b[1], State: b[2]}}
			}
		}
		items = append(items, item)
	}
	return journal.Digest(toolcrib.RunID(s.run), s.iteration, toolcrib.Principal{User: s.user}, items)
}

func (s shown) same(o shown) bool {
	if s.run != o.run || s.iteration != o.iteration || s.user != o.user || len(s.calls) != len(o.calls) {
		return false
	}
	for i := range s.calls {
		a, b := s.bound[i], o.bound[i]
		if s.calls[i] != o.calls[i] || (a == nil) != (b == nil) {
			return false
		}
		if a != nil && (a[0] != b[0] || a[1] != b[1] || a[1] != "" && a[2] != b[2]) {
			return false
		}
	}
	return true
}

// Two digests are equal if and only if the same was shown.
func TestDigestTellsApart(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a, b := drawShown(rt, "a"), drawShown(rt, "b")
		if rapid.Bool().Draw(rt, "nearly the same") {
			b = shown{run: a.run, iteration: a.iteration, user: a.user, calls: append([][3]string(nil), a.calls...), bound: a.bound}
			switch n := len(b.calls); {
			case n > 0 && rapid.Bool().Draw(rt, "shift"):
				// Move a byte across the border of two fields.
				c := &b.calls[n-1]
				if len(c[0]) > 0 {
					c[1], c[0] = c[0][len(c[0])-1:]+c[1], c[0][:len(c[0])-1]
				}
			case n > 1:
				b.calls[0], b.calls[1] = b.calls[1], b.calls[0]
			}
		}
		if same := a.digest() == b.digest(); same != a.same(b) {
			rt.Fatalf("digests of %+v and %+v: same %v", a, b, same)
		}
	})
}
