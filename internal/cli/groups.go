package cli

import (
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/service"
)

func (a *app) groupsCommand() *cobra.Command {
	return parent(&cobra.Command{
		Use:   "groups",
		Short: "Groups of users: their roles and grants are those of their members, too",
		Example: `toolcrib users groups set staff --grant web_fetch --role editor
toolcrib users groups list
toolcrib users groups set staff --disable`,
	}, a.groupsListCommand(), a.groupsSetCommand(), a.groupsRemoveCommand())
}

func (a *app) groupsListCommand() *cobra.Command {
	return a.answering(&cobra.Command{
		Use:     "list",
		Short:   "List the groups of users",
		Example: "toolcrib users groups list\ntoolcrib users groups list --json",
	}, a.reading, func(c call) (any, func(), error) {
		groups, err := c.Groups(c, c.who)
		return groups, func() {
			table(a, "GROUP|STATE|MEMBERS|ROLES|GRANTS|DESCRIPTION", groups, func(g *service.Group) []string {
				state := "active"
				if g.Disabled {
					state = "disabled"
				}
				return []string{
					g.Name, state, strconv.Itoa(g.Members), strings.Join(g.Roles, ","), grantsText(g.Grants),
					g.Description,
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

func (a *app) groupsSetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Make a group, or change it; what is not named stays as it is",
		Long: "Make a group, or change it; what is not named stays as it is. A list that is given replaces the old one. A " +
			"group that is disabled gives its members nothing, and what it restricts stays restricted. Taking its last grant " +
			"of an agent away is refused where members could use every agent then, unless --all-agents says that this is meant.",
		Example: `toolcrib users groups set staff --grant web_fetch --role editor
toolcrib users groups set staff --grant ''
toolcrib users groups set staff --disable`,
		ValidArgsFunction: a.completeGroups(),
	}
	var f groupFlags
	flags := cmd.Flags()
	flags.StringVar(&f.description, "description", "", "what it is for")
	flags.StringArrayVar(&f.roles, "role", nil, "a role of its members; may be repeated; '' = none")
	flags.StringArrayVar(&f.grants, "grant", nil, "what its members may use, as with users add; may be repeated; '' = "+
		"nothing at all")
	flags.BoolVar(&f.noGrants, "no-grants", false, "declare no grants: it restricts nothing")
	flags.BoolVar(&f.disable, "disable", false, "it gives nothing any more")
	flags.BoolVar(&f.enable, "enable", false, "it gives again what it gave")
	flags.BoolVar(&f.reuse, "reuse", false, "also if a group of this name was removed, whose members it then has")
	flags.BoolVar(&f.allAgents, "all-agents", false, allAgentsUsage)
	return a.answering(cmd, nil, func(c call) (any, func(), error) {
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
	switch {
	case f.disable && f.enable:
		return e, usagef("--disable and --enable: give one of them")
	case f.noGrants && e.Grants != nil:
		return e, usagef("--grant and --no-grants: give one of them")
	case f.noGrants:
		e.Grants = new([]string)
	}
	if f.disable || f.enable {
		e.Disabled = &f.disable
	}
	return e, nil
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

func (a *app) groupsRemoveCommand() *cobra.Command {
	return a.answering(&cobra.Command{
		Use:   "remove NAME",
		Short: "Remove a group; its members gain nothing by it",
		Long: "Remove a group. Its members stay in it by name, so that none of them may do more than before: " +
			"a member without grants of their own is left with none. `users edit --group` takes them out. One that restricts " +
			"its members to agents must have no members left, or be disabled instead. --json gives the group as it was, with " +
			"the members that stay in it.",
		Example:           "toolcrib users groups remove staff\ntoolcrib users groups remove staff --json",
		ValidArgsFunction: a.completeGroups(),
	}, a.reading, func(c call) (any, func(), error) {
		g, err := c.RemoveGroup(c, c.who, c.args[0])
		if err == nil && g.Members > 0 {
			a.notice("%s, and they stay restricted to what they are granted elsewhere; `toolcrib users edit NAME --group ''` "+
				"takes them out", access.StillCarry(g.Members))
		}
		return g, func() { a.says(g.Name, "removed") }, groupError(err)
	})
}

// completeGroups completes the names of groups.
func (a *app) completeGroups() cobra.CompletionFunc {
	return a.completing(func(c call) ([]string, error) {
		groups, err := c.Groups(c, c.who)
		return listed(groups, func(g service.Group) string { return g.Name }, err)
	})
}
