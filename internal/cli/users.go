package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/service"
)

// peopleShown is how many users or tokens a list shows without --all.
const peopleShown = 100

// userFlags say what a user is.
type userFlags struct {
	display, email, trust string
	admin, noAdmin        bool
	noGrants, allAgents   bool
	roles, groups, grants []string
}

func (a *app) userFlags(cmd *cobra.Command) *userFlags {
	f, flags := &userFlags{}, cmd.Flags()
	flags.StringVar(&f.display, "display", "", "")
	flags.StringVar(&f.email, "email", "", "")
	flags.BoolVar(&f.admin, "admin", false, "")
	flags.StringArrayVar(&f.roles, "role", nil, "")
	flags.StringArrayVar(&f.groups, "group", nil, "")
	flags.StringArrayVar(&f.grants, "grant", nil, "")
	choice(cmd, "trust", &f.trust, service.UnknownTrust, "member", "trusted", "anchor")
	return f
}

// edit is what the flags change.
func (f *userFlags) edit(flags *pflag.FlagSet) (access.Edit, error) {
	e := access.Edit{
		Display: changedText(flags, "display", &f.display), Email: changedText(flags, "email", &f.email),
		Roles: changedList(flags, "role", f.roles), Groups: changedList(flags, "group", f.groups),
		Grants: changedList(flags, "grant", f.grants), AllAgents: f.allAgents,
	}
	if flags.Changed("trust") {
		e.Trust = new(toolcrib.Trust)
		if f.trust != service.UnknownTrust {
			*e.Trust = toolcrib.Trust(f.trust)
		}
	}
	if f.noGrants {
		e.Grants = new([]string)
	}
	if flags.Changed("admin") || f.noAdmin {
		e.Admin = new(f.admin && !f.noAdmin)
	}
	return e, cmp.Or(oneOf(flags, "admin", "no-admin"), oneOf(flags, "grant", "no-grants"))
}

func (a *app) usersAddCommand(cmd *cobra.Command) {
	f := a.userFlags(cmd)
	reuse := cmd.Flags().Bool("reuse", false, "")
	a.answering(cmd, nil, func(c call) (any, func(), error) {
		edit, err := f.edit(cmd.Flags())
		if err != nil {
			return nil, nil, err
		}
		u, err := edit.Apply(access.User{Name: c.args[0]})
		if err != nil {
			return nil, nil, err
		}
		s, who, err := a.aboutPeople(c)
		if err != nil {
			return nil, nil, err
		}
		a.tellGrants(u.Grants)
		a.tellBudgets(u.Name)
		shown, err := s.AddUser(c, who, access.NewUser{User: u, Reuse: *reuse})
		return shown, func() { a.says(shown.Name, "added") }, err
	})
}

// aboutPeople opens the data folder for an administrator who changes it.
func (a *app) aboutPeople(ctx context.Context) (s *service.Service, who toolcrib.Principal, err error) {
	if who, err = a.administering(ctx); err != nil {
		return nil, who, err
	}
	return a.reading(ctx) // a change says itself that it cannot be written
}

func (a *app) usersListCommand(cmd *cobra.Command) {
	all := cmd.Flags().Bool("all", false, fmt.Sprintf("all of them, not only the first %d by name", peopleShown))
	a.answering(cmd, a.reading, func(c call) (any, func(), error) {
		limit := peopleShown
		if *all {
			limit = 0
		}
		list, more, err := c.Users(c, c.who, limit)
		if more {
			a.notice("there are more users; --all lists them too")
		}
		return list, func() {
			table(a, "USER|NAME|STATE|TRUST|ROLES|GROUPS|GRANTS", list, func(u *service.User) []string {
				return []string{
					u.Name, u.Display, userState(u), knownTrust(u), strings.Join(u.Roles, ","), strings.Join(u.Groups, ","),
					grantsText(u.Grants),
				}
			})
		}, err
	})
}

