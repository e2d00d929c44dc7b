package ui

import "net/http"

// usageRoutes returns the routes of the page usage.
func usageRoutes() []Route {
	return []Route{
		{Pattern: "GET /usage", do: func(p *page) error { return p.render("usage", http.StatusOK, nil) }},
	}
}
