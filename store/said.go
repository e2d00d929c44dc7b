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

// Clients that keep the conversation themselves send all of it with each request. The hashes here identify replies of
// runs and results of tools in it, so that the conversation stays tainted by untrusted data that those runs have read.

// TextHash is the hash of a text without its formatting (see [guard.Bare]), or of the ID of a call.
type TextHash [sha256.Size]byte

// SaidKey is a [TextHash] hashed with the name of a user.
type SaidKey [16]byte

// Of returns the key of the hash for a user.
func (h TextHash) Of(user string) SaidKey {
	sum := sha256.Sum256(append([]byte(Text(user)+"\x00"), h[:]...))
	return SaidKey(sum[:len(SaidKey{})])
}

// HashText returns the hash of a text; ok is false if the text is empty without its formatting.
func HashText(text string) (h TextHash, ok bool) {
	bare := guard.Bare(Text(text))
	return sha256.Sum256([]byte(bare)), bare != ""
}

// leastCallID is the length in bytes of the shortest call ID that is assumed to be unique. Shorter ones, such as
// call_1, are reused.
const leastCallID = 10

func hashCall(id string) (h TextHash, ok bool) {
	return sha256.Sum256([]byte("\x00call\x00" + Text(id))), len(id) >= leastCallID // no bare text begins with NUL
}

// Says returns the hashes of the parts of an event that a client may send again: the texts of a reply, the ID and
// the result of a call, the answer.
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

// textsOf returns the texts of a message: each part, and all parts together if there are several.
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

// Keeps reports whether the hashes of the run's texts are stored. A call that a tool made of another tool needs none:
// the run above also has its result.
func (rec *RunRecord) Keeps() bool { return rec.Parent == "" || rec.Model != "" }

// Origins find the runs that texts come from.
type Origins interface {
	// Said reports which of these texts and calls come from runs of the user, and returns those runs, those that have
	// read untrusted data first, then by age, newest first, at most MaxOrigins for each 100 texts.
	Said(ctx context.Context, user string, texts []TextHash) (known map[TextHash]bool, runs []RunRecord, err error)
}

// MaxOrigins bounds the runs that [Origins.Said] returns.
const MaxOrigins = 64

// The bounds of [Retrace].
const (
	maxRetraced = 4096 // texts and calls, counted from the newest; older ones are unknown
	maxJoined   = 256  // lines of one reply in a text that joins several
	// leastPasted is the length of a text, in bytes, that a user is unlikely to write by chance.
	leastPasted = 32
)

// Retraced is the origin of the messages of a conversation.
type Retraced struct {
	Tainted []RunRecord // runs that have read untrusted data and of which the conversation has texts or calls
	Unknown bool        // whether some reply or result comes from no stored run
}

// Tracing is the part of a store that [Retrace] uses.
type Tracing interface {
	Runs
	Origins
}

// Retrace finds the runs of a user from which the messages sent by a client come. A message of the user or the
// system is traced only if all of it is the text of a run.
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
	asked []TextHash // hashes to be looked up
	n     int        // number of hashes looked up
	known map[TextHash]bool
	open  []piece
	runs  map[toolcrib.RunID]bool // false if the run is not stored or belongs to another user
}

// piece is a reply or a result. Unless a run is found that it comes from, the conversation is unknown.
type piece struct {
	text string
	by   [][]TextHash // the piece is known if all hashes of one of these lists are
}

func (p *piece) isKnown(known map[TextHash]bool) bool {
	return slices.ContainsFunc(p.by, func(all []TextHash) bool {
		return len(all) > 0 && !slices.ContainsFunc(all, func(h TextHash) bool { return !known[h] })
	})
}

// take collects the hashes of a message that are to be looked up.
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

// call collects the hash of the ID of a call. known reports whether the ID contains that of a run of the user, as the
// IDs for clients of OpenAI's APIs do.
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

func (r *retracing) find(ctx context.Context, texts []TextHash) error {
	r.n += len(texts)
	known, runs, err := r.s.Said(ctx, r.user, texts)
	for _, rec := range runs {
		r.add(rec)
	}
	maps.Copy(r.known, known)
	return err
}

// waits matches the text by which a client of OpenAI's APIs learns that a run waits for a person.
var waits = lazyregexp.New(`(?s)(?:This waits for |Did ).*?Approval (apr_[0-9A-Za-z]+): .*?The run continues after the decision\.`)

// joined reports whether a text consists of replies of runs, one after another, as in a stream of
// several replies.
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
