package nodes

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/access/standing"
	"github.com/toolcrib/toolcrib/bus"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/service/env"
)

// Entry is a node of the register.
type Entry struct {
	Key bus.Key `json:"key"`
	// Name is unique, and stays that of this node, also when it is removed: runs belong to it.
	Name   string         `json:"name"`
	Trust  toolcrib.Trust `json:"trust"` // "" if the node was removed
	Since  time.Time      `json:"since"`
	By     string         `json:"by"`
	Invite string         `json:"invite,omitempty"` // ID of the invite that it has used
}

// register is the register as it was at a time.
type register struct {
	read   time.Time // on a monotonic clock
	byKey  map[bus.Key]Entry
	byName map[string]bus.Key
}

func entryFile(key bus.Key) string { return env.NodesFolder + "/" + string(key) }

// entries returns the register, which is at most [Fresh] old.
func (n *Nodes) entries(ctx context.Context) (*register, error) {
	n.mu.Lock()
	r := n.register
	n.mu.Unlock()
	if r != nil && time.Since(r.read) < Fresh {
		return r, nil
	}
	r, err := n.readRegister(ctx)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.register = r
	return r, nil
}

func (n *Nodes) readRegister(ctx context.Context) (*register, error) {
	r := &register{read: time.Now(), byKey: map[bus.Key]Entry{}, byName: map[string]bus.Key{}}
	files, err := n.env.Store.FilesIn(ctx, env.NodesFolder)
	if err != nil {
		return nil, err
	}
	for name, content := range files {
		var e Entry
		if err := json.Unmarshal(content, &e); err != nil || name != string(e.Key) {
			return nil, fmt.Errorf("the register of nodes cannot be read: %s (%w)", name, err)
		}
		r.byKey[e.Key], r.byName[e.Name] = e, e.Key
	}
	return r, nil
}

// changed has the register read again.
func (n *Nodes) changed() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.register = nil
}

// Register returns the nodes of the register, by their names. Those that were removed are among them.
func (n *Nodes) Register(ctx context.Context) ([]Entry, error) {
	r, err := n.entries(ctx)
	if err != nil {
		return nil, err
	}
	return slices.SortedFunc(maps.Values(r.byKey), func(a, b Entry) int { return cmp.Compare(a.Name, b.Name) }), nil
}

// TrustOf returns how far a node is trusted.
func (n *Nodes) TrustOf(ctx context.Context, key bus.Key) (toolcrib.Trust, error) {
	r, err := n.entries(ctx)
	if err != nil {
		return "", err
	}
	return r.byKey[key].Trust, nil
}

// TitleOf returns the name of a node, or its key if there is no name.
func (n *Nodes) TitleOf(key bus.Key) string {
	ctx := context.Background()
	if self, err := n.Key(ctx); err == nil && self == key {
		return n.Name()
	}
	r, err := n.entries(ctx)
	if err != nil {
		return string(key)
	}
	return cmp.Or(r.byKey[key].Name, string(key))
}

// changedEntry is the payload of an entry of the audit log.
type changedEntry struct {
	Name   string  `json:"name"`
	ID     bus.Key `json:"id"`
	Trust  string  `json:"trust"`
	Was    string  `json:"was"`
	By     string  `json:"by"`
	Invite string  `json:"invite,omitempty"`
}

// SetTrust sets how far a node is trusted, for administrators. If the level is unknown, the node is removed: its calls
// in flight end, and tokens for it are revoked. name is what the node is called here, once and for all; it may be "".
func (n *Nodes) SetTrust(
	ctx context.Context, who toolcrib.Principal, key bus.Key, level toolcrib.Trust, name string,
) (Entry, error) {
	by, err := env.Administrator(who)
	if err != nil {
		return Entry{}, err
	}
	e, err := n.set(ctx, Entry{Key: key, Trust: level, Name: name, By: by}, "")
	if err == nil && level == toolcrib.TrustUnknown {
		err = n.revokeFor(ctx, who, key)
	}
	return e, err
}

