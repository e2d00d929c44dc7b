package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/journal"
)

// A client that has the conversation itself sends it again with each request. What runs have said, and what tools
// have returned in them, is known again by hashes, so that the untrusted data in it is not forgotten.

// TextHash names a text, however it is formatted (see [guard.Bare]), or a call.
type TextHash [sha256.Size]byte

// SaidKey is the key of a [TextHash] among those of one user.
type SaidKey [16]byte

// Of is the key of a text of a user.
func (h TextHash) Of(user string) SaidKey {
	sum := sha256.Sum256(append([]byte(Text(user)+"\x00"), h[:]...))
	return SaidKey(sum[:len(SaidKey{})])
}

// HashText names a text; ok is false if there is nothing in it.
func HashText(text string) (h TextHash, ok bool) {
	bare := guard.Bare(Text(text))
	return sha256.Sum256([]byte(bare)), bare != ""
}

// leastCallID is the length, in bytes, from which the ID of a call is taken to be of one call only. Shorter ones,
// such as call_1, are given again and again.
const leastCallID = 10

func hashCall(id string) (h TextHash, ok bool) {
	return sha256.Sum256([]byte("\x00call\x00" + Text(id))), len(id) >= leastCallID // no bare text has such a beginning
}

// Says names what of an event a client may send again: the texts of a reply, the result of a call and its ID,
// the answer.
func Says(body toolcrib.Body) (all []TextHash) {
	add := func(h TextHash, ok bool) {
		if ok && !slices.Contains(all, h) {
			all = append(all, h)
		}
	}
	switch b := body.(type) {
	case *journal.Message:
		m := toolcrib.Message{Parts: b.Parts}
		for _, text := range textsOf(&m) {
			add(HashText(text))
		}
	case *journal.ToolCall:
		add(hashCall(b.ID))
	case *journal.ToolResult:
		add(HashText(b.Content))
	case *journal.Paused:
		add(hashCall(b.Pending.ApprovalID))
	case *journal.Done:
		add(HashText(b.Content))
	case *journal.Error:
		add(HashText(b.Content))
	}
	return all
}

// textsOf are the texts of a message, one by one and, of several, together.
func textsOf(m *toolcrib.Message) (texts []string) {
	n := 0
	for _, p := range m.Parts {
		switch {
		case p.Thinking != nil:
			texts = append(texts, p.Thinking.Text)
		case p.Text != "":
			texts = append(texts, p.Text)
			n++
		}
	}
	if n > 1 {
		texts = append(texts, m.Text())
	}
	return texts
}

// Keeps reports whether the texts of the run are known again. A call that a tool made has its result in the run
// above it, too.
func (rec *RunRecord) Keeps() bool { return rec.Parent == "" || rec.Model != "" }

// Origins find the runs that texts come from.
type Origins interface {
	// Said reports which of these texts and calls runs of the user have said or made, and returns those runs: first
	// such as have read untrusted data, then the newest, at most MaxOrigins for each 100 texts.
	Said(ctx context.Context, user string, texts []TextHash) (known map[TextHash]bool, runs []RunRecord, err error)
}

// MaxOrigins bounds the runs that [Origins.Said] returns.
const MaxOrigins = 64

// The bounds of [Retrace].
const (
	maxRetraced = 4096 // texts and calls; what comes before the newest is unknown
	maxJoined   = 256  // lines of a reply in a text that holds several
	// leastPasted is the length of a text, in letters, that a user has hardly written by accident.
	leastPasted = 32
)

// Retraced is where the messages of a conversation come from.
type Retraced struct {
	Tainted []RunRecord // have read untrusted data, and the conversation holds texts or calls of theirs
	Unknown bool        // a reply or a result in it is of no run that is stored
}

// Tracing is what [Retrace] needs of a store.
type Tracing interface {
	Runs
	Origins
}

// Retrace finds the runs of a user that messages come from, which a client has sent. Of what the user and the
// system say only a whole message counts that is the text of a run.
func Retrace(ctx context.Context, s Tracing, user string, messages []toolcrib.Message) (Retraced, error) {
	r := retracing{s: s, user: user, known: map[TextHash]bool{}, runs: map[toolcrib.RunID]bool{}}
	for i := len(messages) - 1; i >= 0; i-- { // the newest first
		if err := r.take(ctx, &messages[i]); err != nil {
			return r.found, err
		}
	}
	if err := r.find(ctx, r.asked); err != nil {
		return r.found, err
	}
	for _, one := range r.open {
		if one.isKnown(r.known) {
			continue
		}
		if ok, err := r.joined(ctx, one.text); err != nil || !ok {
			r.found.Unknown = true
			return r.found, err
		}
	}
	return r.found, nil
}

type retracing struct {
	s     Tracing
	user  string
	found Retraced
	asked []TextHash // to be looked up
	n     int        // that were looked up
	known map[TextHash]bool
	open  []piece
	runs  map[toolcrib.RunID]bool // that were found; false = not the user's, or not stored
}