func userState(u *service.User) string {
	switch {
	case u.Disabled:
		return "disabled"
	case u.Admin:
		return "admin"
	}
	return "active"
}

// knownTrust is how far a user is trusted; "" = that is not known.
func knownTrust(u *service.User) string {
	if u.Trust == service.UnknownTrust {
		return ""
	}
	return u.Trust
}

func grantsText(grants []string) string {
	switch {
	case grants == nil:
		return "no restriction"
	case len(grants) == 0:
		return "nothing"
	}
	return strings.Join(grants, ",")
}

func (a *app) usersShowCommand(cmd *cobra.Command) {
	a.answering(cmd, a.reading, func(c call) (any, func(), error) {
		u, err := c.User(c, c.who, c.args[0])
		return u, func() { a.showUser(&u) }, noSuch("users", err, c.args[0])
	})
}

func (a *app) showUser(u *service.User) {
	now := time.Now()
	fmt.Fprintf(a.out, "%s  %s\n", a.outStyle.Bold(guard.Visible(u.Name)), userState(u))
	a.fields(
		9, [2]string{"name", u.Display}, [2]string{"email", u.Email}, [2]string{"trust", knownTrust(u)},
		[2]string{"roles", strings.Join(u.Roles, ", ")}, [2]string{"groups", strings.Join(u.Groups, ", ")},
		[2]string{"grants", grantsText(u.Grants)}, [2]string{"effective", grantsText(u.Effective)},
		[2]string{"created", shortTime(u.Created.Local(), now) + " by " + u.CreatedBy},
		[2]string{"changed", shortTime(u.Changed.Local(), now) + " by " + u.ChangedBy},
	)
}

func (a *app) usersEditCommand(cmd *cobra.Command) {
	f := a.userFlags(cmd)
	cmd.Flags().BoolVar(&f.noAdmin, "no-admin", false, "")
	cmd.Flags().BoolVar(&f.noGrants, "no-grants", false, "")
	cmd.Flags().BoolVar(&f.allAgents, "all-agents", false, "")
	a.answering(cmd, nil, func(c call) (any, func(), error) {
		edit, err := f.edit(cmd.Flags())
		if err == nil && edit == (access.Edit{AllAgents: f.allAgents}) {
			err = usagef("nothing to change: give at least one flag\nSee: %s --help", cmd.CommandPath())
		}
		if err == nil { // before anything is said about it, or asked for
			_, err = edit.Apply(access.User{Name: c.args[0]})
		}
		if err != nil {
			return nil, nil, err
		}
		s, who, err := a.aboutPeople(c)
		if err != nil {
			return nil, nil, err
		}
		u, _, err := s.EditUser(c, who, c.args[0], edit)
		if err == nil && edit.Grants != nil {
			a.tellGrants(*edit.Grants)
		}
		return u, func() { a.says(u.Name, "changed") }, noSuch("users", agentsError(err), c.args[0])
	})
}

// agentsError is an error about people, with the flag that says that all agents are meant.
func agentsError(err error) error {
	var free *access.AllAgentsError
	if errors.As(err, &free) {
		return toolcrib.Errorf(toolcrib.CodeOf(err), "%v (--all-agents)", err)
	}
	return err
}

func (a *app) usersStateCommand(cmd *cobra.Command) {
	a.answering(cmd, a.reading, func(c call) (any, func(), error) {
		disabled := cmd.Name() == "disable"
		word := cmd.Name() + "d"
		u, changed, err := c.EditUser(c, c.who, c.args[0], access.Edit{Disabled: &disabled})
		if !changed {
			word += " already"
		}
		return u, func() { a.says(u.Name, word) }, noSuch("users", err, c.args[0])
	})
}

func (a *app) usersRemoveCommand(cmd *cobra.Command) {
	a.answering(cmd, a.reading, func(c call) (any, func(), error) {
		u, err := c.RemoveUser(c, c.who, c.args[0])
		return u, func() { a.says(u.Name, "removed") }, noSuch("users", err, c.args[0])
	})
}

