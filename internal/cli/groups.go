package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

func (a *app) groupsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "groups",
		Short: "Groups of users: their roles and grants are those of their members, too",
		Example: `toolcrib users groups set staff --grant web_fetch --role editor
toolcrib users groups list
toolcrib users groups set staff --disable`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(a.groupsListCommand(), a.groupsSetCommand(), a.groupsRemoveCommand())
	return cmd
}

func (a *app) groupsListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the groups of users",
		Example: "toolcrib users groups list\ntoolcrib users groups list --json",
		Args:    positional,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.listGroups(cmd.Context(), asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON value")
	return cmd
}

func (a *app) listGroups(ctx context.Context, asJSON bool) error {
	s, _, err := a.directory(ctx)
	if err != nil {
		return err
	}
	groups, err := s.Access().Groups(ctx)
	if err != nil {
		return err
	}
	members, err := membersOf(ctx, s.Access())
	if err != nil {
		return err
	}
	views := make([]groupView, len(groups))
	for i, g := range groups {
		views[i] = viewOfGroup(g, members[g.Name])
	}
	if asJSON {
		return printJSON(a.out, views, true)
	}
	rows := [][]string{{"GROUP", "STATE", "MEMBERS", "ROLES", "GRANTS", "DESCRIPTION"}}
	for _, g := range views {
		state := "active"
		if g.Disabled {
			state = "disabled"
		}
		rows = append(rows, []string{g.Name, state, strconv.Itoa(g.Members), strings.Join(g.Roles, ","), grantsText(g.Grants), g.Description})
	}
	a.outStyle.Table(a.out, rows)
	return nil
}

// groupFlags say what a group is.
type groupFlags struct {
	description               string
	roles, grants             []string
	noGrants, disable, enable bool
	reuse, allAgents, json    bool
}

func (a *app) groupsSetCommand() *cobra.Command {
	var f groupFlags
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Make a group, or change it; what is not named stays as it is",
		Long: "Make a group, or change it; what is not named stays as it is. A list that is given takes the place of the old one. " +
			"A group that is disabled gives its members nothing, and what it restricts stays restricted. " +
			"Taking its last grant of an agent away is refused where members could use every agent then, unless --all-agents says that this is meant.",
		Example: `toolcrib users groups set staff --grant web_fetch --role editor
toolcrib users groups set staff --grant ''
toolcrib users groups set staff --disable`,
		Args:              positional,
		ValidArgsFunction: a.completeGroups,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.setGroup(cmd, args[0], &f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.description, "description", "", "what it is for")
	flags.StringArrayVar(&f.roles, "role", nil, "a role of its members; may be repeated; '' = none")
	flags.StringArrayVar(&f.grants, "grant", nil, "what its members may use, as with users add; may be repeated; '' = nothing at all")
	flags.BoolVar(&f.noGrants, "no-grants", false, "declare no grants: it restricts nothing")
	flags.BoolVar(&f.disable, "disable", false, "it gives nothing any more")
	flags.BoolVar(&f.enable, "enable", false, "it gives again what it gave")
	flags.BoolVar(&f.reuse, "reuse", false, "also if a group of this name was removed, whose members it then has")
	flags.BoolVar(&f.allAgents, "all-agents", false, allAgentsUsage)
	flags.BoolVar(&f.json, "json", false, "one JSON value")
	return cmd
}

// apply returns the group as the flags change it.
func (f *groupFlags) apply(flags *pflag.FlagSet, g access.Group) (access.Group, error) {
	switch {
	case f.disable && f.enable:
		return g, usagef("--disable and --enable: give one of them")
	case f.noGrants && flags.Changed("grant"):
		return g, usagef("--grant and --no-grants: give one of them")
	}
	if flags.Changed("description") {
		g.Description = f.description
	}
	if flags.Changed("role") {
		g.Roles = givenList(f.roles)
	}
	if flags.Changed("grant") {
		g.Grants = givenList(f.grants)
	}
	if f.noGrants {
		g.Grants = nil
	}
	g.Disabled = (g.Disabled || f.disable) && !f.enable
	checked, err := g.Check()
	return checked, err
}

