package cli

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/provider/catalog"
	"github.com/toolcrib/toolcrib/service"
)

func (a *app) modelsListCommand(cmd *cobra.Command) {
	provider := cmd.Flags().String("provider", "", "")
	configured := cmd.Flags().Bool("configured", false, "")
	a.answering(cmd, a.knowing, func(c call) (any, func(), error) {
		list, err := c.at.Models(c.who, *provider, *configured)
		return list, func() { a.showModels(list) }, err
	})
}

func (a *app) showModels(list []service.Model) {
	head, row := "NAME|PROVIDER|INPUT|CACHED|OUTPUT|CONTEXT|TOOLS|NOTE", modelRow
	if a.outTerminal && a.outStyle.Width < wideList {
		head, row = "NAME|INPUT|OUTPUT|CONTEXT|NOTE", func(m *service.Model) []string {
			r := modelRow(m)
			return []string{r[0], r[2], r[4], r[5], r[7]}
		}
	}
	table(a, head, list, row)
	if a.remote != nil {
		return // the server has a list of prices of its own
	}
	info := a.service.KnownModels().Info()
	a.notice("prices in US dollars per 1M tokens, from %s%s%s; refresh them with: toolcrib models refresh FILE",
		info.Source, dated(info), besides(info))
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

func modelRow(v *service.Model) []string {
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
	return []string{
		v.Name, fmt.Sprintf("%s (%s)", v.Provider, v.Type), in, cached, out, context,
		cmp.Or(v.Tools, "native"), note,
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
		info, err := c.RefreshModels(c.who, in)
		if err != nil {
			return nil, nil, ofFile(err, c.args[0])
		}
		return info, func() {
			fmt.Fprintf(a.out, "%s of %s%s, kept in %s\n", render.Count(info.Models, "model"), guard.Visible(info.Source),
				dated(info), pathText(c.CatalogPath()))
		}, nil
	})
}
