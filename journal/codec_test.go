package journal_test

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
)

// kinds returns all kinds in the source, so that none is forgotten.
func kinds(t *testing.T) []toolcrib.Kind {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "body.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var list []toolcrib.Kind
	ast.Inspect(file, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(v.Names[0].Name, "Kind") {
			return true
		}
		text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, toolcrib.Kind(text))
		return false
	})
	if len(list) < 27 {
		t.Fatalf("kinds %v: there must be more", list)
	}
	return list
}

// The sample bodies have every kind once, with every field set, so that the tests
// over them are complete.
func TestBodiesAreWhole(t *testing.T) {
	have := make(map[toolcrib.Kind]int)
	for _, b := range journaltest.Bodies() {
		have[b.EventKind()]++
		v := reflect.ValueOf(b).Elem()
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if nullable := name == "RunTools" || name == "SkillTools"; v.Field(i).IsZero() && !nullable {
				t.Errorf("%s: %s is not set", b.EventKind(), name)
			}
		}
	}
	for _, k := range kinds(t) {
		if have[k] != 1 {
			t.Errorf("%d bodies of %s", have[k], k)
		}
	}
	if len(have) != len(kinds(t)) {
		t.Errorf("%d kinds, want %d", len(have), len(kinds(t)))
	}
}

func TestRoundTrip(t *testing.T) {
	for _, want := range journaltest.Bodies() {
		payload, err := journal.Encode(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := journal.Decode(want.EventKind(), payload)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-encoded +decoded)\n%s", want.EventKind(), diff)
		}
		for _, escaped := range []string{`\u003c`, `\u003e`, `\u0026`, "\n"} {
			if strings.Contains(string(payload), escaped) {
				t.Errorf("%s is stored with %q: %s", want.EventKind(), escaped, payload)
			}
		}
	}
}

// The zero value of every kind is unchanged after encoding and decoding.
func TestRoundTripZero(t *testing.T) {
	for _, k := range kinds(t) {
		zero, err := journal.Decode(k, []byte("{}"))
		if err != nil {
			t.Fatal(err)
		}
		payload, err := journal.Encode(zero)
		if err != nil {
			t.Fatal(err)
		}
		again, err := journal.Decode(k, payload)
		if err != nil || again.EventKind() != k {
			t.Errorf("%s: read as %v, error %v", k, again, err)
		}
	}
}

type strange struct{}

func (strange) EventKind() toolcrib.Kind { return "dreamt" }

func TestUnknownKind(t *testing.T) {
	_, decoded := journal.Decode("dreamt", []byte("{}"))
	_, encoded := journal.Encode(strange{})
	for _, err := range []error{decoded, encoded} {
		var unknown *journal.UnknownKindError
		if !errors.As(err, &unknown) || unknown.Kind != "dreamt" || !strings.Contains(err.Error(), "later version") {
			t.Errorf("error %v, want an UnknownKindError", err)
		}
	}
}

func TestDecodeBad(t *testing.T) {
	for _, payload := range []string{"", "{", "[]", `"x"`, `{"code":1}`, "{}{}"} {
		if b, err := journal.Decode(journal.KindNotice, []byte(payload)); err == nil {
			t.Errorf("%q is read as %+v", payload, b)
		} else if !strings.Contains(err.Error(), "notice") {
			t.Errorf("the error does not name the kind: %v", err)
		}
	}
}

func TestDecodePassesOverNewFields(t *testing.T) {
	got, err := journal.Decode(journal.KindNotice, []byte(`{"code":"a","later":{"b":[1]}}`))
	want := &journal.Notice{Notice: toolcrib.Notice{Code: "a"}}
	if diff := cmp.Diff(toolcrib.Body(want), got); diff != "" || err != nil {
		t.Errorf("error %v\n%s", err, diff)
	}
}

// Bodies that must survive a power failure before the run continues. [journal.ChildStarted]
// need not.
func TestBarrier(t *testing.T) {
	want := map[toolcrib.Kind]bool{
		journal.KindConfirmationRequired: true, journal.KindConfirmationResolved: true, journal.KindPaused: true,
		journal.KindGranted: true, journal.KindSaid: true, journal.KindResumed: true, journal.KindModelChosen: true,
		journal.KindDone: true, journal.KindError: true, journal.KindToolStarted: true, // of a write, as in the sample
		journal.KindToolResult: true, // from a client
	}
	for _, b := range journaltest.Bodies() {
		if got := journal.Barrier(b); got != want[b.EventKind()] {
			t.Errorf("%s: barrier %v, want %v", b.EventKind(), got, want[b.EventKind()])
		}
	}
	if journal.Barrier(&journal.ToolResult{Name: "read_file"}) {
		t.Error("a result of a tool is a barrier")
	}
	if journal.Barrier(&journal.ToolStarted{Name: "read_file"}) {
		t.Error("the start of a read is a barrier")
	}
}

// line is an event of a stored journal.
type line struct {
	Run     toolcrib.RunID  `json:"run"` // "" = the file is of one run
	Seq     toolcrib.Seq    `json:"seq"`
	Time    int64           `json:"time"` // Unix microseconds
	Kind    toolcrib.Kind   `json:"kind"`
	Payload json.RawMessage `json:"payload"`
	Hash    string          `json:"hash"`
}

