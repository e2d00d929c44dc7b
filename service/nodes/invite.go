package nodes

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/bus"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/service/env"
)

// InvitePrefix begins the text of an invite; the key of the node that invites and a secret follow, with a dot between
// them.
const InvitePrefix = guard.InvitePrefix

// Bounds of invites.
const (
	DefaultInvite = 24 * time.Hour
	MaxInvite     = 30 * 24 * time.Hour
	minInvite     = time.Second
	maxInvites    = 1000               // that are kept
	invitesKept   = 7 * 24 * time.Hour // after they have expired, so that whoever uses one learns why it is refused
)

// Invite is an invite for one node. Its secret is not stored, only a hash of it.
type Invite struct {
	Code    string         `json:"code,omitempty"` // only of a new one
	ID      string         `json:"id"`
	Trust   toolcrib.Trust `json:"trust"`          // of the node that uses it
	Name    string         `json:"name,omitempty"` // of that node; "" means as it calls itself
	By      string         `json:"by"`
	Created time.Time      `json:"created_at"`
	Expires time.Time      `json:"expires_at"`
	Used    time.Time      `json:"used_at,omitzero"`
	UsedBy  bus.Key        `json:"used_by,omitempty"`

	file string
}

func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// inviteOf returns the file of an invite, and its ID.
func inviteOf(secret string) (file, id string) {
	hash := hashOf("invite " + secret)
	return env.InvitesFolder + "/" + hash, "inv_" + hash[:12]
}

// InviteRequest asks for an invite.
type InviteRequest struct {
	Trust toolcrib.Trust // if "", member
	TTL   time.Duration  // if 0, [DefaultInvite]
	Name  string         // of the node that uses it; may be ""
}

// changedInvite is the payload of an entry of the audit log.
type changedInvite struct {
	ID    string         `json:"id"`
	Trust toolcrib.Trust `json:"trust"`
	By    string         `json:"by"`
}

// Invite makes an invite for one node, for administrators. Its code is only in the answer.
func (n *Nodes) Invite(ctx context.Context, who toolcrib.Principal, q InviteRequest) (v Invite, err error) {
	by, err := env.Administrator(who)
	if err != nil {
		return v, err
	}
	key, err := n.Key(ctx)
	if err != nil {
		return v, err
	}
	if q.Trust == toolcrib.TrustUnknown {
		q.Trust = toolcrib.TrustMember
	}
	if q.TTL == 0 {
		q.TTL = DefaultInvite
	}
	if q.TTL < minInvite || q.TTL > MaxInvite {
		return v, env.BadRequestf("ttl: must be %s to %d days", minInvite, int(MaxInvite.Hours()/24))
	}
	if q.Name != "" {
		r, err := n.entries(ctx)
		if err == nil {
			err = r.checkName(q.Name)
		}
		if err != nil {
			return v, err
		}
	}
	if err := n.tidyInvites(ctx); err != nil {
		return v, err
	}
	secret, now := rand.Text(), n.people.Now()
	v = Invite{Trust: q.Trust, Name: q.Name, By: by, Created: now, Expires: now.Add(q.TTL)}
	v.file, v.ID = inviteOf(secret)
	if err := n.env.Record(ctx, access.NodeInvited, changedInvite{v.ID, v.Trust, by}); err != nil {
		return v, err
	}
	err = n.env.Store.ChangeFile(ctx, v.file, func([]byte) ([]byte, error) { return json.Marshal(v) })
	v.Code = InvitePrefix + string(key) + "." + secret
	return v, err
}

// Invites returns the invites that are kept, the newest first, for administrators.
func (n *Nodes) Invites(ctx context.Context, who toolcrib.Principal) ([]Invite, error) {
	if _, err := env.Administrator(who); err != nil {
		return nil, err
	}
	return n.invites(ctx)
}

