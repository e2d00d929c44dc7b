package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/client"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/providers"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/provider/catalog"
	"github.com/toolcrib/toolcrib/server"
	"github.com/toolcrib/toolcrib/service/policy"
)

func (a *app) agentsListCommand(cmd *cobra.Command) {
	listing(a, cmd, a.knowing, "AGENT|MODEL|TOOLS|ROUNDS|DESCRIPTION|SYSTEM",
		func(c call) ([]shownAgent, error) { return a.agents(c, c.who) },
		func(g *shownAgent) []string {
			rounds := ""
			if n := g.Limits.MaxIterations; n > 0 { // a server may not report it
				rounds = strconv.Itoa(n)
			}
			return []string{g.Name, orFound(g.Model), toolsText(g.Tools), rounds, g.Description, g.System}
		})
}

// shownAgent is an agent in the form that the service writes and a server sends.
type shownAgent struct {
	agentKeys
	raw json.RawMessage
}

type agentKeys struct {
	Name        string   `json:"name"`
	Position    string   `json:"position"`
	Model       string   `json:"model"`
	Description string   `json:"description"`
	System      string   `json:"system"`
	Tools       []string `json:"tools"`
	Limits      struct {
		MaxIterations int `json:"max_iterations"`
	} `json:"limits"`
}

// MarshalJSON implements [json.Marshaler].
func (g shownAgent) MarshalJSON() ([]byte, error) { return g.raw, nil }

// UnmarshalJSON implements [json.Unmarshaler].
func (g *shownAgent) UnmarshalJSON(raw []byte) error {
	g.raw = slices.Clone(raw)
	return json.Unmarshal(raw, &g.agentKeys)
}

func (a *app) agents(ctx context.Context, who toolcrib.Principal) ([]shownAgent, error) {
	var list struct {
		Agents []shownAgent `json:"agents"`
	}
	if a.remote != nil {
		err := a.remote.Get(ctx, client.Path("agents"), nil, &list)
		return list.Agents, err
	}
	known, err := a.service.Policy.Agents(ctx, who)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(server.AgentList{Agents: known})
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	return list.Agents, err
}

func orFound(model string) string { return cmp.Or(model, "(the first that is found)") }

func toolsText(tools []string) string { return listText(tools, ",", "all", "none") }

// listText formats a list. It returns none if list is nil, and empty if it has no elements.
func listText(list []string, separator, none, empty string) string {
	switch {
	case list == nil:
		return none
	case len(list) == 0:
		return empty
	}
	return strings.Join(list, separator)
}

func (a *app) agentsShowCommand(cmd *cobra.Command) {
	a.answering(cmd, a.knowing, func(c call) (any, func(), error) {
		list, err := a.agents(c, c.who)
		if err != nil {
			return nil, nil, err
		}
		i := slices.IndexFunc(list, func(g shownAgent) bool { return g.Name == c.args[0] })
		if i < 0 {
			names, _ := listed(list, func(g shownAgent) string { return g.Name }, nil)
			return nil, nil, toolcrib.Errorf(toolcrib.CodeNotFound, "there is no agent %q%s", c.args[0],
				guard.DidYouMean(c.args[0], names))
		}
		return list[i], func() { a.showAgent(&list[i]) }, nil
	})
}

// showAgent writes a line for each key that is set, and one for each section of settings:
// max_iterations 20, on_limit finalize, …
func (a *app) showAgent(g *shownAgent) {
	fmt.Fprintf(a.out, "%s  %s\n\n", a.outStyle.Bold(guard.Visible(g.Name)), a.outStyle.Dim(guard.Visible(g.Position)))
	d := json.NewDecoder(bytes.NewReader(g.raw))
	for _, err := d.Token(); err == nil && d.More(); {
		var value json.RawMessage
		name, _ := d.Token()
		err = d.Decode(&value)
		text := ""
		switch _ = json.Unmarshal(value, &text); {
		case name == "name" || name == "position":
			continue
		case name == "model":
			text = orFound(g.Model)
		case name == "tools":
			text = toolsText(g.Tools)
		case text == "" && string(value) != `""` && string(value) != "null":
			text = strings.NewReplacer(`"`, "", ":", " ", ",", ", ").Replace(strings.Trim(string(value), "{}[]"))
		}
		a.fields(17, fmt.Sprint(name), text)
	}
}

