package ui

import "net/http"

// accountRoutes returns the routes of the page account.
func accountRoutes() []Route {
	return []Route{
		{Pattern: "GET /account", do: func(p *page) error { return p.render("account", http.StatusOK, nil) }},
	}
}
