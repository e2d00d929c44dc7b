package ui

import (
	"net/http"
	"net/url"

	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
)

// sessionsView is the data of the template sessions.
type sessionsView struct {
	Sessions []store.SessionInfo
	User     string
	Others   bool // sessions of others can be shown
	Next     string
}

func listSessions(p *page) error {
	form := p.R.URL.Query()
	v := sessionsView{User: form.Get("user"), Others: env.Admin(p.Who)}
	found, err := p.Service.Sessions(p, p.Who, store.SessionFilter{User: v.User, Cursor: form.Get("cursor")})
	if err != nil {
		return err
	}
	v.Sessions = found.Sessions
	if found.Next != "" {
		next := url.Values{"cursor": {found.Next}}
		if v.User != "" {
			next.Set("user", v.User)
		}
		v.Next = "/sessions?" + next.Encode()
	}
	return p.render("sessions", http.StatusOK, v)
}