func (n *Nodes) invites(ctx context.Context) (all []Invite, err error) {
	files, err := n.env.Store.FilesIn(ctx, env.InvitesFolder)
	for name, content := range files {
		v := Invite{file: env.InvitesFolder + "/" + name}
		if err := json.Unmarshal(content, &v); err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b Invite) int {
		if c := b.Created.Compare(a.Created); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return all, err
}

// tidyInvites removes invites that have long expired, and returns an error if there are too many.
func (n *Nodes) tidyInvites(ctx context.Context) error {
	all, err := n.invites(ctx)
	left := len(all)
	for i := range all {
		if err == nil && n.people.Now().Sub(all[i].Expires) > invitesKept {
			err = n.drop(ctx, &all[i])
			left--
		}
	}
	if err == nil && left >= maxInvites {
		err = toolcrib.Errorf(toolcrib.CodeCapacityExceeded, "there are %d invites; revoke some first (bus invite --revoke ID)", left)
	}
	return err
}

func (n *Nodes) drop(ctx context.Context, v *Invite) error {
	return n.env.Store.ChangeFile(ctx, v.file, func([]byte) ([]byte, error) { return nil, nil })
}

// RevokeInvite revokes an invite, for administrators. part is its ID or the beginning of it.
func (n *Nodes) RevokeInvite(ctx context.Context, who toolcrib.Principal, part string) (v Invite, err error) {
	by, err := env.Administrator(who)
	if err != nil {
		return v, err
	}
	all, err := n.invites(ctx)
	if err != nil {
		return v, err
	}
	if v, err = env.ByPart("invite", "inv_", part, all, func(v Invite) string { return v.ID }); err != nil {
		return v, err
	}
	if err := n.env.Record(ctx, access.InviteRevoked, changedInvite{v.ID, v.Trust, by}); err != nil {
		return v, err
	}
	return v, n.drop(ctx, &v)
}

// ReadInvite reads the code of an invite. The error has the code bad_request.
func ReadInvite(code string) (key bus.Key, secret string, err error) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(code), InvitePrefix)
	text, secret, found := strings.Cut(rest, ".")
	strange := strings.ContainsFunc(secret, func(r rune) bool { return (r < 'A' || r > 'Z') && (r < '2' || r > '7') })
	if key, err = bus.ParseKey(text); !ok || !found || err != nil || len(secret) != len(rand.Text()) || strange {
		return "", "", env.BadRequestf("this is not an invite; copy it again, from %s to its last character", InvitePrefix)
	}
	return key, secret, nil
}

// JoinName is the capability by which a node uses an invite.
func JoinName() bus.Name { return bus.Name{Name: "node.join", Major: 1} }

// joinInput is the input of [JoinName], and joined its result.
type (
	joinInput struct {
		Secret string `json:"secret"`
		Name   string `json:"name"` // what the node calls itself
	}
	joined struct {
		Trust string `json:"trust"` // of the node that has joined, at the one that has invited it
		Name  string `json:"name"`  // what the node that has invited it calls itself
	}
)

// redeem registers the node that uses an invite. A node that has used it already gets the same answer again.
func (n *Nodes) redeem(ctx context.Context, key bus.Key, in joinInput) (out joined, err error) {
	now := n.people.Now()
	file, id := inviteOf(in.Secret)
	var v Invite
	again := false
	err = n.env.Store.ChangeFile(ctx, file, func(before []byte) ([]byte, error) {
		if before == nil {
			return nil, toolcrib.Errorf(toolcrib.CodeUnauthorized,
				"there is no such invite, or it was revoked; ask for a new one (toolcrib bus invite)")
		}
		v = Invite{}
		if err := json.Unmarshal(before, &v); err != nil {
			return nil, err
		}
		again = !v.Used.IsZero()
		switch {
		case again && v.UsedBy != key:
			return nil, toolcrib.Errorf(toolcrib.CodeConflict, "the invite was used already, at %s; each is for one node, "+
				"ask for another one (toolcrib bus invite)", v.Used.Format(time.RFC3339))
		case !again && !now.Before(v.Expires):
			return nil, toolcrib.Errorf(toolcrib.CodeExpired, "the invite has expired at %s; ask for a new one (toolcrib bus invite)",
				v.Expires.Format(time.RFC3339))
		case again:
			return before, nil
		}
		v.Used, v.UsedBy = now, key
		return json.Marshal(v)
	})
	if err != nil {
		return out, err
	}
	r, err := n.readRegister(ctx)
	if err != nil {
		return out, err
	}
	was, known := r.byKey[key]
	switch {
	case again && known && was.Trust == toolcrib.TrustUnknown:
		return out, toolcrib.Errorf(toolcrib.CodeRevoked, "this node was removed after it had used the invite")
	case again && known, was.Trust.Rank() >= v.Trust.Rank(): // it raises trust once, and lowers nothing
		return joined{Trust: LevelText(was.Trust), Name: n.Name()}, nil
	}
	e := Entry{Key: key, Trust: v.Trust, By: v.By, Invite: id}
	if !known && v.Name != "" && r.checkName(v.Name) == nil {
		e.Name = v.Name
	}
	if e, err = n.set(ctx, e, in.Name); err != nil {
		return out, err
	}
	return joined{Trust: LevelText(e.Trust), Name: n.Name()}, nil
}

