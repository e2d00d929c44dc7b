package server

import (
	"net/http"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/server/ui"
)

// pages registers the web pages.
func (s *Server) pages() (err error) {
	s.ui, err = ui.New(ui.Options{Pool: s.pool, Web: s.web, Log: s.Log, Version: s.Version, Readable: s.readable})
	if err != nil {
		return err
	}
	cross := http.NewCrossOriginProtection()
	for _, one := range s.ui.Routes() {
		r := route{path: one.Pattern, open: one.Open, page: &one}
		if one.Admin {
			r = forAdministrators(r)
		}
		s.mux.Handle(one.Pattern, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if err := cross.Check(q); err != nil { // a page of another site sent it
				s.ui.Fail(s.asked(w, q), toolcrib.Errorf(toolcrib.CodeForbidden, "the request came from a page of another site"))
				return
			}
			s.serve(w, q, &r)
		}))
	}
	return nil
}

// asked returns a request for a page without a principal.
func (s *Server) asked(w http.ResponseWriter, r *http.Request) ui.Request {
	return ui.Request{Context: r.Context(), Service: s.Service.Current(), ID: w.Header().Get("X-Request-ID"), W: w, R: r}
}

// onPage returns the request of a call for a page.
func (c *call) onPage() ui.Request {
	q := c.Server.asked(c.w, c.r)
	q.Context, q.Service, q.Who = c, c.Service, c.who
	q.R = c.r.WithContext(c.r.Context()) // forms are read into a request of its own: watchTokens reads the other
	return q
}

// readable implements [ui.Options.Readable].
func (s *Server) readable(r ui.Request, err error) *toolcrib.Error {
	c := &call{Context: r.Context, Server: s, Service: r.Service, w: r.W, r: r.R, who: r.Who}
	e := *c.known(err, r.ID)
	e.Message = s.failure(&e, r.ID).Message
	return &e
}

// wantsPage reports whether a request is that of a browser for an address that a person entered or followed.
func wantsPage(r *http.Request) bool {
	ofPrograms := func(prefix string) bool { return strings.HasPrefix(r.URL.Path, prefix) }
	if slices.ContainsFunc([]string{"/api/", "/v1/", "/mcp"}, ofPrograms) {
		return false
	}
	return r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html")
}
