package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/people"
)

// userFlags adds the flags that describe a user.
func userFlags(cmd *cobra.Command) *access.Edit {
	e, flags := &access.Edit{}, cmd.Flags()
	optional(flags, "display", &e.Display)
	optional(flags, "email", &e.Email)
	switched(flags, "admin", &e.Admin, true)
	optionalList(flags, "role", &e.Roles)
	optionalList(flags, "group", &e.Groups)
	optionalList(flags, "grant", &e.Grants)
	oneWord(cmd, "trust", func(text string) {
		if e.Trust = new(toolcrib.Trust(text)); text == people.UnknownTrust {
			e.Trust = new(toolcrib.Trust)
		}
	}, people.UnknownTrust, "member", "trusted", "anchor")
	flags.Func("subject", "", func(text string) error {
		e.Identity = &access.Identity{Subject: text}
		return nil
	})
	return e
}

// atProvider completes an identity that --subject names with the provider of the configuration.
func (a *app) atProvider(e *access.Edit) error {
	if e.Identity == nil || e.Identity.Subject == "" {
		return nil
	}
	s, err := a.svc()
	if err != nil {
		return err
	}
	if e.Identity.Issuer = s.Env.Config.Server.OIDC.Issuer; e.Identity.Issuer == "" {
		return usagef("--subject: the configuration names no provider (server.oidc.issuer)")
	}
	return nil
}

// noGrants adds the flag that removes all grants.
func noGrants(flags *pflag.FlagSet, value **[]string) {
	flags.BoolFunc("no-grants", "", func(text string) error {
		on, err := strconv.ParseBool(text)
		if on {
			*value = new([]string)
		}
		return err
	})
}

func (a *app) usersAddCommand(cmd *cobra.Command) {
	edit := userFlags(cmd)
	reuse := cmd.Flags().Bool("reuse", false, "")
	a.answering(cmd, nil, func(c call) (any, func(), error) {
		if err := a.atProvider(edit); err != nil {
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
		shown, err := s.People.AddUser(c, who, access.NewUser{User: u, Reuse: *reuse})
		return shown, func() { a.says(shown.Name, "added") }, err
	})
}

// aboutPeople opens the data folder for an administrator who changes users.
func (a *app) aboutPeople(ctx context.Context) (s *service.Service, who toolcrib.Principal, err error) {
	if who, err = a.administering(ctx); err != nil {
		return nil, who, err
	}
	return a.reading(ctx) // a change reports by itself that the store is not writable
}

func (a *app) usersListCommand(cmd *cobra.Command) {
	listing(a, cmd, a.reading, "USER|NAME|STATE|TRUST|ROLES|GROUPS|GRANTS",
		func(c call) ([]people.User, error) { return c.People.Users(c, c.who) },
		func(u *people.User) []string {
			return []string{
				u.Name, u.Display, userState(u), knownTrust(u), strings.Join(u.Roles, ","), strings.Join(u.Groups, ","),
				grantsText(u.Grants),
			}
		})
}

func userState(u *people.User) string {
	switch {
	case u.Disabled:
		return "disabled"
	case u.Admin:
		return "admin"
	}
	return "active"
}

// knownTrust returns how far a user is trusted, or "" if that is unknown.
func knownTrust(u *people.User) string {
	if u.Trust == people.UnknownTrust {
		return ""
	}
	return u.Trust
}

func grantsText(grants []string) string { return listText(grants, ",", "no restriction", "nothing") }

func (a *app) usersShowCommand(cmd *cobra.Command) {
	a.answering(cmd, a.reading, func(c call) (any, func(), error) {
		u, err := c.People.User(c, c.who, c.args[0])
		return u, func() { a.showUser(&u) }, noSuch("users", err, c.args[0])
	})
}

func (a *app) showUser(u *people.User) {
	fmt.Fprintf(a.out, "%s  %s\n", a.outStyle.Bold(guard.Visible(u.Name)), userState(u))
	subject := ""
	if u.Identity != nil {
		subject = u.Identity.Subject + " at " + u.Identity.Issuer
	}
	a.fields(9, "name", u.Display, "email", u.Email, "subject", subject)
	a.fields(9, "trust", knownTrust(u), "roles", strings.Join(u.Roles, ", "),
		"groups", strings.Join(u.Groups, ", "), "grants", grantsText(u.Grants), "effective", grantsText(u.Effective),
		"created", day(u.Created)+" by "+u.CreatedBy, "changed", day(u.Changed)+" by "+u.ChangedBy)
}

func (a *app) usersEditCommand(cmd *cobra.Command) {
	edit, flags := userFlags(cmd), cmd.Flags()
	switched(flags, "no-admin", &edit.Admin, false)
	noGrants(flags, &edit.Grants)
	flags.BoolVar(&edit.AllAgents, "all-agents", false, "")
	a.answering(cmd, nil, func(c call) (any, func(), error) {
		err := cmp.Or(oneOf(flags, "admin", "no-admin"), oneOf(flags, "grant", "no-grants"))
		if err == nil && *edit == (access.Edit{AllAgents: edit.AllAgents}) {
			err = usagef("nothing to change: give at least one flag\nSee: %s --help", cmd.CommandPath())
		}
		if err == nil {
			err = a.atProvider(edit)
		}
		if err == nil { // before anything is printed or asked about it
			_, err = edit.Apply(access.User{Name: c.args[0]})
		}
		if err != nil {
			return nil, nil, err
		}
		s, who, err := a.aboutPeople(c)
		if err != nil {
			return nil, nil, err
		}
		u, _, err := s.People.EditUser(c, who, c.args[0], *edit)
		if err == nil && edit.Grants != nil {
			a.tellGrants(*edit.Grants)
		}
		return u, func() { a.says(u.Name, "changed") }, noSuch("users", agentsError(err), c.args[0])
	})
}

// agentsError adds to an error about a user's agents the flag that means all agents.
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
		u, changed, err := c.People.EditUser(c, c.who, c.args[0], access.Edit{Disabled: &disabled})
		if !changed {
			word += " already"
		}
		return u, func() { a.says(u.Name, word) }, noSuch("users", err, c.args[0])
	})
}

