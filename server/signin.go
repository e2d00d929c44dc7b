package server

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/server/websession"
	"github.com/toolcrib/toolcrib/service/people"
)

// signInRoutes returns the routes about signing in with a browser, and about one's own sessions and tokens.
func signInRoutes() []route {
	open := func(r route) route {
		r.open = true
		return r
	}
	created := func(r route) route {
		r.status = http.StatusCreated
		return r
	}
	return []route{
		open(send(http.MethodPost, "/api/sign-in", "Begin a session, whose cookie the answer sets", (*call).signIn)),
		open(send(http.MethodPost, "/api/sign-out", "End the session of the cookie; runs continue", (*call).signOut)),
		get("/api/web-sessions", "Own sessions of browsers, those used last first", (*call).webSessions,
			param{"user", kindText, "for administrators: those of this user; * = all"}),
		send(http.MethodDelete, "/api/web-sessions/{id}", "End a session; others = all own ones but this", (*call).endWebSession,
			param{"tokens", kindSwitch, "with others: also revoke one's own access tokens, except the one that asks"}),
		send(http.MethodPost, "/api/password", "Set one's own password, which ends one's other sessions", (*call).setPassword),
		get("/api/tokens", "Own access tokens, newest first", (*call).ownTokens),
		created(send(http.MethodPost, "/api/tokens", "Make an access token of one's own, narrower than what asks for it",
			(*call).createToken)),
		send(http.MethodDelete, "/api/tokens/{id}", "Revoke an own access token, and those that it has asked for",
			func(c *call, _ nothing) (people.Token, error) {
				return c.Service.People.RevokeOwnToken(c, c.who, c.r.PathValue("id"))
			}),
		open(send(http.MethodPost, "/api/password/link", "Set a password by a link, once", (*call).useLink)),
	}
}

// SignInRequest has a name and a password, or an access token.
type SignInRequest struct {
	User     string `json:"user,omitempty"`
	Password string `json:"password,omitempty"`
	Token    string `json:"token,omitempty" jsonschema:"the session acts as this access token does, and ends with it"`
}

// WebSessionList is a list of sessions.
type WebSessionList struct {
	Sessions []people.WebSession `json:"sessions"`
}

// SignedOut is the number of sessions that have ended. Next is the address at the provider that ends its session too.
type SignedOut struct {
	Ended int    `json:"ended"`
	Next  string `json:"next,omitempty"`
}

// Ended is the number of sessions that have ended, and of access tokens that were revoked with them.
type Ended struct {
	Ended   int `json:"ended"`
	Revoked int `json:"revoked_tokens,omitempty"`
}

// PasswordRequest sets a password.
type PasswordRequest struct {
	Old      string `json:"old,omitempty" jsonschema:"the present one"`
	Password string `json:"password"`
	Revoke   bool   `json:"revoke_tokens,omitempty" jsonschema:"also revoke one's own access tokens"`
}

// PasswordByLink sets a password by a link that an administrator has made.
type PasswordByLink struct {
	Link     string `json:"link" jsonschema:"what follows # in the link"`
	Password string `json:"password"`
	Revoke   bool   `json:"revoke_tokens,omitempty" jsonschema:"also revoke one's own access tokens"`
}

// PasswordSet is the user whose password was set, how many access tokens were revoked, and those that are left.
type PasswordSet struct {
	User    string         `json:"user"`
	Revoked int            `json:"revoked_tokens,omitempty"`
	Tokens  []people.Token `json:"tokens"`
}

// TokenList is a list of access tokens, without the tokens themselves.
type TokenList struct {
	Tokens []people.Token `json:"tokens"`
}

// NewTokenRequest asks for an access token. A list that is absent or null restricts nothing, and an empty one permits
// nothing.
type NewTokenRequest struct {
	Label        string           `json:"label,omitempty"`
	Agents       []string         `json:"agents,omitempty"`
	Tools        []string         `json:"tools,omitempty"`
	Capabilities []string         `json:"capabilities,omitempty"`
	Params       map[string][]any `json:"params_constraints,omitempty"`
	PerMinute    int64            `json:"rate_limit_per_minute,omitempty"`
	MaxCalls     int64            `json:"max_calls_total,omitempty"`
	ExpiresIn    int64            `json:"expires_in,omitempty" jsonschema:"seconds; an hour if absent"`
	SignIn       bool             `json:"sign_in,omitempty" jsonschema:"refused: administrators give such tokens"`
}

func (c *call) ownTokens() (TokenList, error) {
	list, err := c.Service.People.OwnTokens(c, c.who)
	return TokenList{append([]people.Token{}, list...)}, err
}

