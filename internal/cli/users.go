package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
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

func (a *app) usersCommand() *cobra.Command {
	return parent(&cobra.Command{
		Use:   "users",
		Short: "Users and groups: who there is, and what they may do",
		Long: "Users and groups, their roles, grants and passwords. A change counts at the next call, also in runs that " +
			"are on their way. Whoever owns the data folder is always an administrator of it. For administrators.",
		Example: `toolcrib users add anna --grant 'read_*' --grant memory
toolcrib users groups set staff --grant web_fetch
toolcrib users edit anna --group staff
toolcrib users disable anna
toolcrib --as anna tools explain`,
	},
		a.usersAddCommand(), a.usersListCommand(), a.usersShowCommand(), a.usersEditCommand(),
		a.usersStateCommand("disable", "Take everything from a user, for now: runs, tokens, the password", "disabled", true),
		a.usersStateCommand("enable", "Give a disabled user back what they had", "enabled", false),
		a.usersRemoveCommand(), a.usersPasswordCommand(), a.groupsCommand(),
	)
}

// userFlags say what a user is.
type userFlags struct {
	display, email, trust string
	admin, noAdmin        bool
	noGrants, allAgents   bool
	passwordStdin         bool
	roles, groups, grants []string
}

func (a *app) userFlags(cmd *cobra.Command) *userFlags {
	f, flags := &userFlags{}, cmd.Flags()
	flags.StringVar(&f.display, "display", "", "how people call them")
	flags.StringVar(&f.email, "email", "", "address")
	flags.BoolVar(&f.admin, "admin", false, "an administrator: holds every right")
	flags.StringArrayVar(&f.roles, "role", nil, "a role, which rules may ask for; may be repeated; '' = none")
	flags.StringArrayVar(&f.groups, "group", nil, "a group that they are in; may be repeated; '' = none")
	flags.StringArrayVar(&f.grants, "grant", nil, "a tool, a group of tools, a glob, agent:NAME or "+
		"sql:DB/schema.table; may be repeated; '' = nothing at all")
	flags.StringVar(&f.trust, "trust", "", "unknown, member, trusted or anchor")
	flags.BoolVar(&f.passwordStdin, "password-stdin", false, "read their password from standard input")
	completeWords(cmd, "trust", service.UnknownTrust, "member", "trusted", "anchor")
	completeFlag(cmd, "group", a.completeGroups())
	return f
}

// changedText is a flag's value if it was given.
func changedText(flags *pflag.FlagSet, name string, value *string) *string {
	if !flags.Changed(name) {
		return nil
	}
	return value
}

// changedList is a flag's list if it was given: one empty entry means none.
func changedList(flags *pflag.FlagSet, name string, list []string) *[]string {
	if !flags.Changed(name) {
		return nil
	}
	list = slices.DeleteFunc(slices.Clone(list), func(entry string) bool { return entry == "" })
	return &list
}

// edit is what the flags change.
func (f *userFlags) edit(flags *pflag.FlagSet) (access.Edit, error) {
	e := access.Edit{
		Display: changedText(flags, "display", &f.display), Email: changedText(flags, "email", &f.email),
		Roles: changedList(flags, "role", f.roles), Groups: changedList(flags, "group", f.groups),
		Grants:    changedList(flags, "grant", f.grants),
		AllAgents: f.allAgents,
	}
	if flags.Changed("trust") {
		e.Trust = new(toolcrib.Trust)
		if f.trust != service.UnknownTrust {
			*e.Trust = toolcrib.Trust(f.trust)
		}
	}
	switch {
	case f.admin && f.noAdmin:
		return e, usagef("--admin and --no-admin: give one of them")
	case f.noGrants && e.Grants != nil:
		return e, usagef("--grant and --no-grants: give one of them")
	case f.noGrants:
		e.Grants = new([]string)
	}
	if flags.Changed("admin") || f.noAdmin {
		e.Admin = new(bool)
		*e.Admin = f.admin && !f.noAdmin
	}
	return e, nil
}

func (a *app) usersAddCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Add a user",
		Long: "Add a user. Without --grant nothing is restricted but what is for administrators; with it only what is " +
			"granted may be used. A name that looks like another one is refused.",
		Example: `toolcrib users add anna
toolcrib users add bob --grant 'read_*' --grant search_files --group staff
toolcrib users add carol --admin --password-stdin < password.txt
toolcrib users add guest --grant ''`,
	}
	f := a.userFlags(cmd)
	reuse := cmd.Flags().Bool("reuse", false, "also if a user of this name was removed, whose runs and notes they will "+
		"find")
	return a.answering(cmd, nil, func(c call) (any, func(), error) {
		edit, err := f.edit(cmd.Flags())
		if err != nil {
			return nil, nil, err
		}
		u, err := edit.Apply(access.User{Name: c.args[0]})
		if err != nil {
			return nil, nil, err
		}
		s, who, password, err := a.aboutPeople(c, u.Name, f.passwordStdin)
		if err != nil {
			return nil, nil, err
		}
		defer clear(password)
		a.tellGrants(u.Grants)
		a.tellBudgets(u.Name)
		shown, err := s.AddUser(c, who, access.NewUser{User: u, Reuse: *reuse}, password)
		return shown, func() { a.says(shown.Name, "added") }, err
	})
}

