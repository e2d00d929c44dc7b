package access

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
)

// maxMemory bounds what a [Memory] keeps of each kind.
const maxMemory = 100_000

// Memory is a [Directory], [Tokens] and [Quota] in memory: for tests, and for what
// needs no more. It is safe for concurrent use.
type Memory struct {
	now func() time.Time

	mu         sync.Mutex
	userNames  nameIndex
	groupNames nameIndex

	users     map[string]User // removed ones too
	groups    map[string]Group
	passwords map[string]string
	tokens    map[string]Issued
	revoked   map[string]Change
	counts    map[string]*count
	changes   []Change
	version   uint64
}

// NewMemory makes an empty Memory; now nil = [time.Now].
func NewMemory(now func() time.Time) *Memory {
	if now == nil {
		now = time.Now
	}
	return &Memory{
		now: now, userNames: nameIndex{}, groupNames: nameIndex{}, users: map[string]User{}, groups: map[string]Group{}, passwords: map[string]string{},
		tokens: map[string]Issued{}, revoked: map[string]Change{}, counts: map[string]*count{},
	}
}

// Changes returns the changes so far, in order; at most the last 100 000.
func (m *Memory) Changes() []Change {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.changes)
}

// kept remembers a change.
func (m *Memory) kept(kind toolcrib.Kind, name, by string, at time.Time) Change {
	c := Change{Kind: kind, Name: name, By: by, At: at}
	switch kind {
	case UserAdded, UserChanged, UserRemoved:
		u := cloneUser(m.users[name])
		c.User = &u
	case GroupPut:
		g := cloneGroup(m.groups[name])
		c.Group = &g
	case TokenIssued, TokenRevoked:
		t := m.tokens[name]
		c.Token = &t
	}
	if len(m.changes) >= maxMemory {
		m.changes = m.changes[1:]
	}
	m.changes = append(m.changes, c)
	m.version++
	return c
}

// OwnChanges counts the changes.
func (m *Memory) OwnChanges() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.version
}

// Version returns a number that rises with every change.
func (m *Memory) Version(ctx context.Context) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.version, nil
}

// begin locks, and returns the time of the change.
func (m *Memory) begin(ctx context.Context, by string) (at time.Time, unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return at, nil, err
	}
	if err := CheckBy(by); err != nil {
		return at, nil, err
	}
	m.mu.Lock()
	return m.now().UTC().Truncate(time.Microsecond), m.mu.Unlock, nil
}

// AddUser implements [Users].
func (m *Memory) AddUser(ctx context.Context, n NewUser, by string) (Change, error) {
	u, err := n.Check()
	if err != nil {
		return Change{}, err
	}
	at, unlock, err := m.begin(ctx, by)
	if err != nil {
		return Change{}, err
	}
	defer unlock()
	if len(m.users) >= maxMemory {
		return Change{}, toolcrib.Errorf(toolcrib.CodeCapacityExceeded, "there are %d users, and no room for more", maxMemory)
	}
	if name, taken := m.userNames.find(u.Name); taken {
		switch removed := m.users[name].Removed; {
		case removed && n.Reuse && name == u.Name:
		case removed:
			return Change{}, RemovedName(u.Name, name)
		default:
			return Change{}, TakenBy(u.Name, name)
		}
	}
	if err := m.known(u.Groups); err != nil {
		return Change{}, err
	}
	u.Removed = false
	u.Created, u.CreatedBy, u.Changed, u.ChangedBy = at, by, at, by
	m.users[u.Name] = cloneUser(u)
	m.userNames.add(u.Name)
	return m.kept(UserAdded, u.Name, by, at), nil
}

// RemovedName is the conflict of a name with that of a user who was removed.
func RemovedName(name, removed string) error {
	return toolcrib.Errorf(toolcrib.CodeConflict, "the name %s is, or looks like, that of %s, a user who was removed; choose another one, since runs and notes of theirs may still be kept", name, removed)
}

