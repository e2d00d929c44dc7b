package ui

import "net/http"

// playgroundRoutes returns the routes of the page playground.
func playgroundRoutes() []Route {
	return []Route{
		{Pattern: "GET /{$}", do: func(p *page) error { return p.render("playground", http.StatusOK, nil) }},
	}
}
