package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// peopleShown is how many users or tokens a list shows without --all.
const peopleShown = 100

func (a *app) usersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "users",
		Short: "Users and groups: who there is, and what they may do",
		Long: "Users and groups, their roles, grants and passwords. A change counts at the next call, also in runs that are on their way. " +
			"Whoever owns the data folder is always an administrator of it. For administrators.",
		Example: `toolcrib users add anna --grant 'read_*' --grant memory
toolcrib users groups set staff --grant web_fetch
toolcrib users edit anna --group staff
toolcrib users disable anna
toolcrib --as anna tools explain`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(
		a.usersAddCommand(), a.usersListCommand(), a.usersShowCommand(), a.usersEditCommand(),
		a.usersStateCommand("disable", "Take everything from a user, for now: runs, tokens, the password", "disabled", true),
		a.usersStateCommand("enable", "Give a disabled user back what they had", "enabled", false),
		a.usersRemoveCommand(), a.usersPasswordCommand(), a.groupsCommand(),
	)
	return cmd
}

// userFlags say what a user is.
type userFlags struct {
	display, email, trust string
	admin, noAdmin        bool
	noGrants, reuse, json bool
	passwordStdin         bool
	allAgents             bool
	roles, groups, grants []string
}

func (a *app) userFlags(cmd *cobra.Command, f *userFlags) {
	flags := cmd.Flags()
	flags.StringVar(&f.display, "display", "", "how people call them")
	flags.StringVar(&f.email, "email", "", "address")
	flags.BoolVar(&f.admin, "admin", false, "an administrator: holds every right")
	flags.StringArrayVar(&f.roles, "role", nil, "a role, which rules may ask for; may be repeated; '' = none")
	flags.StringArrayVar(&f.groups, "group", nil, "a group that they are in; may be repeated; '' = none")
	flags.StringArrayVar(&f.grants, "grant", nil, "a tool, a group of tools, a glob, agent:NAME or sql:DB/schema.table; may be repeated; '' = nothing at all")
	flags.StringVar(&f.trust, "trust", "", "unknown, member, trusted or anchor")
	flags.BoolVar(&f.passwordStdin, "password-stdin", false, "read their password from standard input")
	flags.BoolVar(&f.json, "json", false, "one JSON value")
	// The flags were just made, so this cannot fail.
	_ = cmd.RegisterFlagCompletionFunc("trust", cobra.FixedCompletions([]string{unknownTrust, "member", "trusted", "anchor"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("group", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return a.completeGroups(cmd, nil, "")
	})
}

// given are the entries of a list that a flag gave: one empty entry means none.
func givenList(list []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(entry string) bool { return entry == "" })
}

// edit is what the flags change.
func (f *userFlags) edit(flags *pflag.FlagSet) (access.Edit, error) {
	var e access.Edit
	if flags.Changed("display") {
		e.Display = &f.display
	}
	if flags.Changed("email") {
		e.Email = &f.email
	}
	if flags.Changed("trust") {
		trust := toolcrib.Trust(f.trust)
		if trust == unknownTrust {
			trust = toolcrib.TrustUnknown
		}
		e.Trust = &trust
	}
	for name, to := range map[string]struct {
		list []string
		edit **[]string
	}{"role": {f.roles, &e.Roles}, "group": {f.groups, &e.Groups}, "grant": {f.grants, &e.Grants}} {
		if flags.Changed(name) {
			list := givenList(to.list)
			*to.edit = &list
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
	var f userFlags
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Add a user",
		Long: "Add a user. Without --grant nothing is restricted but what is for administrators; with it only what is granted may be used. " +
			"A name that looks like another one is refused.",
		Example: `toolcrib users add anna
toolcrib users add bob --grant 'read_*' --grant search_files --group staff
toolcrib users add carol --admin --password-stdin < password.txt
toolcrib users add guest --grant ''`,
		Args: positional,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.addUser(cmd, args[0], &f)
		},
	}
	a.userFlags(cmd, &f)
	cmd.Flags().BoolVar(&f.reuse, "reuse", false, "also if a user of this name was removed, whose runs and notes they will find")
	return cmd
}

func (a *app) addUser(cmd *cobra.Command, name string, f *userFlags) error {
	edit, err := f.edit(cmd.Flags())
	if err != nil {
		return err
	}
	u, err := edit.Apply(access.User{Name: name})
	if err != nil {
		return err
	}
	s, by, err := a.directory(cmd.Context())
	if err != nil {
		return err
	}
	hash := ""
	if f.passwordStdin {
		if hash, err = a.newPassword(cmd.Context(), u.Name); err != nil {
			return err
		}
	}
	a.tellGrants(cmd.Context(), u.Grants)
	a.tellBudgets(u.Name)
	c, err := s.Access().AddUser(cmd.Context(), access.NewUser{User: u, Reuse: f.reuse}, by)
	if err == nil && hash != "" {
		_, err = s.Access().SetPasswordHash(cmd.Context(), u.Name, hash, by)
	}
	if err != nil {
		return err
	}
	return a.changedUser(cmd.Context(), s, *c.User, "added", f.json)
}

// directory opens the users and tokens for an administrator.
func (a *app) directory(ctx context.Context) (*sqlite.Store, string, error) {
	by, err := a.administrator(ctx)
	if err != nil {
		return nil, "", err
	}
	s, err := a.databaseToRead(ctx) // a change says itself that it cannot be written
	return s, by, err
}

// userOf is the directory, who acts, and the user of this name.
func (a *app) userOf(ctx context.Context, name string) (s *sqlite.Store, by string, u access.User, err error) {
	if s, by, err = a.directory(ctx); err == nil {
		u, err = a.knownUser(ctx, s, name)
	}
	return s, by, u, err
}

// changedUser tells that a user was changed.
func (a *app) changedUser(ctx context.Context, s *sqlite.Store, u access.User, word string, asJSON bool) error {
	if !asJSON {
		fmt.Fprintf(a.out, "%s: %s\n", guard.Visible(u.Name), word)
		return nil
	}
	return a.printUser(ctx, s, u)
}

// knownUser finds a user by a name in any of its forms.
func (a *app) knownUser(ctx context.Context, s *sqlite.Store, text string) (access.User, error) {
	name, err := access.CheckName(text)
	if err != nil {
		return access.User{}, err
	}
	u, err := s.Access().User(ctx, name)
	if !errors.Is(err, toolcrib.ErrNotFound) {
		return u, err
	}
	missing := fmt.Sprintf("not found: there is no user %s", guard.Visible(name))
	like, err := s.Access().Alike(ctx, name)
	switch {
	case errors.Is(err, toolcrib.ErrNotFound):
	case err != nil:
		return u, err
	case like.Removed && like.Name == name:
		missing += " any more"
	case !like.Removed:
		return u, fmt.Errorf("%s; did you mean %s?", missing, like.Name)
	}
	return u, fmt.Errorf("%s; `toolcrib users list` shows who there is", missing)
}

func (a *app) usersListCommand() *cobra.Command {
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the users, disabled ones too",
		Example: "toolcrib users list\ntoolcrib users list --all --json",
		Args:    positional,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.listUsers(cmd.Context(), all, asJSON)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, fmt.Sprintf("all of them, not only the first %d by name", peopleShown))
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON value")
	return cmd
}

