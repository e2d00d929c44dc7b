package ui

import "net/http"

// toolRoutes returns the routes of the page tools.
func toolRoutes() []Route {
	return []Route{
		{Pattern: "GET /tools", do: func(p *page) error { return p.render("tools", http.StatusOK, nil) }},
	}
}
