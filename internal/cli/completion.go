package cli

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/secret"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/people"
	"github.com/toolcrib/toolcrib/store"
)

// Shell completion of the arguments and values of flags that commands.md names. A shell receives no
// errors, and nothing about other users.

// Limits on the number of completions and on the time to find them.
const (
	completed         = 100
	completionTimeout = time.Second
)

// completions maps placeholders of values in commands.md to their completions. NAME has one for each
// command whose argument it is.
func (a *app) completions() map[string]cobra.CompletionFunc {
	return map[string]cobra.CompletionFunc{
		"RUN": a.completing(ownRuns), "SESSION": a.completing(ownSessions), "ID": a.completing(ownApprovals),
		"REMEMBERED": a.completing(ownRemembered), "MODEL": a.completingKnown(modelNames),
		"AGENT": a.completingKnown(agentNames), "agents": a.completingKnown(agentNames),
		"USER": a.completing(userNames), "users": a.completing(userNames), "users groups": a.completing(groupNames),
		"KEY": a.completingKnown(noteKeys), "secret": a.completing(secretNames),
		"tools": a.completingKnown(a.toolNames), "skills": a.completingKnown(skillNames),
		"SERVER": a.completingKnown(serverNames), "providers": a.completingKnown(providerNames),
		"tools groups": a.completingKnown(a.toolGroups), "CHOICE": a.completingKnown(a.toolChoices),
		"NODE": a.completing(nodeNames),
	}
}

// complete sets the completions of a command's arguments, and of its flags that have none yet.
func (a *app) complete(cmd *cobra.Command, path, args string) {
	all := a.completions()
	word := strings.TrimSuffix(strings.Trim(strings.Fields(args + " -")[0], "[]"), "...")
	of, _, _ := cutLast(strings.TrimPrefix(path, "toolcrib "))
	switch {
	case path == "toolcrib approvals remembered revoke":
		word = "REMEMBERED"
	case of == "tokens", path == "toolcrib users add", path == "toolcrib mcp tools", path == "toolcrib mcp review":
		word = ""
	case word == "NAME":
		word = of
	}
	cmd.ValidArgsFunction = all[word]
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		value := f.Annotations[valueName]
		if len(value) == 0 {
			return
		}
		word := value[0]
		switch f.Name {
		case "agent":
			word = "AGENT"
		case "parent":
			word = "RUN"
		case "skill":
			word = "skills"
		case "call":
			word = ""
		case "provider":
			word = "providers"
		case "group":
			word = of + " groups"
		}
		if _, taken := cmd.GetFlagCompletionFunc(f.Name); all[word] != nil && !taken {
			completeFlag(cmd, f.Name, all[word])
		}
	})
}

// completing completes the first argument of a command from stored data. It does not create a database.
func (a *app) completing(names func(c call) ([]string, error)) cobra.CompletionFunc {
	return a.completingKnown(func(c call) ([]string, error) {
		if _, err := os.Stat(c.Env.Database()); err != nil && c.Env.Config.Database.IsEmpty() {
			return nil, nil
		}
		if err := c.Env.OpenToRead(c); err != nil {
			return nil, err
		}
		return names(c)
	})
}

