package agent

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// maxBroken bounds the part that is kept of arguments that could not be read, in bytes.
const maxBroken = 4 << 10

// adopt makes a reply the run's own: its text is cleaned and secrets are masked, its calls get IDs
// that are unique in the run, and their arguments are read strictly, once. The calls are returned
// whole; the parts of the reply keep only their IDs and names. The notices report names and arguments
// that were read differently from how they were written.
func (d *driver) adopt(reply *toolcrib.Reply) (calls []journal.ToolCall, notices []toolcrib.Body) {
	ids, offered := newIDs(d.s.IDs, d.r.Mask), d.s.Offering()
	d.read = nil
	n := 0
	for i := range reply.Message.Parts {
		if c := reply.Message.Parts[i].ToolCall; c != nil {
			ids.seen[c.ID] |= idAhead
			n++
		}
	}
	calls = make([]journal.ToolCall, 0, n)
	for i := range reply.Message.Parts {
		p := &reply.Message.Parts[i]
		switch {
		case p.ToolCall != nil:
			calls = append(calls, journal.ToolCall{ToolCall: *p.ToolCall})
			c := &calls[len(calls)-1].ToolCall
			ids.give(c)
			written := c.Name
			if giveName(c, offered, d.r.Mask); c.Name != written && c.ProviderName == "" {
				notices = append(notices, journal.Noticef(toolcrib.NoticeToolCallRepaired, "the name %s was read as %s",
					guard.Visible(guard.Cut(written, maxNoticeName)), c.Name))
			}
			d.readArguments(c)
			*p.ToolCall = toolcrib.ToolCall{ID: c.ID, Name: c.Name, Arguments: canonicalEmpty}
		case p.Thinking != nil:
			p.Thinking.Model = d.modelRef()
			cleanThinking(d.r.Mask, p.Thinking)
		default:
			p.Text = d.r.Mask.Clean(p.Text)
		}
	}
	if n := len(calls); n > 0 && reply.Finish.Reason == toolcrib.FinishLength {
		// The last call may be incomplete.
		calls[n-1].Cut = true
	}
	return calls, notices
}

// maxNoticeName bounds a name in a notice, in bytes.
const maxNoticeName = 128

// modelRef returns the open model as PROVIDER/MODEL, or "" if none is open.
func (d *driver) modelRef() string {
	if d.s.Start == nil || d.index < 0 || d.index >= len(d.s.Models) {
		return ""
	}
	m := &d.s.Models[d.index]
	return m.Provider + "/" + m.ID
}

// ArgumentsStrict is the [toolcrib.Agent.Arguments] of an agent whose models' arguments are not converted.
const ArgumentsStrict = "strict"

// readArguments reads the arguments of a call as the model sent them: null means no arguments, and
// values that can only mean one thing are converted.
func (d *driver) readArguments(c *toolcrib.ToolCall) {
	sent := bytes.TrimSpace(c.Arguments)
	if string(sent) == "null" {
		sent = nil
	}
	convert := !c.Malformed && d.s.Start.Agent.Arguments != ArgumentsStrict
	read := d.r.Gate.Read(scopeOf(d.s.Start), c.Name, sent, convert)
	setArguments(c, d.r.Mask, sent, read.Canonical, read.Err)
	if len(read.Converted) > 0 {
		c.Sent = cutBroken(d.r.Mask, sent)
		for _, text := range read.Converted {
			c.Converted = append(c.Converted, d.r.Mask.Mask(text))
		}
	}
	if d.read == nil {
		d.read = make(map[string]*gate.Arguments)
	}
	d.read[c.ID] = read
}

// cutBroken returns the part that is kept of arguments as the model wrote them.
func cutBroken(mask *guard.Masker, raw []byte) string {
	broken := strings.ToValidUTF8(mask.ArgumentText(string(raw)), "\uFFFD")
	return strings.ToValidUTF8(broken[:min(len(broken), maxBroken)], "")
}

// ReadArguments decodes arguments strictly into the call, once. Arguments that cannot be read are kept
// as Broken, for the refusal. A call whose arguments contain a secret keeps the mark of the secret and
// is never run.
func ReadArguments(c *toolcrib.ToolCall, mask *guard.Masker, raw []byte) {
	canonical, err := guard.Arguments(raw)
	setArguments(c, mask, raw, canonical, err)
}

