package ui

import (
	"strconv"

	"github.com/toolcrib/toolcrib"
)

// basicRoutes returns the routes that all pages need.
func basicRoutes() []Route {
	return []Route{
		{Pattern: "GET /assets/{version}/{file...}", Open: true, do: serveAsset},
		{Pattern: "GET /favicon.ico", Open: true, do: func(p *page) error {
			p.R.SetPathValue("file", "icon.svg")
			return serveAsset(p)
		}},
		{Pattern: "POST /preferences", Open: true, do: setPreference},
	}
}

// errNoPage is the error for an address without a page.
func errNoPage(p *page) error {
	return toolcrib.Errorf(toolcrib.CodeNotFound, "no page %s", strconv.Quote(p.R.URL.Path))
}
