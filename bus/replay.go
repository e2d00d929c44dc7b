package bus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/toolcrib/toolcrib"
)

const (
	maxReplays   = 1_000_000           // exchanges that are remembered, in each of two generations
	replayLasts  = lasts + 2*clockSkew // how long an envelope could be accepted at most
	keptLasts    = 10 * time.Minute
	maxKept      = 20_000
	maxKeptBytes = 64 << 20
	maxKeptOne   = 1 << 20
	maxJoined    = 16 // calls that wait for the end of one that was made before
)

// replays are the exchanges of envelopes that could still be accepted.
type replays struct {
	now, before generation
	since       time.Time
	forgotten   int64 // the latest expiry of those that were forgotten
}

type generation struct {
	ids     map[exchangeID]struct{}
	by      shares
	expires int64 // the latest, in milliseconds since 1970
}

// due returns the time until no envelope of the generation before could still be accepted. now is the time of this
// machine, and clock that of messages.
func (r *replays) due(now, clock time.Time) time.Duration {
	expired := time.UnixMilli(r.before.expires).Add(clockSkew)
	return min(r.since.Add(replayLasts).Sub(now), expired.Sub(clock))
}

func (r *replays) turn(now, clock time.Time) {
	if r.due(now, clock) <= 0 {
		r.forgotten = max(r.forgotten, r.before.expires)
		r.now, r.before, r.since = generation{ids: map[exchangeID]struct{}{}, by: shares{}}, r.now, now
	}
}

// shares counts what each node has of a table: places or bytes. All nodes without trust have one share together, as "".
type shares map[Key]int

// take reports false if a node would have more than its share of all: a half, or an eighth without trust.
func (s shares) take(node Key, all, count int) bool {
	most := all / 2
	if node == "" {
		most = all / 8
	}
	if s[node]+count > most {
		return false
	}
	s[node] += count
	return true
}

func (s shares) give(node Key, count int) {
	if s[node] -= count; s[node] <= 0 {
		delete(s, node)
	}
}

// remember remembers a call. It returns an error if it was received before or expires too early, by a clock that was
// set back, or if too many are remembered.
func (n *Node) remember(x *Exchange, expires int64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	r, now, clock := &n.replays, time.Now(), n.o.Now()
	r.turn(now, clock)
	_, one := r.now.ids[x.id]
	_, two := r.before.ids[x.id]
	switch {
	case one || two:
		return errReplay
	case expires <= r.forgotten:
		return toolcrib.Errorf(toolcrib.CodeExpired, "the call may have been received before the clock of this node was set back")
	case len(r.now.ids) >= maxReplays || !r.now.by.take(x.holder, maxReplays, 1):
		return tooMany(max(r.due(now, clock), retrySoon))
	}
	r.now.ids[x.id] = struct{}{}
	r.now.expires = max(r.now.expires, expires)
	return nil
}

// share counts a call of another node that is served. It returns an error if there are too many.
func (n *Node) share(x *Exchange) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.exchanges[x.id] != x { // it has ended, or is within this node
		return nil
	}
	x.shared = n.served <= maxServed && n.servedBy.take(x.holder, maxServed, 1)
	if !x.shared {
		return tooMany(retrySoon)
	}
	return nil
}

func tooMany(after time.Duration) error {
	return &toolcrib.Error{
		Code: toolcrib.CodeOverloaded, Message: "the node has too many calls; try again", RetryAfter: after,
	}
}

// keptID identifies a call that its caller may make again.
type keptID struct {
	node Key
	id   string
}

// keptCall is such a call.
type keptCall struct {
	capability Name
	holder     Key
	user       string
	hash       string        // of the body
	done       chan struct{} // closed at its end
	until      time.Time     // zero before the end
	result     json.RawMessage
	err        error
	joined     int  // calls that wait for its end
	counted    bool // for its token
}

