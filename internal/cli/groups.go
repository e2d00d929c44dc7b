package cli

import (
	"cmp"
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/service"
)

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

func (a *app) groupsSetCommand(cmd *cobra.Command) {
	cmd.ValidArgsFunction = a.completeGroups()

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
	cmd.ValidArgsFunction = a.completeGroups()
	a.answering(cmd, a.reading, func(c call) (any, func(), error) {
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
