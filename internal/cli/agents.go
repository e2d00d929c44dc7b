package cli

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
)

func (a *app) agentsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "agents",
		Short:   "List and show the agents of the configuration",
		Example: "toolcrib agents list\ntoolcrib agents show default",
		Args:    cobra.ArbitraryArgs,
		RunE:    group,
	}
	cmd.AddCommand(a.agentsListCommand(), a.agentsShowCommand())
	return cmd
}

// agentView is an agent in the words of the configuration.
type agentView struct {
	Name            string          `json:"name"`
	Position        string          `json:"position"` // where it is configured; default = nowhere
	Description     string          `json:"description"`
	Model           string          `json:"model"` // "" = the first that is found
	Fallback        []string        `json:"fallback"`
	System          string          `json:"system"`
	Temperature     *float64        `json:"temperature"`
	MaxOutputTokens *int            `json:"max_output_tokens"`
	Tools           []string        `json:"tools"` // null = no restriction
	Skills          []string        `json:"skills"`
	ToolChoice      any             `json:"tool_choice"`
	OutputSchema    json.RawMessage `json:"output_schema"`
	OnDenial        string          `json:"on_denial"`
	Limits          limitsView      `json:"limits"`
	Budget          budgetView      `json:"budget"`
	Taint           taintView       `json:"taint"`
	ReadOnly        bool            `json:"read_only"`
	Context         contextView     `json:"context"`
}

type (
	limitsView struct {
		MaxIterations     int    `json:"max_iterations"`
		OnLimit           string `json:"on_limit"`
		MaxParallel       int    `json:"max_parallel"`
		MaxCallsPerTurn   int    `json:"max_calls_per_turn"`
		MaxIdenticalCalls int    `json:"max_identical_calls"`
		ToolTimeout       string `json:"tool_timeout"`
		MaxResultBytes    int    `json:"max_result_bytes"`
		MaxDepth          int    `json:"max_depth"`
		WallTime          string `json:"wall_time"`
		MaxTreeRuns       int    `json:"max_tree_runs"`
		MaxTreeRequests   int    `json:"max_tree_requests"`
		MaxTreeBytes      int64  `json:"max_tree_bytes"`
	}
	budgetView struct {
		MaxCostUSD  float64 `json:"max_cost_usd"`
		MaxTokens   int64   `json:"max_tokens"`
		MaxRequests int     `json:"max_requests"`
		Mode        string  `json:"mode"`
	}
	taintView struct {
		Writes string `json:"writes"`
	}
	contextView struct {
		Strategy   string  `json:"strategy"`
		KeepRecent float64 `json:"keep_recent"`
	}
)

func viewOfAgent(c *config.Config, name string) agentView {
	g := c.Agents[name]
	v := agentView{
		Name: name, Position: c.Position(config.JoinKey("agents", name)), Description: g.Description, Model: g.Model, Fallback: g.Fallback,
		System: g.System.String(), Temperature: g.Temperature, MaxOutputTokens: g.MaxOutputTokens,
		Tools: g.Tools, Skills: g.Skills, ToolChoice: choiceView(toolcrib.ToolChoice(g.ToolChoice)), OutputSchema: json.RawMessage(g.OutputSchema),
		OnDenial: g.OnDenial, ReadOnly: g.ReadOnly,
		Limits: limitsView{
			MaxIterations: g.Limits.MaxIterations, OnLimit: g.Limits.OnLimit, MaxParallel: g.Limits.MaxParallel,
			MaxCallsPerTurn: g.Limits.MaxCallsPerTurn, MaxIdenticalCalls: g.Limits.MaxIdenticalCalls,
			ToolTimeout: g.Limits.ToolTimeout.String(), MaxResultBytes: g.Limits.MaxResultBytes,
			MaxDepth: g.Limits.MaxDepth, WallTime: g.Limits.WallTime.String(),
			MaxTreeRuns: g.Limits.MaxTreeRuns, MaxTreeRequests: g.Limits.MaxTreeRequests, MaxTreeBytes: g.Limits.MaxTreeBytes,
		},
		Budget: budgetView{
			MaxCostUSD: g.Budget.MaxCostUSD, MaxTokens: g.Budget.MaxTokens,
			MaxRequests: g.Budget.MaxRequests, Mode: g.Budget.Mode,
		},
		Taint:   taintView{Writes: g.Taint.Writes},
		Context: contextView{Strategy: g.Context.Strategy, KeepRecent: g.Context.KeepRecent},
	}
	if v.Model == "" {
		v.Model = c.Agents[config.DefaultAgent].Model
	}
	return v
}

