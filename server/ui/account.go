package ui

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/service/people"
)

// accountRoutes returns the routes of the page account, and of the pages about people.
func accountRoutes() []Route {
	return append([]Route{
		{Pattern: "GET /account", do: func(p *page) error { return p.showAccount(nil) }},
		{Pattern: "POST /account/sessions/{id}/end", do: endOwnSession},
		{Pattern: "POST /account/password", do: changePassword},
		{Pattern: "POST /account/tokens", do: makeToken},
		{Pattern: "POST /account/tokens/{id}/revoke", do: revokeOwnToken},
	}, peopleRoutes()...)
}

// accountView is the data of the template account.
type accountView struct {
	Closed      bool // the server has no sign-in
	Grants      grants
	Session     people.WebSession // of this request; the zero value if it is by a token
	Sessions    []session
	MayPassword bool // may set a password, or has one
	HasPassword bool
	Tokens      tokensView
	Said        string // key of a text; "" = none
	Left        bool   // there are valid tokens, besides the one of this request
}

// grants are the rights of a user, by kind.
type grants struct {
	All                  bool // no restriction
	Agents, Tools, Other []string
}

func grantsOf(list []string) (g grants) {
	g.All = list == nil
	for _, one := range list {
		kind, name, other := strings.Cut(one, ":")
		switch {
		case !other:
			g.Tools = append(g.Tools, one)
		case kind == "agent" && one != access.NoAgents:
			g.Agents = append(g.Agents, name)
		case kind != "agent":
			g.Other = append(g.Other, one)
		}
	}
	return g
}

// session is a session of a browser, as it is listed.
type session struct {
	people.WebSession
	Browser string // in words; "" = unknown
	Current bool
}

func sessionsOf(list []people.WebSession, current string) []session {
	all := make([]session, len(list))
	for i, w := range list {
		all[i] = session{w, browserOf(w.Agent), w.ID == current}
	}
	return all
}

// browserOf returns the names of a browser and its system, from its User-Agent.
func browserOf(agent string) string {
	first := func(names ...string) string {
		for i := 0; i < len(names); i += 2 {
			if strings.Contains(agent, names[i]) {
				return names[i+1]
			}
		}
		return ""
	}
	program := first("Edg/", "Edge", "Firefox/", "Firefox", "Chrome/", "Chrome", "Safari/", "Safari")
	system := first("Android", "Android", "iPhone", "iPhone", "iPad", "iPad", "Windows", "Windows", "Mac OS", "macOS",
		"Linux", "Linux")
	return strings.Trim(program+" · "+system, " ·")
}

// tokensView is the data of the template tokens.
type tokensView struct {
	New    *people.Token  // with its text, which is shown once
	Valid  []people.Token //
	Over   []people.Token // revoked or expired
	Agents []string       // that a token can be restricted to
	Hours  []int          // how long a new token can be valid
}

// tokenHours is for how long a token can be made on the page.
var tokenHours = []int{1, 24, 7 * 24, 30 * 24, 90 * 24, 365 * 24}

func splitTokens(all []people.Token) (v tokensView) {
	for _, t := range all {
		if t.State == people.TokenRevoked || t.State == people.TokenExpired {
			v.Over = append(v.Over, t)
		} else {
			v.Valid = append(v.Valid, t)
		}
	}
	return v
}

func (p *page) ownTokens(fresh *people.Token) (tokensView, error) {
	list, err := p.Service.People.OwnTokens(p, p.Who)
	if err != nil {
		return tokensView{}, err
	}
	v := splitTokens(list)
	v.New, v.Hours = fresh, tokenHours
	agents, err := p.Service.Policy.Agents(p, p.Who)
	for _, a := range agents {
		v.Agents = append(v.Agents, a.Name)
	}
	return v, err
}

// What the page account says about the last action.
const (
	saidPassword = "password"
	saidOthers   = "others"
)

