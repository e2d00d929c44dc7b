package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/client"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/server"
	"github.com/toolcrib/toolcrib/service"
)

func (a *app) agentsListCommand(cmd *cobra.Command) {
	a.answering(cmd, a.knowing, func(c call) (any, func(), error) {
		list, err := a.agents(c)
		if err != nil {
			return nil, nil, err
		}
		return list, func() {
			table(a, "AGENT|MODEL|TOOLS|ROUNDS|DESCRIPTION|SYSTEM", list, func(g *shownAgent) []string {
				return []string{
					g.Name, orFound(g.Model), toolsText(g.Tools), fmt.Sprint(g.Limits.MaxIterations), g.Description,
					g.System,
				}
			})
		}, nil
	})
}

// shownAgent is an agent as the service writes it, which is what a server sends.
type shownAgent struct {
	Name        string   `json:"name"`
	Position    string   `json:"position"`
	Model       string   `json:"model"`
	Description string   `json:"description"`
	System      string   `json:"system"`
	Tools       []string `json:"tools"`
	Limits      struct {
		MaxIterations int `json:"max_iterations"`
	} `json:"limits"`
	raw json.RawMessage
}

// MarshalJSON implements [json.Marshaler].
func (g shownAgent) MarshalJSON() ([]byte, error) { return g.raw, nil }

func (a *app) agents(c call) (shown []shownAgent, err error) {
	var list struct {
		Agents []json.RawMessage `json:"agents"`
	}
	if a.remote != nil {
		err = a.remote.Get(c, client.Path("agents"), nil, &list)
	} else {
		var known []service.Agent
		var text []byte
		if known, err = c.Agents(c.who); err == nil {
			text, err = json.Marshal(server.AgentList{Agents: known})
		}
		if err == nil {
			err = json.Unmarshal(text, &list)
		}
	}
	shown = make([]shownAgent, len(list.Agents))
	for i, raw := range list.Agents {
		if err == nil {
			err = json.Unmarshal(raw, &shown[i])
		}
		shown[i].raw = raw
	}
	return shown, err
}

func orFound(model string) string { return cmp.Or(model, "(the first that is found)") }

func toolsText(tools []string) string {
	switch {
	case tools == nil:
		return "all"
	case len(tools) == 0:
		return "none"
	}
	return strings.Join(tools, ",")
}

func (a *app) agentsShowCommand(cmd *cobra.Command) {
	a.answering(cmd, a.knowing, func(c call) (any, func(), error) {
		list, err := a.agents(c)
		if err != nil {
			return nil, nil, err
		}
		i := slices.IndexFunc(list, func(g shownAgent) bool { return g.Name == c.args[0] })
		if i < 0 {
			text := fmt.Sprintf("there is no agent %q", c.args[0])
			names, _ := listed(list, func(g shownAgent) string { return g.Name }, nil)
			if near := nearest(c.args[0], names); near != "" {
				text += fmt.Sprintf("; did you mean %q?", near)
			}
			return nil, nil, toolcrib.Errorf(toolcrib.CodeNotFound, "%s", text)
		}
		return list[i], func() { a.showAgent(&list[i]) }, nil
	})
}

// showAgent writes a line for each key that says something; a section of it on one line:
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
		a.fields(17, [2]string{fmt.Sprint(name), text})
	}
}