// serveJoin implements [bus.Handler].
func (n *Nodes) serveJoin(ctx context.Context, x *bus.Exchange) (json.RawMessage, error) {
	var body struct {
		Input joinInput `json:"input"`
	}
	if err := json.Unmarshal(x.Body, &body); err != nil {
		return nil, env.BadRequestf("the body of node.join cannot be read")
	}
	if len(x.Caller.Lineage) > 1 {
		return nil, toolcrib.Errorf(toolcrib.CodeUnauthorized, "a node joins by itself, not for another one")
	}
	out, err := n.redeem(ctx, x.Caller.Node, body.Input)
	if err != nil {
		return nil, err
	}
	return json.Marshal(out)
}

// joinDescriptor describes [JoinName].
func joinDescriptor() bus.Descriptor {
	return bus.Descriptor{
		Name: JoinName(), Description: "Registers the caller, who has an invite.",
		Request: fmt.Appendf(nil, `{"type": "object", "required": ["input"], "properties": {"input": {
			"type": "object", "required": ["secret", "name"], "additionalProperties": false,
			"properties": {"secret": {"type": "string", "minLength": %[1]d, "maxLength": %[1]d},
			"name": {"type": "string", "maxLength": 256}}}}}`, len(rand.Text())),
		Response: json.RawMessage(`{"type": "object", "required": ["trust", "name"]}`),
		Timeout:  10 * time.Second, Idempotent: true, Effect: toolcrib.EffectIdempotentWrite,
	}
}

// JoinTimeout bounds how long [Instance.Join] waits for the node that has invited this one.
const JoinTimeout = 15 * time.Second

// Join uses an invite, for administrators: the node that has invited this one registers it, and this one registers that
// with a level of trust.
func (i *Instance) Join(
	ctx context.Context, who toolcrib.Principal, code string, level toolcrib.Trust,
) (e Entry, theirs string, err error) {
	by, err := env.Administrator(who)
	if err != nil {
		return e, "", err
	}
	key, secret, err := ReadInvite(code)
	if err != nil {
		return e, "", err
	}
	if key == i.Key() {
		return e, "", env.BadRequestf("this node has made the invite; use it on the other one")
	}
	if !i.Connects() {
		return e, "", env.BadRequestf("an invite needs the bus that both nodes use; set bus.url")
	}
	input, err := json.Marshal(joinInput{secret, i.nodes.Name()})
	if err != nil {
		return e, "", err
	}
	var out joined
	answer, err := i.reach(ctx, bus.Request{Name: JoinName(), Input: input, To: key, Timeout: JoinTimeout})
	if err == nil {
		err = json.Unmarshal(answer, &out)
	}
	if err != nil {
		return e, "", err
	}
	e, err = i.nodes.set(ctx, Entry{Key: key, Trust: level, By: by}, out.Name)
	return e, guard.Visible(guard.Clip(out.Trust, access.MaxName)), err
}

// reach makes a call to a node that may not have been heard of yet.
func (i *Instance) reach(ctx context.Context, r bus.Request) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, JoinTimeout, toolcrib.Errorf(toolcrib.CodeTimeout,
		"the node %s does not answer on this bus; start `toolcrib serve` there, with the same bus.url", r.To))
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !i.heard(r.To) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	answer, err := i.Call(ctx, r)
	if err != nil && ctx.Err() != nil && !errors.Is(err, context.Canceled) {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return answer, err
}
