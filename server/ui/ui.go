// Package ui has the web pages of toolcrib: HTML from templates, a style sheet and small JavaScript modules. Pages
// show the answers of the service to the person who is signed in, and send decisions; they make none. Whatever a
// model, a tool or a file wrote is escaped or sanitized, and no page has code of its own: the modules are files, and
// the Content-Security-Policy permits nothing else.
package ui

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/server/websession"
	"github.com/toolcrib/toolcrib/service"
)

// Options configure the pages.
type Options struct {
	Pool    *service.Pool
	Web     *websession.Sessions
	Log     *slog.Logger
	Version string
	// Readable returns an error as who may read it. It logs the rest, under the ID of the request.
	Readable func(r Request, err error) *toolcrib.Error
}

// UI has the pages.
type UI struct {
	Options
	templates *templates
	assets    *assets
	texts     texts
	streams   streams
}

// Request is a request for a page.
type Request struct {
	// Context ends when the client disconnects, or Who loses the rights that it had at the beginning.
	context.Context
	Service *service.Service // uses the configuration in effect when the request arrived
	Who     toolcrib.Principal
	ID      string
	W       http.ResponseWriter
	R       *http.Request
}

// Route is a page, or an action of a page.
type Route struct {
	Pattern string // of [http.ServeMux], with the method
	Open    bool   // needs no sign-in
	Admin   bool   // only for administrators
	do      func(*page) error
}

// New returns the pages.
func New(o Options) (*UI, error) {
	u := &UI{Options: o}
	var err error
	if u.texts, err = readTexts(files); err != nil {
		return nil, err
	}
	if u.assets, err = readAssets(files); err != nil {
		return nil, err
	}
	u.templates, err = readTemplates(files, u.texts, u.assets)
	return u, err
}

// Routes returns all routes.
func (u *UI) Routes() []Route {
	var all []Route
	for _, some := range [][]Route{
		basicRoutes(), playgroundRoutes(), runRoutes(), approvalRoutes(), toolRoutes(), usageRoutes(),
		accountRoutes(), signInRoutes(),
	} {
		all = append(all, some...)
	}
	return all
}

// Serve answers a request of a route.
func (u *UI) Serve(to Route, r Request) {
	p := u.page(r)
	err := p.readForm()
	if err == nil {
		err = to.do(p)
	}
	if err != nil && !p.wrote {
		p.fail(err)
	}
}

// Fail answers a request with a page about an error.
func (u *UI) Fail(r Request, err error) { u.page(r).fail(err) }
