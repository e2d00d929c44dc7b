package cli

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/internal/config"
)

// namesKnown are the names that lists of tools, grants and tokens may mean now.
type namesKnown struct{ tools, groups, agents []string }

// namesNow are the names that there are with a configuration: of the tools nothing is
// used but what they say about themselves.
func (a *app) namesNow(c *config.Config) (n namesKnown, err error) {
	specs, err := a.about(c).ToolSpecs()
	if err != nil {
		return n, err
	}
	for _, spec := range specs {
		n.tools = append(n.tools, spec.Name)
		if spec.Group != "" && !slices.Contains(n.groups, spec.Group) {
			n.groups = append(n.groups, spec.Group)
		}
	}
	n.agents = sortedKeys(c.Agents)
	return n, nil
}

// missing says that a name or glob means nothing of what there is; "" = it means
// something.
func missing(what, pattern string, names ...string) string {
	for _, name := range names {
		if fits, err := path.Match(pattern, name); err == nil && fits {
			return ""
		}
	}
	text := fmt.Sprintf("there is no %s %q now", what, pattern)
	if near := nearest(pattern, names); near != "" {
		text += fmt.Sprintf("; did you mean %q?", near)
	}
	return text
}

// missingGrant says that a grant means nothing of what there is. Tables are known to
// their database only.
func (n *namesKnown) missingGrant(grant string) string {
	kind, name, other := strings.Cut(grant, ":")
	switch {
	case grant == access.NoAgents:
		return ""
	case kind == "agent" && other:
		return missing("agent", name, n.agents...)
	case kind == "sql" && other:
		return ""
	case other:
		return missing("kind of grant", kind, "agent", "sql")
	}
	return missing("tool or group of tools", grant, slices.Concat(n.tools, n.groups)...)
}

// tellUnknown tells of names in flags that mean nothing now. They stay: what they name
// may come later. Without a configuration that can be read nothing is known.
func (a *app) tellUnknown(flag string, list []string, problem func(n *namesKnown, name string) string) {
	if len(list) == 0 {
		return
	}
	c, err := a.configuration()
	if err != nil {
		return
	}
	n, err := a.namesNow(c)
	if err != nil {
		return
	}
	for _, name := range list {
		if text := problem(&n, name); text != "" {
			a.notice("%s: %s", flag, text)
		}
	}
}

// tellGrants tells what about grants is not as it looks.
func (a *app) tellGrants(grants []string) {
	a.tellUnknown("--grant", grants, (*namesKnown).missingGrant)
	tool := func(grant string) bool { return !strings.HasPrefix(grant, "agent:") }
	if len(grants) > 0 && !slices.ContainsFunc(grants, tool) {
		a.notice("--grant: only agents are granted, and so no tool; add --grant TOOL for each that they may use")
	}
}

// unknownInConfig are the names of tools in a configuration that mean none, with their
// places.
func (a *app) unknownInConfig(c *config.Config) ([]string, error) {
	n, err := a.namesNow(c)
	if err != nil {
		return nil, err
	}
	var all []string
	add := func(key, problem string) {
		if problem == "" {
			return
		}
		if at := c.Position(key); c.IsSet(key) {
			key = at + ": " + key
		}
		all = append(all, key+": "+problem)
	}
	for _, name := range sortedKeys(c.Agents) {
		for i, tool := range c.Agents[name].Tools {
			add(fmt.Sprintf("%s.tools[%d]", config.JoinKey("agents", name), i), missing("tool", tool, n.tools...))
		}
	}
	for _, name := range sortedKeys(c.Tools.Settings) {
		add(config.JoinKey("tools.settings", name), missing("tool", name, n.tools...))
	}
	return all, nil
}

// tellBudgets tells of budgets whose user is spelt differently: they count for somebody
// else, or for nobody.
func (a *app) tellBudgets(name string) {
	c, err := a.configuration()
	if err != nil {
		return
	}
	for i, b := range c.Budgets {
		if b.User != name && access.TakenBy(b.User, name) != nil {
			key := fmt.Sprintf("budgets[%d].user", i)
			a.notice("%s: %s: %q is not the user %s, so this budget does not apply to them; write the name as it is",
				c.Position(key), key, b.User, name)
		}
	}
}