func (a *app) usersRemoveCommand(cmd *cobra.Command) {
	a.answering(cmd, a.reading, func(c call) (any, func(), error) {
		u, err := c.People.RemoveUser(c, c.who, c.args[0])
		return u, func() { a.says(u.Name, "removed") }, noSuch("users", err, c.args[0])
	})
}

func (a *app) groupsListCommand(cmd *cobra.Command) {
	listing(a, cmd, a.reading, "GROUP|STATE|MEMBERS|ROLES|GRANTS|DESCRIPTION",
		func(c call) ([]people.Group, error) { return c.People.Groups(c, c.who) },
		func(g *people.Group) []string {
			state := "active"
			if g.Disabled {
				state = "disabled"
			}
			return []string{
				g.Name, state, strconv.Itoa(g.Members), strings.Join(g.Roles, ","), grantsText(g.Grants), g.Description,
			}
		})
}

func (a *app) groupsSetCommand(cmd *cobra.Command) {
	var e access.GroupEdit
	flags := cmd.Flags()
	optional(flags, "description", &e.Description)
	optionalList(flags, "role", &e.Roles)
	optionalList(flags, "grant", &e.Grants)
	noGrants(flags, &e.Grants)
	switched(flags, "disable", &e.Disabled, true)
	switched(flags, "enable", &e.Disabled, false)
	flags.BoolVar(&e.AllAgents, "all-agents", false, "")
	a.answering(cmd, nil, func(c call) (any, func(), error) {
		if err := cmp.Or(oneOf(flags, "disable", "enable"), oneOf(flags, "grant", "no-grants")); err != nil {
			return nil, nil, err
		}
		s, who, err := a.reading(c)
		if err != nil {
			return nil, nil, err
		}
		g, known, err := s.People.PutGroup(c, who, c.args[0], e)
		if err == nil && flags.Changed("grant") {
			a.tellGrants(g.Grants)
		}
		word := "made"
		if known {
			word = "changed"
		}
		return g, func() { a.says(g.Name, word) }, agentsError(err)
	})
}

func (a *app) groupsRemoveCommand(cmd *cobra.Command) {
	a.answering(cmd, a.reading, func(c call) (any, func(), error) {
		g, err := c.People.RemoveGroup(c, c.who, c.args[0])
		if errors.Is(err, toolcrib.ErrConflict) {
			err = toolcrib.Errorf(toolcrib.CodeConflict, "%v (toolcrib users edit NAME --group '' takes one out)", err)
		}
		return g, func() { a.says(g.Name, "removed") }, err
	})
}