func (a *app) modelsListCommand(cmd *cobra.Command) {
	provider := cmd.Flags().String("provider", "", "")
	configured := cmd.Flags().Bool("configured", false, "")
	a.answering(cmd, a.knowing, func(c call) (any, func(), error) {
		list, err := c.at.Models(c.who, *provider, *configured)
		return list, func() {
			a.showModels(list)
			if *provider == "" && a.remote == nil {
				a.section("Not set up", unusedProviders(list)...)
			}
		}, err
	})
}

// unusedProviders lists the types of providers without a model in a list, and how to use them.
func unusedProviders(list []api.Model) (rows [][2]string) {
	for _, t := range providers.All() {
		listed := slices.ContainsFunc(list, func(m api.Model) bool { return m.Type == t.Name })
		switch {
		case listed || t.NeedsEntry || t.InProcess:
		case t.OwnMachine:
			rows = append(rows, [2]string{t.Name, fmt.Sprintf("start it: %s (%s/NAME)", t.Start, t.Name)})
		default:
			rows = append(rows, [2]string{t.Name, fmt.Sprintf("set %s or run toolcrib init (%s/%s)",
				t.KeyVariable, t.Name, t.DefaultModel)})
		}
	}
	return rows
}

func (a *app) showModels(list []api.Model) {
	table(a, "NAME|+PROVIDER|INPUT|+CACHED|OUTPUT|CONTEXT|+TOOLS|NOTE", list, modelRow)
	if a.remote != nil {
		return // the server has its own price list
	}
	info := a.service.Models.KnownModels().Info()
	a.notice("prices in US dollars per 1M tokens, from %s%s; refresh them with: toolcrib models refresh FILE",
		info.Source, dated(info))
}

func dated(info catalog.Info) string {
	if info.Date == "" {
		return ""
	}
	return " of " + info.Date
}

func modelRow(v *api.Model) []string {
	note := ""
	switch {
	case v.Type == config.TypeOffline && v.Detected != "":
		note = "used where no model is configured"
	case v.Detected != "":
		note = "used where no model is configured: " + v.Detected
	case v.Name != v.Provider+"/"+v.Model:
		note = v.Model
	}
	in, cached, out, context := "?", "?", "?", "?"
	if v.Price != nil {
		in, cached, out = priceText(v.Price.Input), priceText(v.Price.CachedInput), priceText(v.Price.Output)
	}
	if v.Context > 0 {
		context = render.Number(int64(v.Context))
	}
	return []string{
		v.Name, fmt.Sprintf("%s (%s)", v.Provider, v.Type), in, cached, out, context, cmp.Or(v.Tools, "native"), note,
	}
}

func priceText(usd float64) string { return "$" + strconv.FormatFloat(usd, 'f', -1, 64) }

func (a *app) modelsRefreshCommand(cmd *cobra.Command) {
	a.answering(cmd, a.knowing, func(c call) (any, func(), error) {
		in, err := a.input(c.args[0])
		if err != nil {
			return nil, nil, err
		}
		defer in.Close() //nolint:errcheck // only read
		info, err := c.Models.RefreshModels(c.who, in)
		if err != nil {
			return nil, nil, ofFile(err, c.args[0])
		}
		return info, func() {
			fmt.Fprintf(a.out, "%s of %s%s, kept in %s\n", render.Count(info.Models, "model"), guard.Visible(info.Source),
				dated(info), policy.PathText(c.Models.CatalogPath()))
		}, nil
	})
}
