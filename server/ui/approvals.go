package ui

import "net/http"

// approvalRoutes returns the routes of the page approvals.
func approvalRoutes() []Route {
	return []Route{
		{Pattern: "GET /approvals", do: func(p *page) error { return p.render("approvals", http.StatusOK, nil) }},
	}
}