// aboutPeople opens the data folder for an administrator, and reads the password of a
// user where one is to be given.
func (a *app) aboutPeople(
	ctx context.Context, name string, typed bool,
) (s *service.Service, who toolcrib.Principal, password []byte, err error) {
	if who, err = a.administering(ctx); err != nil {
		return nil, who, nil, err
	}
	if s, who, err = a.reading(ctx); err == nil && typed { // a change says itself that it cannot be written
		password, err = a.newPassword(name)
	}
	return s, who, password, err
}

// noUser adds to an error about a user how to find one.
func noUser(err error, name string) error {
	return hint(err, name, "`toolcrib users list` shows who there is")
}

func (a *app) usersListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the users, disabled ones too",
		Example: "toolcrib users list\ntoolcrib users list --all --json",
	}
	all := cmd.Flags().Bool("all", false, fmt.Sprintf("all of them, not only the first %d by name", peopleShown))
	return a.answering(cmd, a.reading, func(c call) (any, func(), error) {
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

func (a *app) usersShowCommand() *cobra.Command {
	return a.answering(&cobra.Command{
		Use:               "show NAME",
		Short:             "Show a user, and what they may do with the grants of their groups",
		Example:           "toolcrib users show anna\ntoolcrib users show anna --json",
		ValidArgsFunction: a.completeUsers(),
	}, a.reading, func(c call) (any, func(), error) {
		u, err := c.User(c, c.who, c.args[0])
		return u, func() { a.showUser(&u) }, noUser(err, c.args[0])
	})
}

func (a *app) showUser(u *service.User) {
	now, password := time.Now(), "none"
	if u.Password {
		password = "set"
	}
	fmt.Fprintf(a.out, "%s  %s\n", a.outStyle.Bold(guard.Visible(u.Name)), userState(u))
	a.fields(
		9, [2]string{"name", u.Display},
		[2]string{"email", u.Email},
		[2]string{"trust", knownTrust(u)},
		[2]string{"roles", strings.Join(u.Roles, ", ")},
		[2]string{"groups", strings.Join(u.Groups, ", ")},
		[2]string{"grants", grantsText(u.Grants)},
		[2]string{"effective", grantsText(u.Effective)},
		[2]string{"password", password},
		[2]string{"created", shortTime(u.Created.Local(), now) + " by " + u.CreatedBy},
		[2]string{"changed", shortTime(u.Changed.Local(), now) + " by " + u.ChangedBy},
	)
}

// completeUsers completes the names of users.
func (a *app) completeUsers() cobra.CompletionFunc {
	return a.completing(func(c call) ([]string, error) { return c.UserNames(c, c.who) })
}

const allAgentsUsage = "every agent may be used when no grant names one any more"

func (a *app) usersEditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "edit NAME",
		Short: "Change a user; what is not named stays as it is",
		Long: "Change a user; what is not named stays as it is. A list that is given replaces the old one. A change " +
			"counts at the next call, also in runs that are on their way. Where grants name agents, only those may be used; " +
			"taking the last such grant away is refused unless --all-agents says that this is meant.",
		Example: `toolcrib users edit anna --grant 'read_*' --grant web_fetch
toolcrib users edit anna --grant 'read_*' --grant agent:reader
toolcrib users edit anna --no-grants --all-agents
toolcrib users edit anna --grant ''
toolcrib users edit anna --no-admin --group staff`,
		ValidArgsFunction: a.completeUsers(),
	}
	f := a.userFlags(cmd)
	cmd.Flags().BoolVar(&f.noAdmin, "no-admin", false, "no administrator any more")
	cmd.Flags().BoolVar(&f.noGrants, "no-grants", false, "declare no grants: nothing is restricted, unless a group does")
	cmd.Flags().BoolVar(&f.allAgents, "all-agents", false, allAgentsUsage)
	return a.answering(cmd, nil, func(c call) (any, func(), error) {
		edit, err := f.edit(cmd.Flags())
		if err == nil && edit == (access.Edit{AllAgents: f.allAgents}) && !f.passwordStdin {
			err = usagef("nothing to change: name what is to be another\nSee: %s --help", cmd.CommandPath())
		}
		if err == nil { // before anything is said about it, or asked for
			_, err = edit.Apply(access.User{Name: c.args[0]})
		}
		if err != nil {
			return nil, nil, err
		}
		s, who, password, err := a.aboutPeople(c, c.args[0], f.passwordStdin)
		if err != nil {
			return nil, nil, err
		}
		defer clear(password)
		u, _, err := s.EditUser(c, who, c.args[0], edit, password)
		if err == nil && edit.Grants != nil {
			a.tellGrants(*edit.Grants)
		}
		return u, func() { a.says(u.Name, "changed") }, noUser(agentsError(err), c.args[0])
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

func (a *app) usersStateCommand(verb, short, word string, disabled bool) *cobra.Command {
	return a.answering(&cobra.Command{
		Use:               verb + " NAME",
		Short:             short,
		Long:              short + ". It counts at the next call, also in runs that are on their way.",
		Example:           fmt.Sprintf("toolcrib users %s anna", verb),
		ValidArgsFunction: a.completeUsers(),
	}, a.reading, func(c call) (any, func(), error) {
		u, changed, err := c.EditUser(c, c.who, c.args[0], access.Edit{Disabled: &disabled}, nil)
		if !changed {
			word += " already"
		}
		return u, func() { a.says(u.Name, word) }, noUser(err, c.args[0])
	})
}

func (a *app) usersRemoveCommand() *cobra.Command {
	return a.answering(&cobra.Command{
		Use:   "remove NAME",
		Short: "Remove a user for good, and revoke their tokens",
		Long: "Remove a user for good, with the password and all tokens. Runs, sessions and notes stay, which is why the " +
			"name is not " +
			"given to another one without `users add --reuse`.",
		Example:           "toolcrib users remove anna",
		ValidArgsFunction: a.completeUsers(),
	}, a.reading, func(c call) (any, func(), error) {
		u, err := c.RemoveUser(c, c.who, c.args[0])
		return u, func() { a.says(u.Name, "removed") }, noUser(err, c.args[0])
	})
}

func (a *app) usersPasswordCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "password NAME",
		Short: "Set the password of a user, or take it away",
		Long: fmt.Sprintf("Set the password of a user: read without an echo on a terminal, else from standard input, "+
			"where one newline at its end is ignored. It has at least %d characters. Only a hash of it is kept.",
			access.MinPasswordRunes),
		Example: "toolcrib users password anna\ntoolcrib users password anna < password.txt\ntoolcrib users password anna " +
			"--clear",
		ValidArgsFunction: a.completeUsers(),
	}
	clearIt := cmd.Flags().Bool("clear", false, "take the password away")
	return a.answering(cmd, a.reading, func(c call) (any, func(), error) {
		u, err := c.User(c, c.who, c.args[0])
		if err != nil {
			return nil, nil, noUser(err, c.args[0])
		}
		word := "the password was taken away"
		if *clearIt {
			u, err = c.ClearPassword(c, c.who, u.Name)
		} else {
			word = "the password was set"
			var password []byte
			if password, err = a.newPassword(u.Name); err != nil {
				return nil, nil, err
			}
			defer clear(password)
			u, _, err = c.EditUser(c, c.who, u.Name, access.Edit{}, password)
		}
		return u, func() { a.says(u.Name, word) }, err
	})
}

// newPassword reads a password: typed twice on a terminal, else from standard input. It
// is masked from now on.
func (a *app) newPassword(name string) (text []byte, err error) {
	if !a.inTerminal {
		text, err = a.pipedSecret("password", access.MaxPasswordBytes)
	} else if text, err = a.typedHidden("Password of " + name); err == nil {
		var again []byte
		if again, err = a.typedHidden("Once more"); err == nil && !bytes.Equal(text, again) {
			err = usagef("these were two passwords; nothing was changed")
		}
		clear(again)
	}
	if err != nil {
		return nil, err
	}
	a.masker.Learn(guard.Secret{Name: "password." + name, Value: string(text)})
	return text, nil
}

// pipedSecret reads what must not be an argument from standard input, where one newline
// at its end does not count.
func (a *app) pipedSecret(what string, most int64) ([]byte, error) {
	value, err := io.ReadAll(io.LimitReader(a.in, most+3))
	if err != nil {
		return nil, fmt.Errorf("standard input: %v", err)
	}
	value = bytes.TrimSuffix(bytes.TrimSuffix(value, []byte("\n")), []byte("\r"))
	if len(value) == 0 {
		return nil, usagef("standard input is empty: there is no %s", what)
	}
	return value, nil
}