// enter takes a place at an offer. If the call was made before, it returns that call and false. A handler that joins
// calls itself is called again; then the call is kept so that its token pays once, if there is room.
func (n *Node) enter(o *offer, x *Exchange, in *incoming) (k *keptCall, first bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := in.last()
	id := keptID{h.Node, h.ID}
	var hash string
	keep := in.Keep && !o.open() && (!o.Joins || x.Caller.Claims != nil)
	if keep {
		hash = cmp.Or(in.Hash, hashOf(in.body)) // a call within the node has no hash
		k = n.kept[id]
	}
	switch {
	case k == nil:
	case k.capability != o.Name || k.hash != hash || k.user != h.User:
		return nil, false, toolcrib.Errorf(toolcrib.CodeConflict, "another call with this ID was made before; use another ID")
	case o.Joins:
	case k.joined >= maxJoined:
		return nil, false, tooMany(retrySoon)
	default:
		k.joined++
		return k, false, nil
	}
	full := func(what string, after time.Duration) error {
		return &toolcrib.Error{
			Code: toolcrib.CodeCapacityExceeded, Message: what,
			RetryAfter: min(max(after, 100*time.Millisecond), 30*time.Second),
		}
	}
	switch {
	case o.inFlight >= o.MaxConcurrent:
		return nil, false, full(o.Name.String()+" has as many calls in flight as it serves at a time; try again", o.typical)
	case !keep || k != nil:
	case len(n.kept) < maxKept && n.keptBy.take(x.holder, maxKept, 1):
		k = &keptCall{capability: o.Name, holder: x.holder, user: h.User, hash: hash, done: make(chan struct{})}
		n.kept[id] = k
	case !o.Joins:
		return nil, false, full("the node remembers too many calls; try again", 30*time.Second)
	}
	o.inFlight++
	return k, true, nil
}

// left gives back the place at an offer, and keeps the result of a call that may be made again.
func (n *Node) left(o *offer, k *keptCall, took time.Duration, result json.RawMessage, err error, frames int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	o.inFlight--
	o.typical += (took - o.typical) / 8
	if k == nil {
		return
	}
	k.until = time.Now().Add(keptLasts)
	if o.Joins {
		return
	}
	switch k.result, k.err = result, err; {
	case err != nil:
	case frames > 0:
		k.result, k.err = nil, toolcrib.Errorf(toolcrib.CodeConflict, "the call was made before, and its stream is not kept; use another ID")
	case len(result) > maxKeptOne, n.keptBytes+len(result) > maxKeptBytes,
		!n.keptBytesBy.take(k.holder, maxKeptBytes, len(result)):
		k.result, k.err = nil, toolcrib.Errorf(toolcrib.CodeConflict, "the call was made before, and its result is not kept; use another ID")
	}
	n.keptBytes += len(k.result)
	close(k.done)
}

// expireKept forgets calls that were made long ago. It needs the lock.
func (n *Node) expireKept(now time.Time) {
	for id, k := range n.kept {
		if !k.until.IsZero() && !now.Before(k.until) {
			n.keptBytes -= len(k.result)
			n.keptBy.give(k.holder, 1)
			n.keptBytesBy.give(k.holder, len(k.result))
			delete(n.kept, id)
		}
	}
}

// join waits for the result of a call that was made before.
func (k *keptCall) join(ctx context.Context, x *Exchange, timeout time.Duration) (json.RawMessage, error) {
	defer func() {
		x.node.mu.Lock()
		defer x.node.mu.Unlock()
		k.joined--
	}()
	ctx, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	x.mu.Lock()
	x.stop = func(error) { stop() }
	over := x.ended
	x.mu.Unlock()
	if over {
		return nil, errCanceled
	}
	select {
	case <-k.done:
	case <-ctx.Done():
		return nil, stopped(ctx, k.capability)
	}
	if errors.Is(k.err, errCanceled) {
		return nil, toolcrib.Errorf(toolcrib.CodeConflict, "the call was made before, and was canceled; use another ID")
	}
	return k.result, k.err
}