// set stores an entry. announced is what the node calls itself; it is used if there is no better name.
func (n *Nodes) set(ctx context.Context, e Entry, announced string) (Entry, error) {
	self, err := n.Key(ctx)
	if err != nil {
		return e, err
	}
	if self == e.Key {
		return e, env.BadRequestf("this is the key of this node; give that of the other one")
	}
	r, err := n.readRegister(ctx)
	if err != nil {
		return e, err
	}
	was, known := r.byKey[e.Key]
	switch {
	case !known && e.Trust == toolcrib.TrustUnknown:
		return e, toolcrib.Errorf(toolcrib.CodeNotFound, "the register has no node %s", e.Key)
	case known && e.Name != "" && e.Name != was.Name:
		return e, toolcrib.Errorf(toolcrib.CodeConflict, "the node is called %s here, and keeps the name: its runs belong to it",
			was.Name)
	case known:
		e.Name = was.Name
	case e.Name != "":
		if err := r.checkName(e.Name); err != nil {
			return e, err
		}
	default:
		e.Name = r.freeName(announced, e.Key)
	}
	e.Since, e.Invite = n.people.Now(), cmp.Or(e.Invite, was.Invite)
	if err := n.env.CheckSecrets(e.Name); err != nil {
		return e, err
	}
	err = n.env.Record(ctx, access.NodeTrusted, changedEntry{
		e.Name, e.Key, LevelText(e.Trust), LevelText(was.Trust), e.By, e.Invite,
	})
	if err != nil {
		return e, err
	}
	err = n.env.Store.ChangeFile(ctx, entryFile(e.Key), func([]byte) ([]byte, error) {
		now, err := n.readRegister(ctx)
		if err != nil {
			return nil, err
		}
		if other, taken := now.byName[e.Name]; taken && other != e.Key {
			return nil, toolcrib.Errorf(toolcrib.CodeConflict, "another node was called %s meanwhile; try again", e.Name)
		}
		if before := now.byKey[e.Key]; before.Trust != was.Trust || !before.Since.Equal(was.Since) {
			return nil, toolcrib.Errorf(toolcrib.CodeConflict, "the trust in %s was changed meanwhile; try again", e.Name)
		}
		return json.Marshal(e)
	})
	n.changed()
	return e, err
}

func (r *register) checkName(name string) error {
	if err := access.CheckName(name); err != nil {
		return err
	}
	for other := range r.byName {
		if err := access.TakenBy(name, other); err != nil {
			return err
		}
	}
	return nil
}

// freeName returns a name for a node that calls itself announced, which may be anything.
func (r *register) freeName(announced string, key bus.Key) string {
	clean := func(text string) string {
		text = strings.Map(func(r rune) rune {
			if r < 'a' || r > 'z' {
				if r < '0' || r > '9' {
					return '-'
				}
			}
			return r
		}, strings.ToLower(guard.Clip(text, 40)))
		return strings.Trim(text, "-")
	}
	base := clean(announced)
	if base == "" || access.CheckName(base) != nil {
		base = "node"
	}
	// Its key tells it from others that call themselves the same.
	end := clean(string(key[:6]))
	for _, name := range []string{base, base + "-" + end, "node-" + end} {
		if r.checkName(name) == nil {
			return name
		}
	}
	for i := 2; ; i++ {
		if name := fmt.Sprintf("node-%s-%d", end, i); r.checkName(name) == nil {
			return name
		}
	}
}

// userOf returns the user that a call acts for: node:NAME, or node:~KEY if the register does not know the node. A user
// of the node follows after a colon. Only the node that has signed the call counts: it may name any user, of any node.
func (r *register) userOf(c *bus.Caller) string {
	name := "~" + string(c.Node)
	if e, known := r.byKey[c.Node]; known {
		name = e.Name
	}
	user := c.User
	if len(c.Lineage) > 1 && c.Lineage[0].Node != c.Node { // of another node, as this one says
		user += "@" + string(c.Lineage[0].Node)
	}
	if name = standing.NodePrefix + name; user == "" {
		return name
	}
	return name + ":" + userText(user)
}

// userText returns a name for a user of another node that consists of characters of a file name, and is
// that of no other user.
func userText(user string) string {
	const most = 128
	text := url.PathEscape(user)
	if len(text) <= most && !strings.HasPrefix(text, "~") {
		return text
	}
	return "~" + hashOf(user)
}

// mayAct implements [standing.Options.Node].
func (n *Nodes) mayAct(ctx context.Context, who toolcrib.Principal) (now toolcrib.Trust, refused string, err error) {
	name, _, _ := strings.Cut(strings.TrimPrefix(who.User, standing.NodePrefix), ":")
	r, err := n.entries(ctx)
	if err != nil {
		return "", "", err
	}
	now = r.byKey[r.byName[name]].Trust
	if who.Token != "" { // which is checked
		now = cmp.Or(now, toolcrib.TrustMember)
	}
	if now == toolcrib.TrustUnknown {
		return "", fmt.Sprintf("the node %s is not trusted", guard.Visible(guard.Clip(name, access.MaxName))), nil
	}
	if who.Trust.Rank() < now.Rank() {
		now = who.Trust
	}
	return now, "", nil
}