// choiceView writes a tool choice as the configuration does.
func choiceView(choice toolcrib.ToolChoice) any {
	switch choice.Mode {
	case "":
		return toolcrib.ChoiceAuto
	case toolcrib.ChoiceName:
		return map[string]string{"name": choice.Name}
	}
	return choice.Mode
}

func (a *app) agentsListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the agents",
		Example: "toolcrib agents list\ntoolcrib agents list --json",
		Args:    positional,
		RunE: func(*cobra.Command, []string) error {
			c, err := a.configuration()
			if err != nil {
				return err
			}
			views := make([]agentView, 0, len(c.Agents))
			rows := [][]string{{"AGENT", "MODEL", "TOOLS", "ROUNDS", "DESCRIPTION", "SYSTEM"}}
			for _, name := range c.AgentNames() {
				v := viewOfAgent(c, name)
				views = append(views, v)
				rows = append(rows, []string{name, orFound(v.Model), toolsText(v.Tools), fmt.Sprint(v.Limits.MaxIterations), v.Description, v.System})
			}
			if asJSON {
				return printJSON(a.out, views, true)
			}
			a.outStyle.Table(a.out, rows)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON value")
	return cmd
}

func orFound(model string) string {
	if model == "" {
		return "(the first that is found)"
	}
	return model
}

func toolsText(tools []string) string {
	switch {
	case tools == nil:
		return "all"
	case len(tools) == 0:
		return "none"
	}
	return strings.Join(tools, ",")
}

func (a *app) agentsShowCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "show NAME",
		Short:   "Show an agent as it would run",
		Example: "toolcrib agents show default\ntoolcrib agents show default --json",
		Args:    positional,
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := a.configuration()
			if err != nil {
				return err
			}
			if _, ok := c.Agents[args[0]]; !ok {
				text := fmt.Sprintf("not found: there is no agent %q", args[0])
				if near := nearest(args[0], c.AgentNames()); near != "" {
					text += fmt.Sprintf("; did you mean %q?", near)
				}
				return fmt.Errorf("%s", text)
			}
			v := viewOfAgent(c, args[0])
			if asJSON {
				return printJSON(a.out, v, true)
			}
			a.showAgent(v)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON value")
	return cmd
}

func (a *app) showAgent(v agentView) {
	s := a.outStyle
	fmt.Fprintf(a.out, "%s  %s\n\n", s.Bold(guard.Visible(v.Name)), s.Dim(guard.Visible(v.Position)))
	rows := [][2]string{
		{"description", v.Description},
		{"model", orFound(v.Model)},
		{"fallback", strings.Join(v.Fallback, ", ")},
		{"system", v.System},
		{"tools", toolsText(v.Tools)},
		{"skills", strings.Join(v.Skills, ", ")},
		{"tool_choice", jsonText(v.ToolChoice)},
		{"on_denial", v.OnDenial},
		{"read_only", fmt.Sprint(v.ReadOnly)},
		{"limits", fieldsText(v.Limits)},
		{"budget", fieldsText(v.Budget)},
		{"taint", fieldsText(v.Taint)},
		{"context", fieldsText(v.Context)},
	}
	if v.Temperature != nil {
		rows = append(rows, [2]string{"temperature", fmt.Sprint(*v.Temperature)})
	}
	if v.MaxOutputTokens != nil {
		rows = append(rows, [2]string{"max output", fmt.Sprint(*v.MaxOutputTokens)})
	}
	for _, row := range rows {
		if row[1] != "" {
			fmt.Fprintf(a.out, "%s %s\n", s.Dim(fmt.Sprintf("%-12s", row[0])), guard.Visible(row[1]))
		}
	}
}

func jsonText(v any) string {
	if text, ok := v.(string); ok {
		return text
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(raw)
}

// fieldsText is a section on one line: max_iterations 20, on_limit finalize, …
func fieldsText(v any) string {
	text := strings.Trim(jsonText(v), "{}")
	return strings.NewReplacer(`"`, "", ":", " ", ",", ", ").Replace(text)
}