func (a *app) groupsListCommand(cmd *cobra.Command) {
	a.answering(cmd, a.reading, func(c call) (any, func(), error) {
		groups, err := c.Groups(c, c.who)
		return groups, func() {
			table(a, "GROUP|STATE|MEMBERS|ROLES|GRANTS|DESCRIPTION", groups, func(g *service.Group) []string {
				state := "active"
				if g.Disabled {
					state = "disabled"
				}
				return []string{
					g.Name, state, strconv.Itoa(g.Members), strings.Join(g.Roles, ","), grantsText(g.Grants), g.Description,
				}
			})
		}, err
	})
}

// groupFlags say what a group is.
type groupFlags struct {
	description               string
	roles, grants             []string
	noGrants, disable, enable bool
	reuse, allAgents          bool
}

func (a *app) groupsSetCommand(cmd *cobra.Command) {
	var f groupFlags
	flags := cmd.Flags()
	flags.StringVar(&f.description, "description", "", "")
	flags.StringArrayVar(&f.roles, "role", nil, "")
	flags.StringArrayVar(&f.grants, "grant", nil, "")
	flags.BoolVar(&f.noGrants, "no-grants", false, "")
	flags.BoolVar(&f.disable, "disable", false, "")
	flags.BoolVar(&f.enable, "enable", false, "")
	flags.BoolVar(&f.reuse, "reuse", false, "")
	flags.BoolVar(&f.allAgents, "all-agents", false, "")
	a.answering(cmd, nil, func(c call) (any, func(), error) {
		edit, err := f.edit(flags)
		if err != nil {
			return nil, nil, err
		}
		s, who, err := a.reading(c)
		if err != nil {
			return nil, nil, err
		}
		g, known, err := s.PutGroup(c, who, c.args[0], edit)
		if err == nil && flags.Changed("grant") {
			a.tellGrants(g.Grants)
		}
		word := "made"
		if known {
			word = "changed"
		}
		return g, func() { a.says(g.Name, word) }, groupError(err)
	})
}

// edit is what the flags change.
func (f *groupFlags) edit(flags *pflag.FlagSet) (service.GroupEdit, error) {
	e := service.GroupEdit{
		Description: changedText(flags, "description", &f.description), Roles: changedList(flags, "role", f.roles),
		Grants: changedList(flags, "grant", f.grants), Reuse: f.reuse, AllAgents: f.allAgents,
	}
	if f.noGrants {
		e.Grants = new([]string)
	}
	if f.disable || f.enable {
		e.Disabled = &f.disable
	}
	return e, cmp.Or(oneOf(flags, "disable", "enable"), oneOf(flags, "grant", "no-grants"))
}

// groupError is an error about groups, with what to do about it here.
func groupError(err error) error {
	var carried *access.CarriedError
	switch {
	case !errors.As(err, &carried):
		return agentsError(err)
	case carried.Gone:
		return toolcrib.Errorf(toolcrib.CodeOf(err), "%v (toolcrib users edit NAME --group '' takes one out; --reuse says "+
			"that it is meant)", err)
	}
	return toolcrib.Errorf(toolcrib.CodeOf(err), "%v (toolcrib users edit NAME --group '' takes one out)", err)
}

func (a *app) groupsRemoveCommand(cmd *cobra.Command) {
	a.answering(cmd, a.reading, func(c call) (any, func(), error) {
		g, err := c.RemoveGroup(c, c.who, c.args[0])
		if err == nil && g.Members > 0 {
			a.notice("%s, and they stay restricted to what they are granted elsewhere; `toolcrib users edit NAME --group ''` "+
				"takes them out", access.StillCarry(g.Members))
		}
		return g, func() { a.says(g.Name, "removed") }, groupError(err)
	})
}