func (c *call) createToken(b NewTokenRequest) (people.Token, error) {
	const most = int64(access.MaxTTL / time.Second)
	if b.ExpiresIn < 0 || b.ExpiresIn > most {
		return people.Token{}, bad("expires_in must be 1 to %d seconds", most)
	}
	return c.Service.People.CreateOwnToken(c, c.who, people.TokenRequest{
		Label: b.Label, TTL: time.Duration(b.ExpiresIn) * time.Second, Via: "api", Scope: access.Scope{
			Agents: b.Agents, Tools: b.Tools, Capabilities: b.Capabilities, Params: b.Params, RatePerMinute: b.PerMinute,
			MaxCalls: b.MaxCalls, SignIn: b.SignIn,
		},
	})
}

// noSignIn returns an error if the server has no sign-in.
func (c *call) noSignIn() error {
	if c.Service.Env.Config.Server.Auth == "none" {
		return bad("this server has no sign-in: server.auth is none")
	}
	return nil
}

func (c *call) signIn(b SignInRequest) (people.WebSession, error) {
	if err := c.noSignIn(); err != nil {
		return people.WebSession{}, err
	}
	switch byName := b.User != "" && b.Password != ""; {
	case byName == (b.Token != "") || !byName && (b.User != "" || b.Password != ""):
		return people.WebSession{}, bad("give user and password, or token")
	case byName:
		return c.web.SignIn(c.w, c.r, b.User, b.Password)
	}
	return c.web.SignInByToken(c.w, c.r, b.Token)
}

func (c *call) signOut(nothing) (out SignedOut, err error) {
	w, err := c.web.SignOut(c.w, c.r)
	if err != nil || w.ID == "" {
		return out, err
	}
	return SignedOut{1, c.web.EndURL(c.r, w)}, nil
}

// providerHandlers handles what a browser does in a sign-in by a provider, and what the provider says by itself. Their
// answers are redirects, so that they are not in the table of routes.
func (s *Server) providerHandlers() {
	for pattern, do := range map[string]func(http.ResponseWriter, *http.Request) (string, error){
		"GET /api/oidc": func(w http.ResponseWriter, r *http.Request) (string, error) {
			return s.web.Begin(w, r, r.URL.Query().Get("next"))
		},
		"GET " + websession.CallbackPath: s.web.Finish,
		"POST /api/oidc/logout": func(_ http.ResponseWriter, r *http.Request) (string, error) {
			return "", s.web.Ended(r, r.PostFormValue("logout_token"))
		},
	} {
		s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			next, err := "", s.take(s.fromAddress(r))
			if err == nil {
				next, err = do(w, r)
			}
			switch page := strings.Contains(r.Header.Get("Accept"), "text/html"); {
			case err != nil && page: // the page says it in words
				s.Log.Warn("a sign-in by the provider failed", "request_id", w.Header().Get("X-Request-ID"), "error", err)
				next = "/sign-in?failed=" + url.QueryEscape(string(toolcrib.CodeOf(err)))
			case err != nil:
				s.fail(w, err)
				return
			case next == "":
				w.WriteHeader(http.StatusOK)
				return
			}
			http.Redirect(w, r, next, http.StatusSeeOther)
		})
	}
}

func (c *call) webSessions() (WebSessionList, error) {
	list, err := c.Service.People.WebSessions(c, c.who, c.text("user"))
	return WebSessionList{append([]people.WebSession{}, list...)}, err
}

func (c *call) endWebSession(nothing) (out Ended, err error) {
	id := c.r.PathValue("id")
	if c.yes("tokens") && id != "others" {
		return out, bad("tokens is for others")
	}
	out.Ended, err = c.Service.People.EndWebSession(c, c.who, id, c.web.Cookie(c.r))
	if err == nil && c.yes("tokens") {
		out.Revoked, err = c.Service.People.RevokeOwnTokens(c, c.who)
	}
	return out, err
}

func (c *call) setPassword(b PasswordRequest) (out PasswordSet, err error) {
	if err := c.noSignIn(); err != nil {
		return out, err
	}
	from := c.web.Address(c.r)
	if err := c.Service.People.ChangePassword(c, c.who, from, b.Old, b.Password, c.web.Cookie(c.r)); err != nil {
		return out, err
	}
	return c.passwordSet(c.who, b.Revoke)
}

func (c *call) useLink(b PasswordByLink) (out PasswordSet, err error) {
	if err := errors.Join(c.noSignIn(), c.web.SameOrigin(c.r)); err != nil {
		return out, err
	}
	user, err := c.Service.People.UseLink(c, b.Link, b.Password, c.web.Address(c.r))
	if err != nil {
		return out, err
	}
	return c.passwordSet(toolcrib.Principal{User: user}, b.Revoke)
}

// passwordSet returns the answer after the password of who was set.
func (c *call) passwordSet(who toolcrib.Principal, revoke bool) (out PasswordSet, err error) {
	if out.User = who.User; revoke {
		out.Revoked, err = c.Service.People.RevokeOwnTokens(c, who)
	}
	if err == nil {
		out.Tokens, err = c.Service.People.ValidTokens(c, who)
	}
	if err != nil {
		return out, &toolcrib.Error{
			Code: toolcrib.CodeOf(err), Message: "the password is set, but tokens may still be valid; revoke them", Err: err,
		}
	}
	return out, nil
}