func setArguments(c *toolcrib.ToolCall, mask *guard.Masker, raw []byte, canonical json.RawMessage, err error) {
	if err == nil {
		c.Arguments, c.Secret = mask.Arguments(canonical)
		return
	}
	c.Arguments = canonicalEmpty
	c.Broken = cutBroken(mask, raw)
	c.Problem = mask.ArgumentText(err.Error())
}

// giveName replaces an invalid tool name, because a provider could reject every further request with
// that name in its history. A name that contains a secret is replaced too. A name with a template's
// additions becomes that of the offered tool.
func giveName(c *toolcrib.ToolCall, offered map[string]bool, mask *guard.Masker) {
	if bare := bareName(c.Name); !offered[c.Name] && offered[bare] {
		c.Name = bare
	}
	if toolcrib.ValidToolName(c.Name) && !mask.Contains(c.Name) {
		return
	}
	const most = 128
	name := mask.Mask(strings.ToValidUTF8(c.Name, "\uFFFD"))
	c.ProviderName, c.Name = name[:min(len(name), most)], toolcrib.InvalidName
	c.ProviderName = strings.ToValidUTF8(c.ProviderName, "")
}

// bareName removes what templates add to a name: the namespace of the tools, a number, and special
// tokens that were left in.
func bareName(name string) string {
	name, _, _ = strings.Cut(strings.TrimSpace(name), "<|")
	for _, space := range [...]string{"functions.", "default_api.", "default_api:"} {
		if rest, ok := strings.CutPrefix(name, space); ok {
			if bare, number, ok := strings.Cut(rest, ":"); ok && strings.Trim(number, "0123456789") == "" {
				rest = bare
			}
			return strings.TrimSpace(rest)
		}
	}
	return strings.TrimSpace(name)
}

// callIDs assigns IDs to the calls of one reply, in order: the provider's if it is new in the run, and
// call_<n> if it is missing or was used before. An ID repeated within the turn is also replaced, and
// marked (N14). While a reply is streamed, the IDs of its later calls are unknown; the ID shown with a
// call's first delta is final unless a later call has the same ID.
type callIDs struct {
	used map[string]bool // IDs of earlier turns
	mask *guard.Masker   // an ID that contains a secret is replaced
	seen map[string]uint8
	n    int
}

// Bits that record the use of an ID in this turn.
const (
	idAhead = 1 << iota // the provider sent it in the part of the reply that is known
	idSent              // the provider sent it in a call up to this one
	idGiven             // a call has it
)

func newIDs(used map[string]bool, mask *guard.Masker) *callIDs {
	return &callIDs{used: used, mask: mask, seen: make(map[string]uint8)}
}

// maxIDBytes bounds a provider's ID; a longer one is replaced.
const maxIDBytes = 256

func (ids *callIDs) give(c *toolcrib.ToolCall) {
	own := c.ID
	if own != "" {
		c.Duplicate = ids.seen[own]&idSent != 0
		ids.seen[own] |= idSent
	}
	if own != "" && !c.Duplicate && !ids.taken(own) && len(own) <= maxIDBytes && utf8.ValidString(own) &&
		!ids.mask.Contains(own) {
		ids.seen[own] |= idGiven
		return
	}
	for {
		ids.n++
		if id := "call_" + strconv.Itoa(ids.n); !ids.taken(id) && ids.seen[id]&idAhead == 0 {
			ids.seen[id] |= idGiven
			own = ids.mask.Mask(own)
			c.ID, c.ProviderID = id, strings.ToValidUTF8(own[:min(len(own), maxIDBytes)], "\uFFFD")
			return
		}
	}
}

func (ids *callIDs) taken(id string) bool { return ids.used[id] || ids.seen[id]&idGiven != 0 }

// jitter spreads retries by up to a quarter, so that many runs do not come back
// at once.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration(rand.Int64N(int64(d)/4+1))
}