// piece is a reply or a result, which must come from a run.
type piece struct {
	text string
	by   [][]TextHash // any of which, if all in it are known, is it
}

func (p *piece) isKnown(known map[TextHash]bool) bool {
	return slices.ContainsFunc(p.by, func(all []TextHash) bool {
		return len(all) > 0 && !slices.ContainsFunc(all, func(h TextHash) bool { return !known[h] })
	})
}

// take notes what is to be looked up of a message.
func (r *retracing) take(ctx context.Context, m *toolcrib.Message) error {
	ofModel := m.Role == toolcrib.RoleAssistant || m.Role == toolcrib.RoleTool
	if len(r.asked) > maxRetraced {
		r.found.Unknown = r.found.Unknown || ofModel
		return nil
	}
	reply := piece{text: m.Text()}
	if whole, ok := HashText(reply.text); ok && (ofModel || len(guard.Bare(reply.text)) >= leastPasted) {
		r.asked, reply.by = append(r.asked, whole), [][]TextHash{{whole}, nil}
	}
	for i := range m.Parts {
		p := &m.Parts[i]
		switch {
		case p.ToolCall != nil:
			if _, err := r.call(ctx, p.ToolCall.ID); err != nil {
				return err
			}
		case p.ToolResult != nil:
			known, err := r.call(ctx, p.ToolResult.CallID)
			if err != nil {
				return err
			}
			call, _ := hashCall(p.ToolResult.CallID)
			if content, ok := HashText(p.ToolResult.Content); ok {
				r.asked = append(r.asked, content)
				if !known {
					r.open = append(r.open, piece{text: p.ToolResult.Content, by: [][]TextHash{{content}, {call}}})
				}
			}
		case len(reply.by) > 0 && p.Text != "" && len(m.Parts) > 1:
			if h, ok := HashText(p.Text); ok {
				r.asked, reply.by[1] = append(r.asked, h), append(reply.by[1], h)
			}
		}
	}
	if ofModel && len(reply.by) > 0 {
		r.open = append(r.open, reply)
	}
	return nil
}

// call notes the ID of a call. known reports whether it names a run of the user, as those do that clients of
// OpenAI's APIs are given.
func (r *retracing) call(ctx context.Context, id string) (known bool, err error) {
	if h, ok := hashCall(id); ok {
		r.asked = append(r.asked, h)
	}
	id, ok := strings.CutPrefix(id, "call_")
	end := strings.LastIndexByte(id, '_')
	if !ok || !strings.HasPrefix(id, "run_") || end < 0 {
		return false, nil
	}
	run := toolcrib.RunID(id[:end])
	if known, ok = r.runs[run]; ok {
		return known, nil
	}
	rec, err := r.s.Run(ctx, run)
	if errors.Is(err, toolcrib.ErrNotFound) || err == nil && rec.User != r.user {
		r.runs[run] = false
		return false, nil
	}
	if err == nil {
		r.add(rec)
	}
	return err == nil, err
}

func (r *retracing) add(rec RunRecord) {
	if rec.Taint != "" && !r.runs[rec.ID] {
		r.found.Tainted = append(r.found.Tainted, rec)
	}
	r.runs[rec.ID] = true
}

// find looks texts up.
func (r *retracing) find(ctx context.Context, texts []TextHash) error {
	r.n += len(texts)
	known, runs, err := r.s.Said(ctx, r.user, texts)
	for _, rec := range runs {
		r.add(rec)
	}
	maps.Copy(r.known, known)
	return err
}

// waits is what a client of OpenAI's APIs reads of a run that waits for a person.
var waits = lazyregexp.New(`(?s)(?:This waits for |Did ).*?Approval (apr_[0-9A-Za-z]+): .*?The run continues after the decision\.`)

// joined reports whether a text is what runs have said one after another, as a stream of several
// replies has it.
func (r *retracing) joined(ctx context.Context, text string) (bool, error) {
	for _, m := range waits.FindAllStringSubmatch(text, maxJoined) {
		h, _ := hashCall(m[1])
		if r.n++; r.n > 2*maxRetraced {
			return false, nil
		}
		if err := r.find(ctx, []TextHash{h}); err != nil || !r.known[h] {
			return false, err
		}
		text = strings.Replace(text, m[0], "", 1)
	}
	for lines := guard.BareLines(text); len(lines) > 0; {
		hashes, so := make([]TextHash, min(len(lines), maxJoined)), sha256.New()
		if r.n += len(hashes); r.n > 2*maxRetraced {
			return false, nil
		}
		for i := range hashes {
			_, _ = so.Write([]byte(lines[i])) // a hash never fails to write
			so.Sum(hashes[i][:0])
		}
		if err := r.find(ctx, hashes); err != nil {
			return false, err
		}
		n := len(hashes)
		for n > 0 && !r.known[hashes[n-1]] {
			n--
		}
		if n == 0 {
			return false, nil
		}
		lines = lines[n:]
	}
	return true, nil
}
