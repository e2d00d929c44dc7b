package ui

import "net/http"

// runRoutes returns the routes of the page runs.
func runRoutes() []Route {
	return []Route{
		{Pattern: "GET /runs", do: func(p *page) error { return p.render("runs", http.StatusOK, nil) }},
	}
}