// kept reads a file of lines, and returns the events of each run in it. Each stored
// field must still be known under its name with its value, and the hash chains
// must still be valid.
func kept(t *testing.T, name string, run toolcrib.RunID) map[toolcrib.RunID][]toolcrib.Event {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // read only
	prev := make(map[toolcrib.RunID][]byte)
	events := make(map[toolcrib.RunID][]toolcrib.Event)
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		l := line{Run: run}
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		at := time.UnixMicro(l.Time).UTC()
		hash := journal.ChainHash(prev[l.Run], l.Run, l.Seq, l.Kind, at, journal.PayloadHash(l.Payload))
		if got := hex.EncodeToString(hash); got != l.Hash {
			t.Fatalf("%s, event %d: hash %s, want %s", l.Run, l.Seq, got, l.Hash)
		}
		body, err := journal.Decode(l.Kind, l.Payload)
		if err != nil {
			t.Fatal(err)
		}
		again, err := journal.Encode(body)
		if err != nil {
			t.Fatal(err)
		}
		for _, lost := range missing("", generic(t, l.Payload), generic(t, again)) {
			t.Errorf("%s, event %d (%s): %s is lost", l.Run, l.Seq, l.Kind, lost)
		}
		prev[l.Run] = hash
		events[l.Run] = append(events[l.Run], toolcrib.Event{Seq: l.Seq, Time: at, Body: body, Hash: hash})
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return events
}

// A journal in the first format must be readable forever: never write the file
// again.
func TestOldJournal(t *testing.T) {
	const run = "run_01K0FORMAT1000000000000000"
	seen := make(map[toolcrib.Kind]bool)
	for _, e := range kept(t, "testdata/format1.ndjson", run)[run] {
		seen[e.Body.EventKind()] = true
	}
	if len(seen) != 19 {
		t.Errorf("the old journal has %d kinds, it had 19", len(seen))
	}
}

// The journals of a run and of the run that answers one of its calls, which has to
// ask a person: never write the file again. They must be consistent.
func TestChildJournal(t *testing.T) {
	const parent, child = "run_01K0PARENT1000000000000000", "run_01K0CH1D01000000000000000A"
	runs := kept(t, "testdata/child.ndjson", "")
	if len(runs) != 2 || len(runs[parent]) != 20 || len(runs[child]) != 18 {
		t.Fatalf("%d runs with %d and %d events", len(runs), len(runs[parent]), len(runs[child]))
	}
	start, ok := runs[child][0].Body.(*journal.RunStarted)
	if !ok || start.Parent != parent || start.Depth != 1 || start.Above == nil || start.Share == nil {
		t.Fatalf("the child begins with %+v", runs[child][0].Body)
	}
	var told []toolcrib.Kind
	for _, e := range runs[parent] {
		switch b := e.Body.(type) {
		case *journal.ChildStarted:
			told = append(told, journal.KindChildStarted)
			if b.Run != child || b.Agent != start.Agent.Name || *b.Share != *start.Share || !e.Time.Before(runs[child][0].Time) {
				t.Errorf("started: %+v at %s; the child begins at %s", b, e.Time, runs[child][0].Time)
			}
		case *journal.ChildParked:
			told = append(told, journal.KindChildParked)
			if b.Run != child || b.Pending.Run != child || b.Pending.ApprovalID == "" {
				t.Errorf("parked: %+v", b)
			}
		case *journal.ChildResumed:
			told = append(told, journal.KindChildResumed)
		case *journal.ChildEnded:
			told = append(told, journal.KindChildEnded)
			if done, ok := runs[child][17].Body.(*journal.Done); !ok || b.Usage != done.Usage || b.Status != done.Status {
				t.Errorf("ended: %+v, and the child with %+v", b, runs[child][17].Body)
			}
		}
	}
	if want := []toolcrib.Kind{journal.KindChildStarted, journal.KindChildParked, journal.KindChildResumed, journal.KindChildEnded}; !slices.Equal(told, want) {
		t.Errorf("the parent tells %v, want %v", told, want)
	}
}

func generic(t *testing.T, raw []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// missing lists the values of old that are not in now.
func missing(at string, old, now any) []string {
	switch o := old.(type) {
	case map[string]any:
		n, ok := now.(map[string]any)
		if !ok {
			return []string{at}
		}
		var lost []string
		for k, v := range o {
			lost = append(lost, missing(at+"."+k, v, n[k])...)
		}
		return lost
	case []any:
		n, ok := now.([]any)
		if !ok || len(n) != len(o) {
			return []string{at}
		}
		var lost []string
		for i := range o {
			lost = append(lost, missing(fmt.Sprintf("%s[%d]", at, i), o[i], n[i])...)
		}
		return lost
	}
	if old != now {
		return []string{at}
	}
	return nil
}

// A journal cannot act on a file or terminal, and is unchanged when read back.
func TestEncodeEscapesWhatActs(t *testing.T) {
	const text = "a\x7f\u0080\u009b2J\u061c\u200e\u202e\u2066 é日😀"
	b := &journal.Message{Request: 1, Parts: []toolcrib.Part{{Text: text}}}
	raw, err := journal.Encode(b)
	if err != nil || !bytes.Contains(raw, []byte(`"a\u007f\u0080\u009b2J\u061c\u200e\u202e\u2066 é日😀"`)) {
		t.Fatalf("%s, %v", raw, err)
	}
	again, err := journal.Decode(journal.KindMessage, raw)
	if err != nil || again.(*journal.Message).Parts[0].Text != text {
		t.Errorf("read as %+v, %v", again, err)
	}
	// After existing data in a buffer.
	buffer := bytes.NewBufferString("kept\x7f")
	if err := journal.EncodeTo(buffer, b); err != nil || buffer.String() != "kept\x7f"+string(raw) {
		t.Errorf("%q, %v", buffer, err)
	}
}
