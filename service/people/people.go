package people

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/access/standing"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/tool/directory"
)

// UnknownTrust is what [User.Trust] calls [toolcrib.TrustUnknown].
const UnknownTrust = "unknown"

// User is a user as front ends show it: always with all keys, so that one that is missing
// never has to be read as a value.
type User struct {
	Name      string   `json:"name"`
	Display   string   `json:"display"`
	Email     string   `json:"email"`
	Admin     bool     `json:"admin"`
	Disabled  bool     `json:"disabled"`
	Removed   bool     `json:"removed"`
	Trust     string   `json:"trust"` // unknown | member | trusted | anchor
	Roles     []string `json:"roles"`
	Groups    []string `json:"groups"`
	Grants    []string `json:"grants"`           // null = declares none
	Effective []string `json:"effective_grants"` // with those of the groups; null = no restriction
	// Identity is who the user is at the provider by which people sign in.
	Identity  *access.Identity `json:"identity,omitempty"`
	Created   time.Time        `json:"created_at"`
	CreatedBy string           `json:"created_by"`
	Changed   time.Time        `json:"changed_at"`
	ChangedBy string           `json:"changed_by"`
}

// Group is a group as front ends show it, with all keys.
type Group struct {
	Name        string    `json:"name"`
	Description string    `json:"description"`
	Disabled    bool      `json:"disabled"`
	Roles       []string  `json:"roles"`
	Grants      []string  `json:"grants"` // null = declares none
	Members     int       `json:"members"`
	Changed     time.Time `json:"changed_at"`
	ChangedBy   string    `json:"changed_by"`
}

// userOf is a user as it is shown.
func (s *People) userOf(ctx context.Context, u access.User) (User, error) {
	groups, err := s.env.Store.Access().Groups(ctx)
	if err != nil {
		return User{}, err
	}
	return userIn(groups, u), nil
}

func userIn(groups []access.Group, u access.User) User {
	return User{
		Name: u.Name, Display: u.Display, Email: u.Email, Admin: u.Admin, Disabled: u.Disabled, Removed: u.Removed,
		Trust: cmp.Or(string(u.Trust), UnknownTrust), Roles: append([]string{}, u.Roles...),
		Groups: append([]string{}, u.Groups...), Grants: u.Grants, Effective: access.EffectiveGrants(u, groups),
		Identity: u.Identity, Created: u.Created, CreatedBy: u.CreatedBy, Changed: u.Changed, ChangedBy: u.ChangedBy,
	}
}

func groupOf(g access.Group, members int) Group {
	return Group{
		Name: g.Name, Description: g.Description, Disabled: g.Disabled, Roles: append([]string{}, g.Roles...),
		Grants: g.Grants, Members: members, Changed: g.Changed, ChangedBy: g.ChangedBy,
	}
}

// eachUser yields all users who were not removed, by their names.
func (s *People) EachUser(ctx context.Context) iter.Seq2[access.User, error] {
	return env.Paged(func(after string) (page []access.User, next string, err error) {
		page, err = s.env.Store.Access().Users(ctx, after, access.MaxPage)
		if len(page) == access.MaxPage {
			next = page[len(page)-1].Name
		}
		return page, next, err
	})
}

// Users returns the users by their names, disabled ones too, for administrators.
func (s *People) Users(ctx context.Context, who toolcrib.Principal) ([]User, error) {
	if _, err := env.Administrator(who); err != nil {
		return nil, err
	}
	groups, err := s.env.Store.Access().Groups(ctx)
	if err != nil {
		return nil, err
	}
	users := []User{}
	for u, err := range s.EachUser(ctx) {
		if err != nil {
			return nil, err
		}
		users = append(users, userIn(groups, u))
	}
	return users, nil
}

// User returns a user, for administrators.
func (s *People) User(ctx context.Context, who toolcrib.Principal, name string) (User, error) {
	_, u, err := s.administered(ctx, who, name)
	if err != nil {
		return User{}, err
	}
	return s.userOf(ctx, u)
}

// administered is the administrator who acts, and the user of this name.
func (s *People) administered(
	ctx context.Context, who toolcrib.Principal, name string,
) (by string, u access.User, err error) {
	if by, err = env.Administrator(who); err != nil {
		return by, u, err
	}
	if err := access.CheckName(name); err != nil {
		return by, u, err
	}
	if u, err = s.env.Store.Access().User(ctx, name); !errors.Is(err, toolcrib.ErrNotFound) {
		return by, u, err
	}
	missing := "there is no user " + name
	like, err := s.env.Store.Access().Alike(ctx, name)
	switch {
	case errors.Is(err, toolcrib.ErrNotFound):
	case err != nil:
		return by, u, err
	case like.Removed && like.Name == name:
		missing += " any more"
	case !like.Removed:
		missing += fmt.Sprintf("; did you mean %s?", like.Name)
	}
	return by, u, toolcrib.Errorf(toolcrib.CodeNotFound, "%s", missing)
}

// AddUser adds a user, for administrators.
func (s *People) AddUser(ctx context.Context, who toolcrib.Principal, u access.NewUser) (User, error) {
	by, err := env.Administrator(who)
	if err != nil {
		return User{}, err
	}
	if err := s.env.CheckSecrets(u); err != nil {
		return User{}, err
	}
	if err := s.checkIdentity(ctx, u.Name, u.Identity); err != nil {
		return User{}, err
	}
	c, err := s.env.Store.Access().AddUser(ctx, u, by)
	if err != nil {
		return User{}, err
	}
	return s.userOf(ctx, *c.User)
}