func (p *page) showAccount(fresh *people.Token) error {
	v := accountView{Closed: p.noSignIn(), Grants: grantsOf(p.Who.Grants), Said: p.R.URL.Query().Get("said")}
	if v.Said != saidPassword && v.Said != saidOthers {
		v.Said = ""
	}
	if !v.Closed {
		if _, w, err := p.Web.Watch(p.R); err == nil && w.User == p.Who.User {
			v.Session = w
		}
		list, err := p.Service.People.WebSessions(p, p.Who, "")
		if err != nil {
			return err
		}
		v.Sessions = sessionsOf(list, v.Session.ID)
		if v.Tokens, err = p.ownTokens(fresh); err != nil {
			return err
		}
		v.Left = slices.ContainsFunc(v.Tokens.Valid, func(t people.Token) bool { return t.ID != p.Who.TokenID() })
		if p.Who.Token == "" && p.Who.Actor == "" {
			if v.HasPassword, err = p.Service.People.HasPassword(p, p.Who, p.Who.User); err != nil {
				return err
			}
			v.MayPassword = v.HasPassword || p.Who.Admin
		}
	}
	return p.render("account", http.StatusOK, v)
}

func endOwnSession(p *page) error {
	id := p.R.PathValue("id")
	_, err := p.Service.People.EndWebSession(p, p.Who, id, p.Web.Cookie(p.R))
	switch {
	case err != nil:
		return err
	case id != "others":
		return p.done("/account#sessions")
	}
	return p.revokeToo(p.Who, saidOthers)
}

// revokeToo revokes the tokens of who if the form asks for it, and shows those that remain valid.
func (p *page) revokeToo(who toolcrib.Principal, said string) error {
	if p.R.PostForm.Has("revoke") {
		if _, err := p.Service.People.RevokeOwnTokens(p, who); err != nil {
			return err
		}
	}
	return p.done("/account?said=" + said)
}

func changePassword(p *page) error {
	if p.noSignIn() {
		return bad("this server has no sign-in: server.auth is none")
	}
	old, fresh, from := p.R.PostFormValue("old"), p.R.PostFormValue("password"), p.Web.Address(p.R)
	if err := p.Service.People.ChangePassword(p, p.Who, from, old, fresh, p.Web.Cookie(p.R)); err != nil {
		return err
	}
	return p.revokeToo(p.Who, saidPassword)
}

// words returns the words of a field, which commas or spaces separate; nil if it is empty.
func words(text string) []string {
	list := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) })
	if len(list) == 0 {
		return nil
	}
	return list
}

// makeToken answers with the token itself, which is in this answer only.
func makeToken(p *page) error {
	hours, err := strconv.Atoi(p.R.PostFormValue("hours"))
	if err != nil || !slices.Contains(tokenHours, hours) {
		return bad("hours: %q is not a choice of the page", p.R.PostFormValue("hours"))
	}
	q := people.TokenRequest{Label: p.R.PostFormValue("label"), TTL: time.Duration(hours) * time.Hour, Via: "web"}
	q.Scope.Agents, q.Scope.Tools = p.R.PostForm["agent"], words(p.R.PostFormValue("tools"))
	if strings.TrimSpace(p.R.PostFormValue("tools")) != "" && q.Scope.Tools == nil {
		return bad("tools: %q names no tool", p.R.PostFormValue("tools"))
	}
	if text := p.R.PostFormValue("calls"); text != "" {
		if q.Scope.MaxCalls, err = strconv.ParseInt(text, 10, 64); err != nil || q.Scope.MaxCalls < 1 {
			return bad("calls: %q is not a number from 1 on", text)
		}
	}
	t, err := p.Service.People.CreateOwnToken(p, p.Who, q)
	if err != nil {
		return err
	}
	if !p.enhanced() {
		return p.showAccount(&t)
	}
	v, err := p.ownTokens(&t)
	if err != nil {
		return err
	}
	return p.part("account", "tokens", http.StatusOK, v)
}

func revokeOwnToken(p *page) error {
	if _, err := p.Service.People.RevokeOwnToken(p, p.Who, p.R.PathValue("id")); err != nil {
		return err
	}
	return p.done("/account#tokens")
}