func (a *app) listUsers(ctx context.Context, all, asJSON bool) error {
	s, _, err := a.directory(ctx)
	if err != nil {
		return err
	}
	list, more := []access.User{}, false
	for u, err := range service.EachUser(ctx, s.Access()) {
		if err != nil {
			return err
		}
		if more = !all && len(list) == peopleShown; more {
			break
		}
		list = append(list, u)
	}
	if more {
		a.notice("there are more users; --all lists them too")
	}
	if asJSON {
		views, err := userViews(ctx, s, list...)
		if err != nil {
			return err
		}
		return printJSON(a.out, views, true)
	}
	rows := [][]string{{"USER", "NAME", "STATE", "TRUST", "ROLES", "GROUPS", "GRANTS"}}
	for _, u := range list {
		rows = append(rows, []string{
			u.Name, u.Display, userState(u), string(u.Trust), strings.Join(u.Roles, ","), strings.Join(u.Groups, ","), grantsText(u.Grants),
		})
	}
	a.outStyle.Table(a.out, rows)
	return nil
}

func userState(u access.User) string {
	switch {
	case u.Disabled:
		return "disabled"
	case u.Admin:
		return "admin"
	}
	return "active"
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
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "show NAME",
		Short:             "Show a user, and what they may do with the grants of their groups",
		Example:           "toolcrib users show anna\ntoolcrib users show anna --json",
		Args:              positional,
		ValidArgsFunction: a.completeUsers,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, _, u, err := a.userOf(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			views, err := userViews(cmd.Context(), s, u)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(a.out, views[0], true)
			}
			a.showUser(u, &views[0])
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON value")
	return cmd
}

func (a *app) showUser(u access.User, v *userView) {
	now, password := time.Now(), "none"
	if v.Password {
		password = "set"
	}
	fmt.Fprintf(a.out, "%s  %s\n", a.outStyle.Bold(guard.Visible(v.Name)), userState(u))
	for _, row := range [][2]string{
		{"name", v.Display},
		{"email", v.Email},
		{"trust", string(u.Trust)},
		{"roles", strings.Join(v.Roles, ", ")},
		{"groups", strings.Join(v.Groups, ", ")},
		{"grants", grantsText(v.Grants)},
		{"effective", grantsText(v.Effective)},
		{"password", password},
		{"created", shortTime(v.Created.Local(), now) + " by " + v.CreatedBy},
		{"changed", shortTime(v.Changed.Local(), now) + " by " + v.ChangedBy},
	} {
		if row[1] != "" {
			fmt.Fprintf(a.out, "%s %s\n", a.outStyle.Dim(fmt.Sprintf("%-9s", row[0])), guard.Visible(row[1]))
		}
	}
}

// completeUsers completes the names of users; a shell that cannot is told nothing.
func (a *app) completeUsers(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	s, _, err := a.directory(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	page, err := s.Access().Users(cmd.Context(), "", 0)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	names := make([]string, len(page))
	for i, u := range page {
		names[i] = u.Name
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