// EditUser changes a user, for administrators, and reports whether anything is another now.
func (s *People) EditUser(
	ctx context.Context, who toolcrib.Principal, name string, e access.Edit,
) (shown User, changed bool, err error) {
	by, u, err := s.administered(ctx, who, name)
	if err != nil {
		return shown, false, err
	}
	if err := s.env.CheckSecrets(e); err != nil {
		return shown, false, err
	}
	if err := s.checkIdentity(ctx, u.Name, e.Identity); err != nil {
		return shown, false, err
	}
	if e.Disabled != nil && *e.Disabled == u.Disabled {
		e.Disabled = nil
	}
	if changed = e != (access.Edit{AllAgents: e.AllAgents}); changed {
		c, err := s.env.Store.Access().EditUser(ctx, u.Name, e, by)
		if err != nil {
			return shown, false, err
		}
		u = *c.User
		if e.Identity != nil {
			err := s.endSessions(ctx, u.Name, func(w *WebSession) bool { return w.Via == ViaOIDC })
			if err != nil {
				return shown, true, err
			}
		}
		if standing.Inactive(u) != "" {
			err := s.endSessions(ctx, u.Name, func(*WebSession) bool { return true })
			if err = errors.Join(err, s.endRunsOf(ctx, who, u)); err != nil {
				return shown, true, err
			}
		}
	}
	shown, err = s.userOf(ctx, u)
	return shown, changed, err
}

// RemoveUser removes a user for good, with all tokens, for administrators.
func (s *People) RemoveUser(ctx context.Context, who toolcrib.Principal, name string) (User, error) {
	by, u, err := s.administered(ctx, who, name)
	if err != nil {
		return User{}, err
	}
	c, err := s.env.Store.Access().RemoveUser(ctx, u.Name, by)
	if err == nil && u.Identity != nil && s.env.Config.Server.OIDC.Create {
		s.env.Notice(fmt.Sprintf("the provider can add the person of %s again, under another name (server.oidc.create); "+
			"users disable keeps somebody out", u.Name))
	}
	if err == nil { // the next user of this name starts without a password
		err = errors.Join(s.forgetPassword(ctx, u.Name), s.endRunsOf(ctx, who, *c.User))
	}
	if err != nil {
		return User{}, err
	}
	return s.userOf(ctx, *c.User)
}

// Groups returns the groups of users, for administrators.
func (s *People) Groups(ctx context.Context, who toolcrib.Principal) ([]Group, error) {
	if _, err := env.Administrator(who); err != nil {
		return nil, err
	}
	groups, err := s.groups(ctx)
	shown := make([]Group, len(groups))
	for i, g := range groups {
		shown[i] = groupOf(g.Group, g.Members)
	}
	return shown, err
}

func (s *People) groups(ctx context.Context) ([]directory.UserGroup, error) {
	members := map[string]int{}
	for u, err := range s.EachUser(ctx) {
		if err != nil {
			return nil, fmt.Errorf("the members of groups: %w", err)
		}
		for _, name := range u.Groups {
			members[name]++
		}
	}
	groups, err := s.env.Store.Access().Groups(ctx)
	all := make([]directory.UserGroup, len(groups))
	for i, g := range groups {
		all[i] = directory.UserGroup{Group: g, Members: members[g.Name]}
	}
	return all, err
}

// PutGroup makes a group, or changes the one that is there as it is now, for
// administrators. It reports whether it was there.
func (s *People) PutGroup(
	ctx context.Context, who toolcrib.Principal, name string, e access.GroupEdit,
) (shown Group, known bool, err error) {
	by, err := env.Administrator(who)
	if err != nil {
		return shown, false, err
	}
	if err := s.env.CheckSecrets(name, e); err != nil {
		return shown, false, err
	}
	c, err := s.env.Store.Access().PutGroup(ctx, name, e, by)
	if err != nil {
		return shown, false, err
	}
	return groupOf(*c.Group, c.Members), !c.New, nil
}

// RemoveGroup removes a group that has no members, for administrators.
func (s *People) RemoveGroup(ctx context.Context, who toolcrib.Principal, name string) (Group, error) {
	by, err := env.Administrator(who)
	if err == nil {
		err = access.CheckName(name)
	}
	if err != nil {
		return Group{}, err
	}
	c, err := s.env.Store.Access().RemoveGroup(ctx, name, by)
	if err != nil {
		return Group{}, err
	}
	return groupOf(*c.Group, 0), nil
}

// Directory returns the users and groups as tools list them.
func (s *People) Directory() directory.Directory { return directoryOf{s} }

type directoryOf struct{ *People }

// Users implements [directory.Directory].
func (d directoryOf) Users(ctx context.Context) iter.Seq2[access.User, error] { return d.EachUser(ctx) }

// Groups implements [directory.Directory].
func (d directoryOf) Groups(ctx context.Context) iter.Seq2[directory.UserGroup, error] {
	return func(yield func(directory.UserGroup, error) bool) {
		groups, err := d.groups(ctx)
		if err != nil {
			yield(directory.UserGroup{}, err)
			return
		}
		for _, g := range groups {
			if !yield(g, nil) {
				return
			}
		}
	}
}
