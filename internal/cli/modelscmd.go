package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/provider/catalog"
	"github.com/toolcrib/toolcrib/service"
)

func (a *app) modelsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "models",
		Short:   "List the models and their prices, and refresh these",
		Example: "toolcrib models list\ntoolcrib models refresh catwalk.json",
		Args:    cobra.ArbitraryArgs,
		RunE:    group,
	}
	cmd.AddCommand(a.modelsListCommand(), a.modelsRefreshCommand())
	return cmd
}

// modelView is a model that a run may name.
type modelView struct {
	Name      string     `json:"name"` // as agents and --model name it
	Provider  string     `json:"provider"`
	Type      string     `json:"type"`
	Model     string     `json:"model"`
	Price     *priceView `json:"price"`      // in US dollars per 1M tokens; null = unknown
	Context   int        `json:"context"`    // tokens; 0 = unknown
	MaxOutput int        `json:"max_output"` // tokens of a reply; 0 = unknown
	Tools     string     `json:"tools"`
	Files     *bool      `json:"files"` // whether it takes images; null = unknown
	Reasoning string     `json:"reasoning"`
	Supported bool       `json:"supported"` // this version can speak to it
	Detected  string     `json:"detected"`  // why it is used where none is configured
	From      string     `json:"from"`      // configured | detected | known: the list of prices has it
}

type priceView struct {
	Input       float64 `json:"input"`
	CachedInput float64 `json:"cached_input"`
	CacheWrite  float64 `json:"cache_write"`
	Output      float64 `json:"output"`
}

// Where a model of a list comes from.
const (
	fromConfig   = "configured"
	fromDetected = "detected"
	fromKnown    = "known"
)

func (a *app) viewOfModel(r config.ResolvedModel, from string) modelView {
	info := a.service.InfoOf(r, a.note)
	v := modelView{
		Name: r.Ref, Provider: r.ProviderName, Type: r.Provider.Type, Model: r.ID, Context: info.Context, MaxOutput: info.MaxOutput,
		Tools: r.Tools, Reasoning: r.Reasoning, Supported: service.SupportedType(r.Provider.Type), From: from,
	}
	if known, ok := a.service.Lookup(r.Provider, r.ID, a.note); ok && !known.Local {
		v.Files = &known.Attachments
	}
	if info.Price.Known {
		v.Price = &priceView{
			Input: info.Price.Input, CachedInput: info.Price.CachedInput,
			CacheWrite: info.Price.CacheWrite, Output: info.Price.Output,
		}
	}
	return v
}

type modelsFlags struct {
	provider   string
	configured bool
	json       bool
}

func (a *app) modelsListCommand() *cobra.Command {
	var f modelsFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the models: configured, found and known ones, with prices",
		Long: "List the models that are configured, those that agents name, the one that is used where none is configured, and " +
			"those that the list of prices knows of the providers among these. Prices are in US dollars per 1M tokens; ? = unknown.",
		Example: "toolcrib models list\ntoolcrib models list --provider anthropic\ntoolcrib models list --configured --json",
		Args:    positional,
		RunE: func(*cobra.Command, []string) error {
			kept, err := a.svc()
			if err != nil {
				return err
			}
			c := kept.Config
			views, err := a.modelViews(c, &f)
			if err != nil {
				return err
			}
			if f.json {
				return printJSON(a.out, views, true)
			}
			a.tellModels(views)
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.provider, "provider", "", "only models of this provider; one that is not configured is listed too")
	flags.BoolVar(&f.configured, "configured", false, "without those that are only known")
	flags.BoolVar(&f.json, "json", false, "one JSON value")
	return cmd
}

func (a *app) tellModels(views []modelView) {
	narrow := a.outTerminal && a.outStyle.Width < wideList
	rows := [][]string{{"NAME", "PROVIDER", "INPUT", "CACHED", "OUTPUT", "CONTEXT", "TOOLS", "NOTE"}}
	if narrow {
		rows = [][]string{{"NAME", "INPUT", "OUTPUT", "CONTEXT", "NOTE"}}
	}
	for _, v := range views {
		row := modelRow(v)
		if narrow {
			row = []string{row[0], row[2], row[4], row[5], row[7]}
		}
		rows = append(rows, row)
	}
	a.outStyle.Table(a.out, rows)
	info := a.service.KnownModels(a.note).Info()
	a.notice("prices in US dollars per 1M tokens, from %s%s%s; refresh them with: toolcrib models refresh FILE", info.Source, dated(info), besides(info))
}

// besides names the list that toolcrib brings, where another one counts before it.
func besides(info catalog.Info) string {
	brought := catalog.Embedded().Info()
	if info.Source == brought.Source && info.Date == brought.Date {
		return ""
	}
	return ", and where that says nothing from the list that this version brings" + dated(brought)
}

func dated(info catalog.Info) string {
	if info.Date == "" {
		return ""
	}
	return " of " + info.Date
}

// modelViews are the configured models, those that only agents name, the one that
// is found, and those that are known of the providers among these.
func (a *app) modelViews(c *config.Config, f *modelsFlags) ([]modelView, error) {
	refs := c.ModelNames()
	seen := make(map[string]bool, len(refs)) // by name, and by PROVIDER/MODEL
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
		seen[r.Name()] = true
		views = append(views, a.viewOfModel(r, fromConfig))
	}
	found := a.service.Detect(false)
	if !seen[found.Model.Ref] {
		seen[found.Model.Name()] = true
		v := a.viewOfModel(found.Model, fromDetected)
		v.Detected = found.Why
		views = append(views, v)
	}
	if !f.configured {
		known, err := a.knownOf(c, views, seen, f.provider)
		if err != nil {
			return nil, err
		}
		views = append(views, known...)
	}
	return slices.DeleteFunc(views, func(v modelView) bool { return f.provider != "" && v.Provider != f.provider }), nil
}

// knownOf are the models that the catalog has of the configured providers, of
// those that views name, and of the one that is asked for.
func (a *app) knownOf(c *config.Config, views []modelView, seen map[string]bool, asked string) ([]modelView, error) {
	names := c.ProviderNames()
	for _, v := range views {
		names = append(names, v.Provider)
	}
	if asked != "" {
		names = append(names, asked)
	}
	slices.Sort(names)
	var out []modelView
	for _, name := range slices.Compact(names) {
		any, err := c.ResolveModel(name + "/x")
		if err != nil {
			return nil, usagef("--provider: %v", err)
		}
		for known := range a.service.KnownModels(a.note).All() {
			found, ok := a.service.Lookup(any.Provider, known.ID, a.note)
			if !ok || found.Local || found.Assumed || found.Provider != known.Provider || found.ID != known.ID || seen[name+"/"+known.ID] {
				continue
			}
			r, err := c.ResolveModel(name + "/" + known.ID)
			if err != nil {
				return nil, usagef("%v", err)
			}
			seen[r.Name()] = true
			out = append(out, a.viewOfModel(r, fromKnown))
		}
	}
	return out, nil
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
	return []string{v.Name, fmt.Sprintf("%s (%s)", v.Provider, v.Type), in, cached, out, context, cmp.Or(v.Tools, "native"), note}
}

func priceText(usd float64) string { return "$" + strconv.FormatFloat(usd, 'f', -1, 64) }
