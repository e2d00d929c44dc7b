package agent

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// maxBroken is how much is kept of arguments that could not be read.
const maxBroken = 4 << 10

// adopt makes a reply the run's own: secrets masked, calls with IDs that are
// unique in the run and with arguments read strictly, once (contract §4, §11).
// The calls are returned whole; the reply's parts keep their IDs and names.
func (d *driver) adopt(reply *toolcrib.Reply) []toolcrib.ToolCall {
	var calls []toolcrib.ToolCall
	ids := newIDs(d.s.ids, reply.Message.Parts)
	ref := ""
	if d.s.Start != nil && len(d.s.Start.Models) > 0 {
		ref = d.s.Start.Models[d.index].Ref
	}
	for i := range reply.Message.Parts {
		p := &reply.Message.Parts[i]
		switch {
		case p.ToolCall != nil:
			c := *p.ToolCall
			ids.give(&c)
			giveName(&c)
			ReadArguments(&c, d.r.Mask.MaskBytes(c.Arguments))
			calls = append(calls, c)
			p.ToolCall = &toolcrib.ToolCall{ID: c.ID, Name: c.Name, Arguments: canonicalEmpty}
		case p.Thinking != nil:
			p.Thinking.Model = ref
			// A signature is over the text as it came; masked text would make it
			// worthless, so then the block is only kept to be read.
			if masked := d.r.Mask.Mask(p.Thinking.Text); masked != p.Thinking.Text {
				p.Thinking.Text, p.Thinking.Signature = masked, ""
			}
		default:
			p.Text = strings.ToValidUTF8(d.r.Mask.Mask(p.Text), "\uFFFD")
		}
	}
	if n := len(calls); n > 0 && reply.Finish.Reason == toolcrib.FinishLength {
		// Nobody can tell whether the last call is whole.
		calls[n-1].Cut = true
	}
	return calls
}

// ReadArguments decodes arguments strictly into the call, once and for all; what
// cannot be read is kept as Broken, for the refusal.
func ReadArguments(c *toolcrib.ToolCall, raw []byte) {
	canonical, err := guard.Arguments(raw)
	if err == nil {
		c.Arguments = canonical
		return
	}
	c.Arguments = canonicalEmpty
	c.Broken = string(raw)
	if len(c.Broken) > maxBroken {
		cut := maxBroken
		for cut > 0 && !utf8.RuneStart(c.Broken[cut]) {
			cut--
		}
		c.Broken = c.Broken[:cut]
	}
	c.Broken = strings.ToValidUTF8(c.Broken, "\uFFFD")
	c.Problem = err.Error()
}

// giveName replaces a name that no tool can have: sent back in the history, it
// could make a provider reject every further request.
func giveName(c *toolcrib.ToolCall) {
	if toolcrib.ValidToolName(c.Name) {
		return
	}
	const most = 128
	name := strings.ToValidUTF8(c.Name, "\uFFFD")
	c.ProviderName, c.Name = name[:min(len(name), most)], toolcrib.InvalidName
	c.ProviderName = strings.ToValidUTF8(c.ProviderName, "")
}

// callIDs gives calls their IDs: the provider's where it is new in the run;
// call_<n> for one used in an earlier turn, or for none; one repeated within the
// turn is replaced too, and marked (contract §4, N14).
type callIDs struct {
	used map[string]bool // in earlier turns
	sent map[string]bool // by the provider in this turn, so that n skips them
	turn map[string]bool // by the provider, seen so far in this turn
	made map[string]bool
	n    int
}

func newIDs(used map[string]bool, parts []toolcrib.Part) *callIDs {
	ids := &callIDs{used: used, sent: map[string]bool{}, turn: map[string]bool{}, made: map[string]bool{}}
	for i := range parts {
		if c := parts[i].ToolCall; c != nil {
			ids.sent[c.ID] = true
		}
	}
	return ids
}

// maxIDBytes bounds a provider's ID; a longer one is replaced.
const maxIDBytes = 256

func (ids *callIDs) give(c *toolcrib.ToolCall) {
	own := c.ID
	if ids.turn[own] && own != "" {
		c.Duplicate = true
	}
	ids.turn[own] = true
	if own != "" && !c.Duplicate && !ids.used[own] && !ids.made[own] && len(own) <= maxIDBytes && utf8.ValidString(own) {
		return
	}
	for {
		ids.n++
		id := "call_" + strconv.Itoa(ids.n)
		if !ids.used[id] && !ids.sent[id] && !ids.made[id] {
			ids.made[id] = true
			c.ID, c.ProviderID = id, strings.ToValidUTF8(own[:min(len(own), maxIDBytes)], "\uFFFD")
			return
		}
	}
}

// jitter spreads retries by up to a quarter, so that many runs do not come back
// at once.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration(rand.Int64N(int64(d)/4+1))
}

// panicText is what the operator reads of a panic: what, and where.
func panicText(p any) string {
	const most = 6 << 10
	stack := debug.Stack()
	if len(stack) > most {
		stack = stack[:most]
	}
	return fmt.Sprintf("panic: %v\n%s", p, stack)
}