func (m *Memory) known(groups []string) error {
	for _, name := range groups {
		if _, ok := m.groups[name]; !ok {
			return toolcrib.Errorf(toolcrib.CodeNotFound, "there is no group %s; make it first", name)
		}
	}
	return nil
}

func (m *Memory) user(name string) (User, error) {
	u, ok := m.users[name]
	if !ok || u.Removed {
		return User{}, toolcrib.Errorf(toolcrib.CodeNotFound, "there is no user %+q", clip(name))
	}
	return cloneUser(u), nil
}

// User implements [Users].
func (m *Memory) User(ctx context.Context, name string) (User, error) {
	if err := ctx.Err(); err != nil {
		return User{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.user(name)
}

// Alike implements [Users].
func (m *Memory) Alike(ctx context.Context, name string) (User, error) {
	if err := ctx.Err(); err != nil {
		return User{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	found, ok := m.userNames.find(name)
	if !ok {
		return User{}, toolcrib.Errorf(toolcrib.CodeNotFound, "there is no user %+q", clip(name))
	}
	return cloneUser(m.users[found]), nil
}

// Users implements [Users].
func (m *Memory) Users(ctx context.Context, after string, limit int) ([]User, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []User
	for _, name := range slices.Sorted(maps.Keys(m.users)) {
		if u := m.users[name]; name > after && !u.Removed && len(out) < PageLimit(limit) {
			out = append(out, cloneUser(u))
		}
	}
	return out, nil
}

// EditUser implements [Users].
func (m *Memory) EditUser(ctx context.Context, name string, e Edit, by string) (Change, error) {
	at, unlock, err := m.begin(ctx, by)
	if err != nil {
		return Change{}, err
	}
	defer unlock()
	u, err := m.user(name)
	if err != nil {
		return Change{}, err
	}
	before := u
	if u, err = e.Apply(u); err != nil {
		return Change{}, err
	}
	if e.Groups != nil {
		if err := m.known(u.Groups); err != nil {
			return Change{}, err
		}
	}
	if err := e.CheckAgents(before, u, m.namesAgents); err != nil {
		return Change{}, err
	}
	u.Changed, u.ChangedBy = at, by
	m.users[name] = cloneUser(u)
	return m.kept(UserChanged, name, by, at), nil
}

// RemoveUser implements [Users].
func (m *Memory) RemoveUser(ctx context.Context, name, by string) (Change, error) {
	at, unlock, err := m.begin(ctx, by)
	if err != nil {
		return Change{}, err
	}
	defer unlock()
	u, err := m.user(name)
	if err != nil {
		return Change{}, err
	}
	u.Removed, u.Changed, u.ChangedBy = true, at, by
	m.users[name] = u
	delete(m.passwords, name)
	for id, t := range m.tokens {
		if t.Claims.Subject == name && t.Revoked.IsZero() {
			m.revoke(id, by, at)
		}
	}
	return m.kept(UserRemoved, name, by, at), nil
}

// PutGroup implements [Groups].
func (m *Memory) PutGroup(ctx context.Context, p NewGroup, by string) (Change, error) {
	g, err := p.Check()
	if err != nil {
		return Change{}, err
	}
	p.Group = g
	at, unlock, err := m.begin(ctx, by)
	if err != nil {
		return Change{}, err
	}
	defer unlock()
	carriers := m.carriers(g.Name)
	if err := m.mayPut(p, carriers); err != nil {
		return Change{}, err
	}
	if _, ok := m.groups[g.Name]; !ok {
		if len(m.groups) >= MaxGroups {
			return Change{}, toolcrib.Errorf(toolcrib.CodeCapacityExceeded, "there are %d groups, and no room for more", MaxGroups)
		}
		if name, taken := m.groupNames.find(g.Name); taken {
			return Change{}, TakenBy(g.Name, name)
		}
		m.groupNames.add(g.Name)
	}
	g.Changed, g.ChangedBy = at, by
	m.groups[g.Name] = cloneGroup(g)
	c := m.kept(GroupPut, g.Name, by, at)
	c.Carriers = len(carriers)
	return c, nil
}

// carriers are the users who carry the name of a group.
func (m *Memory) carriers(group string) (all []User) {
	for _, u := range m.users {
		if !u.Removed && slices.Contains(u.Groups, group) {
			all = append(all, u)
		}
	}
	return all
}

// namesAgents tells whether there is a group that names agents.
func (m *Memory) namesAgents(group string) bool {
	g, ok := m.groups[group]
	return ok && g.NamesAgents()
}

func (m *Memory) mayPut(p NewGroup, carriers []User) error {
	before, ok := m.groups[p.Name]
	if err := p.CheckAfter(before); err != nil {
		return err
	}
	switch {
	case !ok:
		return p.CheckNew(len(carriers))
	case p.FreesAgents(before):
		return p.CheckMembers(carriers, m.namesAgents)
	}
	return nil
}

// Groups implements [Groups].
func (m *Memory) Groups(ctx context.Context) ([]Group, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Group
	for _, g := range m.groups {
		out = append(out, cloneGroup(g))
	}
	slices.SortFunc(out, func(a, b Group) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// RemoveGroup implements [Groups].
func (m *Memory) RemoveGroup(ctx context.Context, name, by string) (Change, error) {
	at, unlock, err := m.begin(ctx, by)
	if err != nil {
		return Change{}, err
	}
	defer unlock()
	g, ok := m.groups[name]
	if !ok {
		return Change{}, toolcrib.Errorf(toolcrib.CodeNotFound, "there is no group %+q", clip(name))
	}
	carriers := m.carriers(name)
	if err := g.CheckRemove(len(carriers)); err != nil {
		return Change{}, err
	}
	delete(m.groups, name)
	m.groupNames.remove(name)
	c := m.kept(GroupRemoved, name, by, at)
	c.Carriers = len(carriers)
	return c, nil
}

// PasswordHash implements [Passwords].
func (m *Memory) PasswordHash(ctx context.Context, name string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.user(name); err != nil {
		return "", err
	}
	hash, ok := m.passwords[name]
	if !ok {
		return "", toolcrib.Errorf(toolcrib.CodeNotFound, "%s has no password", name)
	}
	return hash, nil
}

// SetPasswordHash implements [Passwords].
func (m *Memory) SetPasswordHash(ctx context.Context, name, hash, by string) (Change, error) {
	if hash != "" {
		if _, err := parseHash(hash); err != nil {
			return Change{}, toolcrib.Errorf(toolcrib.CodeBadRequest, "this is no hash of a password")
		}
	}
	at, unlock, err := m.begin(ctx, by)
	if err != nil {
		return Change{}, err
	}
	defer unlock()
	if _, err := m.user(name); err != nil {
		return Change{}, err
	}
	if hash == "" {
		delete(m.passwords, name)
	} else {
		m.passwords[name] = hash
	}
	return m.kept(PasswordSet, name, by, at), nil
}

// nameIndex finds the name that another one may not stand beside, by both keys.
type nameIndex map[string]string

func (x nameIndex) keys(name string) [2]string {
	k := KeysOf(name)
	return [2]string{"folded " + k.Folded, "look " + k.Look}
}

func (x nameIndex) find(name string) (existing string, taken bool) {
	for _, key := range x.keys(name) {
		if found, ok := x[key]; ok && (!taken || found == name) {
			existing, taken = found, true
		}
	}
	return existing, taken
}

func (x nameIndex) add(name string) {
	for _, key := range x.keys(name) {
		x[key] = name
	}
}

func (x nameIndex) remove(name string) {
	for _, key := range x.keys(name) {
		delete(x, key)
	}
}

func cloneUser(u User) User {
	u.Roles, u.Groups, u.Grants = slices.Clone(u.Roles), slices.Clone(u.Groups), slices.Clone(u.Grants)
	return u
}

func cloneGroup(g Group) Group {
	g.Roles, g.Grants = slices.Clone(g.Roles), slices.Clone(g.Grants)
	return g
}