// cleanMessage returns a message of earlier runs as it is read now: cleaned, and without
// a secret that became known since. m itself is not changed.
func cleanMessage(mask *guard.Masker, m toolcrib.Message) toolcrib.Message {
	m.Parts = slices.Clone(m.Parts)
	for i := range m.Parts {
		p := &m.Parts[i]
		switch {
		case p.Thinking != nil:
			thinking := *p.Thinking
			cleanThinking(mask, &thinking)
			p.Thinking = &thinking
		case p.ToolCall != nil:
			call := *p.ToolCall
			if call.Arguments = mask.MaskJSON(call.Arguments); len(call.Arguments) == 0 || call.Arguments[0] != '{' {
				call.Arguments = canonicalEmpty
			}
			if call.ID = mask.Mask(call.ID); mask.Contains(call.Name) {
				giveName(&call, nil, mask)
			}
			call.Broken, call.Problem, call.Sent = mask.Clean(call.Broken), mask.Clean(call.Problem), ""
			p.ToolCall = &call
		case p.ToolResult != nil:
			result := *p.ToolResult
			result.CallID, result.Content = mask.Mask(result.CallID), mask.Clean(result.Content)
			if mask.Contains(result.Name) {
				result.Name = toolcrib.InvalidName
			}
			p.ToolResult = &result
		default:
			p.Text = mask.Clean(p.Text)
		}
	}
	return m
}

// cleanThinking cleans a model's thoughts. A signature is of the original text, so a block whose text
// changes is kept only for reading. The data of some APIs' signatures can be read, so it is checked too.
func cleanThinking(mask *guard.Masker, t *toolcrib.Thinking) {
	text := t.Text
	if t.Text = mask.Clean(text); t.Text != text || mask.Mask(t.Signature) != t.Signature {
		t.Signature = ""
	}
	if mask.Mask(t.Redacted) != t.Redacted {
		t.Redacted = ""
	}
}

// newCanary makes the token that marks untrusted data of one run.
func (r *Runner) newCanary() string {
	sum := sha256.Sum256([]byte(r.NewID("canary_")))
	return guard.CanaryPrefix + strings.ToUpper(hex.EncodeToString(sum[:8]))
}

// redactCanary removes the canary from a reply and its calls, and returns the notices about it.
func (d *driver) redactCanary(reply *toolcrib.Reply, calls []journal.ToolCall) []toolcrib.Body {
	canary := d.s.Canary()
	if canary == "" {
		return nil
	}
	answered, called := 0, 0
	for i := range reply.Message.Parts {
		if p := &reply.Message.Parts[i]; p.ToolCall == nil && p.Thinking == nil {
			var n int
			p.Text, n = guard.RedactCanary(p.Text, canary)
			answered += n
		}
	}
	for i := range calls {
		// Canonical JSON does not escape a token of letters and digits.
		arguments, n := guard.RedactCanary(string(calls[i].Arguments), canary)
		if n > 0 {
			calls[i].Arguments = []byte(arguments)
		}
		broken, m := guard.RedactCanary(calls[i].Broken, canary)
		calls[i].Broken = broken
		calls[i].Sent, _ = guard.RedactCanary(calls[i].Sent, canary)
		called += n + m
	}
	var bodies []toolcrib.Body
	leak := func(n int, where string) {
		if n > 0 {
			bodies = append(bodies, journal.Noticef(core.NoticeCanaryLeak,
				"the model repeated the mark of untrusted data in %s (%s); it was taken out", where,
				guard.Count(n, "time")))
		}
	}
	leak(answered, "its text")
	leak(called, "the arguments of calls")
	return bodies
}

// approvedByAll returns the decision of --approve all on an approval. It approves everything that does
// not need a person; if nothing is left, it returns nil.
func (d *driver) approvedByAll(required *journal.ConfirmationRequired) *journal.ConfirmationResolved {
	r := &journal.ConfirmationResolved{
		ApprovalID: required.ApprovalID, Digest: required.Digest, Decision: journal.DecisionApprove, By: core.ByAll,
		User: d.s.Start.Principal.User,
	}
	person := idsOf(d.s.Turn.Open(), func(c *core.Call) bool { return c.Verdict.ForAPerson() })
	if len(person) == 0 {
		return r
	}
	r.Open, r.Decision, r.Calls = true, journal.DecisionMixed, make(map[string]journal.CallDecision)
	for _, c := range required.Calls {
		if !person[c.ID] {
			r.Calls[c.ID] = journal.CallDecision{Decision: journal.DecisionApprove}
		}
	}
	if len(r.Calls) == 0 {
		return nil
	}
	return r
}
