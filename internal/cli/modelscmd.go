package cli

import (
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/internal/config"
)

func (a *app) modelsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "models",
		Short:   "List the models and their prices",
		Example: "toolcrib models list",
		Args:    cobra.ArbitraryArgs,
		RunE:    group,
	}
	cmd.AddCommand(a.modelsListCommand())
	return cmd
}

// modelView is a model that a run may name.
type modelView struct {
	Name      string     `json:"name"` // as agents and --model name it
	Provider  string     `json:"provider"`
	Type      string     `json:"type"`
	Model     string     `json:"model"`
	Price     *priceView `json:"price"` // in US dollars per 1M tokens; null = unknown
	Context   int        `json:"context"`
	Tools     string     `json:"tools"`
	Reasoning string     `json:"reasoning"`
	Supported bool       `json:"supported"` // this version can speak to it
	Detected  string     `json:"detected"`  // why it is used where none is configured
}

type priceView struct {
	Input       float64 `json:"input"`
	CachedInput float64 `json:"cached_input"`
	CacheWrite  float64 `json:"cache_write"`
	Output      float64 `json:"output"`
}

func viewOfModel(r config.ResolvedModel) modelView {
	info := infoOf(r)
	v := modelView{
		Name: r.Ref, Provider: r.ProviderName, Type: r.Provider.Type, Model: r.ID, Context: r.Context,
		Tools: r.Tools, Reasoning: r.Reasoning, Supported: supportedType(r.Provider.Type),
	}
	if info.Price.Known {
		v.Price = &priceView{
			Input: info.Price.Input, CachedInput: info.Price.CachedInput,
			CacheWrite: info.Price.CacheWrite, Output: info.Price.Output,
		}
	}
	return v
}

func (a *app) modelsListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the models that are configured or found, with prices",
		Long:    "List the models that are configured, those that agents name, and the one that is used where none is configured. Prices are in US dollars per 1M tokens; ? = unknown.",
		Example: "toolcrib models list\ntoolcrib models list --json",
		Args:    positional,
		RunE: func(*cobra.Command, []string) error {
			c, err := a.configuration()
			if err != nil {
				return err
			}
			views, err := modelViews(c)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(a.out, views, true)
			}
			rows := [][]string{{"NAME", "PROVIDER", "MODEL", "INPUT", "CACHED", "OUTPUT", "TOOLS", "NOTE"}}
			for _, v := range views {
				rows = append(rows, modelRow(v))
			}
			a.outStyle.Table(a.out, rows)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON value")
	return cmd
}

// modelViews are the configured models, those that only agents name, and the one
// that is found.
func modelViews(c *config.Config) ([]modelView, error) {
	refs := c.ModelNames()
	seen := make(map[string]bool, len(refs))
	for _, ref := range refs {
		seen[ref] = true
	}
	for _, name := range c.AgentNames() {
		for _, ref := range append([]string{c.Agents[name].Model}, c.Agents[name].Fallback...) {
			if ref != "" && !seen[ref] {
				seen[ref] = true
				refs = append(refs, ref)
			}
		}
	}
	views := make([]modelView, 0, len(refs)+1)
	for _, ref := range refs {
		r, err := c.ResolveModel(ref)
		if err != nil {
			return nil, usagef("%v", err)
		}
		views = append(views, viewOfModel(r))
	}
	found := c.DetectModel(config.Surroundings{LookupEnv: os.LookupEnv}, supportedType)
	v := viewOfModel(found.Model)
	v.Detected = found.Why
	if seen[v.Name] {
		return views, nil
	}
	return append(views, v), nil
}

func modelRow(v modelView) []string {
	note := ""
	switch {
	case !v.Supported:
		note = "provider type " + v.Type + " is not supported by this version"
	case v.Type == config.TypeOffline && v.Detected != "":
		note = "used where no model is configured"
	case v.Detected != "":
		note = "used where no model is configured: " + v.Detected
	}
	in, cached, out := "?", "?", "?"
	if v.Price != nil {
		in, cached, out = priceText(v.Price.Input), priceText(v.Price.CachedInput), priceText(v.Price.Output)
	}
	return []string{v.Name, fmt.Sprintf("%s (%s)", v.Provider, v.Type), v.Model, in, cached, out, v.Tools, note}
}

func priceText(usd float64) string { return "$" + strconv.FormatFloat(usd, 'f', -1, 64) }