func (a *app) setGroup(cmd *cobra.Command, text string, f *groupFlags) error {
	name, err := access.CheckName(text)
	if err != nil {
		return err
	}
	s, by, err := a.directory(cmd.Context())
	if err != nil {
		return err
	}
	c, known, err := a.putGroup(cmd, s, name, by, f)
	if err != nil {
		return groupError(err)
	}
	if f.json {
		return printJSON(a.out, viewOfGroup(*c.Group, c.Carriers), true)
	}
	word := "made"
	if known {
		word = "changed"
	}
	fmt.Fprintf(a.out, "%s: %s\n", guard.Visible(name), word)
	return nil
}

// maxTries bounds how often a group that others change meanwhile is looked at anew.
const maxTries = 10

// putGroup changes the group as it is now, or makes one; known tells which.
func (a *app) putGroup(cmd *cobra.Command, s *sqlite.Store, name, by string, f *groupFlags) (c access.Change, known bool, err error) {
	for try := range maxTries {
		var g access.Group
		if g, known, err = findGroup(cmd.Context(), s, name); err != nil {
			return c, known, err
		}
		after := g.Changed
		if g, err = f.apply(cmd.Flags(), g); err != nil {
			return c, known, err
		}
		if try == 0 && cmd.Flags().Changed("grant") {
			a.tellGrants(cmd.Context(), g.Grants)
		}
		c, err = s.Access().PutGroup(cmd.Context(), access.NewGroup{Group: g, Reuse: f.reuse, AllAgents: f.allAgents, After: &after}, by)
		var stale *access.StaleError
		if !errors.As(err, &stale) {
			break
		}
	}
	return c, known, err
}

// groupError is an error about groups, with what to do about it here.
func groupError(err error) error {
	var carried *access.CarriedError
	switch {
	case !errors.As(err, &carried):
		return agentsError(err)
	case carried.Gone:
		return toolcrib.Errorf(toolcrib.CodeOf(err), "%v (toolcrib users edit NAME --group '' takes one out; --reuse says that it is meant)", err)
	}
	return toolcrib.Errorf(toolcrib.CodeOf(err), "%v (toolcrib users edit NAME --group '' takes one out)", err)
}

// findGroup returns a group, or an empty one of that name.
func findGroup(ctx context.Context, s *sqlite.Store, name string) (g access.Group, known bool, err error) {
	groups, err := s.Access().Groups(ctx)
	if i := slices.IndexFunc(groups, func(g access.Group) bool { return g.Name == name }); err == nil && i >= 0 {
		return groups[i], true, nil
	}
	return access.Group{Name: name}, false, err
}

func (a *app) groupsRemoveCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove a group; its members gain nothing by it",
		Long: "Remove a group. Its members stay in it by name, so that none of them may do more than before: " +
			"a member without grants of their own is left with none. `users edit --group` takes them out. " +
			"One that restricts its members to agents must have no members left, or be disabled instead. " +
			"--json gives the group as it was, with the members that stay in it.",
		Example:           "toolcrib users groups remove staff\ntoolcrib users groups remove staff --json",
		Args:              positional,
		ValidArgsFunction: a.completeGroups,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := access.CheckName(args[0])
			if err != nil {
				return err
			}
			s, by, err := a.directory(cmd.Context())
			if err != nil {
				return err
			}
			g, _, err := findGroup(cmd.Context(), s, name)
			if err != nil {
				return err
			}
			c, err := s.Access().RemoveGroup(cmd.Context(), name, by)
			if err != nil {
				return groupError(err)
			}
			if asJSON {
				err = printJSON(a.out, viewOfGroup(g, c.Carriers), true)
			} else {
				fmt.Fprintf(a.out, "%s: removed\n", guard.Visible(name))
			}
			if c.Carriers > 0 {
				a.notice("%s, and they stay restricted to what they are granted elsewhere; `toolcrib users edit NAME --group ''` takes them out", access.StillCarry(c.Carriers))
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON value")
	return cmd
}

// completeGroups completes the names of groups; a shell that cannot is told nothing.
func (a *app) completeGroups(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	s, _, err := a.directory(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	groups, err := s.Access().Groups(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	names := make([]string, len(groups))
	for i, g := range groups {
		names[i] = g.Name
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
