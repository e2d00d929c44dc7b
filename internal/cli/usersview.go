package cli

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// unknownTrust is what --trust and --json call [toolcrib.TrustUnknown].
const unknownTrust = "unknown"

// userView is a user as --json shows it: always with all keys, so that one that is
// missing never has to be read as a value.
type userView struct {
	Name      string    `json:"name"`
	Display   string    `json:"display"`
	Email     string    `json:"email"`
	Admin     bool      `json:"admin"`
	Disabled  bool      `json:"disabled"`
	Removed   bool      `json:"removed"`
	Trust     string    `json:"trust"` // unknown | member | trusted | anchor
	Roles     []string  `json:"roles"`
	Groups    []string  `json:"groups"`
	Grants    []string  `json:"grants"`           // null = declares none
	Effective []string  `json:"effective_grants"` // with those of the groups; null = no restriction
	Password  bool      `json:"password"`         // there is one
	Created   time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by"`
	Changed   time.Time `json:"changed_at"`
	ChangedBy string    `json:"changed_by"`
}

// userViews are users as --json shows them.
func userViews(ctx context.Context, s *sqlite.Store, list ...access.User) ([]userView, error) {
	groups, err := s.Access().Groups(ctx)
	if err != nil {
		return nil, err
	}
	views := make([]userView, len(list))
	for i, u := range list {
		views[i] = userView{
			Name: u.Name, Display: u.Display, Email: u.Email, Admin: u.Admin, Disabled: u.Disabled, Removed: u.Removed,
			Trust: cmp.Or(string(u.Trust), unknownTrust), Roles: append([]string{}, u.Roles...), Groups: append([]string{}, u.Groups...),
			Grants: u.Grants, Effective: access.EffectiveGrants(u, groups),
			Created: u.Created, CreatedBy: u.CreatedBy, Changed: u.Changed, ChangedBy: u.ChangedBy,
		}
		_, err := s.Access().PasswordHash(ctx, u.Name)
		if err != nil && !errors.Is(err, toolcrib.ErrNotFound) {
			return nil, err
		}
		views[i].Password = err == nil
	}
	return views, nil
}

// printUser prints one user as JSON.
func (a *app) printUser(ctx context.Context, s *sqlite.Store, u access.User) error {
	views, err := userViews(ctx, s, u)
	if err != nil {
		return err
	}
	return printJSON(a.out, views[0], true)
}

// groupView is a group as --json shows it, with all keys.
type groupView struct {
	Name        string    `json:"name"`
	Description string    `json:"description"`
	Disabled    bool      `json:"disabled"`
	Roles       []string  `json:"roles"`
	Grants      []string  `json:"grants"` // null = declares none
	Members     int       `json:"members"`
	Changed     time.Time `json:"changed_at"`
	ChangedBy   string    `json:"changed_by"`
}

func viewOfGroup(g access.Group, members int) groupView {
	return groupView{
		Name: g.Name, Description: g.Description, Disabled: g.Disabled, Roles: append([]string{}, g.Roles...), Grants: g.Grants,
		Members: members, Changed: g.Changed, ChangedBy: g.ChangedBy,
	}
}