// completingKnown completes the first argument without the data folder.
func (a *app) completingKnown(names func(c call) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		c, err, found := call{}, error(nil), []string(nil)
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		if c.Context = ctx; len(args) == 0 {
			if c.Service, c.who, err = a.knowing(ctx); err == nil {
				found, err = names(c)
			}
		}
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		for i, name := range found {
			name, about, _ := strings.Cut(name, "\t")
			found[i] = guard.Visible(name) + strings.TrimRight("\t"+guard.Visible(about), "\t")
		}
		return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// offered formats a name and its description as a completion.
func offered(name string, about ...string) string {
	return name + "\t" + service.OneLine(strings.Join(about, " "), 60)
}

func ownRuns(c call) ([]string, error) {
	runs, _, err := c.Runs(c, c.who, service.RunsQuery{
		Filter: store.Filter{User: c.who.User, TopLevel: true, Limit: completed}, Prompts: true,
	})
	names, err := listed(runs, func(r service.Run) string { return offered(short(r.ID), statusText(r), r.Prompt) }, err)
	return append(names, "last"), err
}

func ownSessions(c call) ([]string, error) {
	page, err := c.Sessions(c, c.who, store.SessionFilter{User: c.who.User, Limit: completed})
	names, err := listed(page.Sessions, func(s store.SessionInfo) string {
		if s.Name != "" {
			return offered(s.Name, s.Title)
		}
		return offered(short(s.ID), s.Title)
	}, err)
	return append(names, "last"), err
}

func ownApprovals(c call) ([]string, error) {
	all, err := c.Approvals(c, c.who)
	all = slices.DeleteFunc(all, func(v *service.Approval) bool { return v.User != c.who.User })
	names, err := listed(all, func(v *service.Approval) string {
		return offered(short(v.ID), callsText(v))
	}, err)
	return append(names[:min(len(names), completed)], "last"), err
}

func ownRemembered(c call) ([]string, error) {
	all, err := c.Policy.Remembered(c, c.who, false, completed)
	all = slices.DeleteFunc(all, func(m store.Remembered) bool { return m.User != c.who.User })
	return listed(all, func(m store.Remembered) string { return offered(short(m.ID), m.Tool) }, err)
}

func agentNames(c call) ([]string, error) { return c.Env.Config.AgentNames(), nil }

func modelNames(c call) ([]string, error) { return c.Models.ModelNames(), nil }

func serverNames(c call) ([]string, error) { return c.MCP.SignInNames(), nil }

func userNames(c call) ([]string, error) {
	users, err := c.People.Users(c, c.who)
	return listed(users, func(u people.User) string { return u.Name }, err)
}

func groupNames(c call) ([]string, error) {
	groups, err := c.People.Groups(c, c.who)
	return listed(groups, func(g people.Group) string { return g.Name }, err)
}

func secretNames(c call) ([]string, error) {
	list, err := c.Env.Secrets(c.who)
	return listed(list, func(s secret.Info) string { return s.Name }, err)
}

func skillNames(c call) ([]string, error) {
	k, err := c.Policy.Skills(nil)
	if err != nil {
		return nil, err
	}
	return k.Names(), nil
}

func (a *app) toolNames(c call) ([]string, error) {
	n, err := a.namesNow(c.Env.Config)
	return n.tools, err
}

func (a *app) toolGroups(c call) ([]string, error) {
	n, err := a.namesNow(c.Env.Config)
	return n.groups, err
}

func (a *app) toolChoices(c call) ([]string, error) {
	n, err := a.namesNow(c.Env.Config)
	return append([]string{toolcrib.ChoiceAuto, toolcrib.ChoiceNone, toolcrib.ChoiceRequired}, n.tools...), err
}

func providerNames(c call) ([]string, error) { return c.Env.Config.ProviderNames(), nil }

// namesKnown are the valid names in lists of tools, grants and tokens.
type namesKnown struct{ tools, groups, agents []string }

// namesNow returns the names that exist under a configuration. Of the tools it uses only their
// specifications.
func (a *app) namesNow(c *config.Config) (n namesKnown, err error) {
	specs, err := a.about(c).Policy.ToolSpecs()
	if err != nil {
		return n, err
	}
	for _, spec := range specs {
		n.tools = append(n.tools, spec.Name)
		if spec.Group != "" && !slices.Contains(n.groups, spec.Group) {
			n.groups = append(n.groups, spec.Group)
		}
	}
	n.agents = slices.Sorted(maps.Keys(c.Agents))
	return n, nil
}

// missing reports that a name or glob matches nothing. It returns "" if it matches something.
func missing(what, pattern string, names ...string) string {
	for _, name := range names {
		if fits, err := path.Match(pattern, name); err == nil && fits {
			return ""
		}
	}
	return fmt.Sprintf("there is no %s %q now%s", what, pattern, guard.DidYouMean(pattern, names))
}

// missingGrant reports that a grant matches nothing. The names of tables are not checked: only their
// database knows them.
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

// tellUnknown reports names in flags that match nothing yet. They are kept: what they name may be added
// later. If the configuration cannot be read, it reports nothing.
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

// tellGrants reports the grants that match nothing.
func (a *app) tellGrants(grants []string) {
	a.tellUnknown("--grant", grants, (*namesKnown).missingGrant)
}

// unknownInConfig returns notices of the tool names in a configuration that match no tool now, with their positions,
// and errors of those that no tool can have.
func (a *app) unknownInConfig(c *config.Config) (all []string, wrong config.Errors, err error) {
	n, err := a.namesNow(c)
	if err != nil {
		return nil, nil, err
	}
	add := func(key, problem string) {
		if problem == "" {
			return
		}
		if at := c.Position(key); c.IsSet(key) {
			key = at + ": " + key
		}
		all = append(all, key+": "+problem)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Agents)) {
		for i, tool := range c.Agents[name].Tools {
			add(fmt.Sprintf("%s.tools[%d]", config.JoinKey("agents", name), i), missing("tool", tool, n.tools...))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Tools.Settings)) {
		add(config.JoinKey("tools.settings", name), missing("tool", name, n.tools...))
	}
	for _, name := range c.OfferNames() {
		tool := c.Bus.Offers[name].Tool
		problem := missing("tool", tool, append(c.BoundNames(), n.tools...)...)
		switch {
		case tool == "" || problem == "" || config.BuiltInTool(tool) == tool:
		case len(c.MCPServers) == 0:
			wrong = append(wrong, c.OfferError(name, "tool", problem))
		default:
			add(config.JoinKey("bus.offers", name)+".tool", problem)
		}
	}
	return all, wrong, nil
}
