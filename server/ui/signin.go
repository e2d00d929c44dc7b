package ui

import (
	"net/http"
	"net/url"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
)

// Paths of pages that need no sign-in. The second is that of [people.LinkPath].
const (
	signInPath   = "/sign-in"
	passwordPath = "/password"
)

// signInRoutes returns the routes of signing in and out, which need no sign-in.
func signInRoutes() []Route {
	return []Route{
		{Pattern: "GET " + signInPath, Open: true, do: showSignIn},
		{Pattern: "POST " + signInPath, Open: true, do: signIn},
		{Pattern: "POST /sign-out", Open: true, do: signOut},
		{Pattern: "GET " + passwordPath, Open: true, do: func(p *page) error {
			return p.showLink(http.StatusOK, linkView{})
		}},
		{Pattern: "POST " + passwordPath, Open: true, do: useLink},
	}
}

// toSignIn returns the address of the page that signs in, and then opens next.
func toSignIn(next string) string { return signInPath + "?next=" + url.QueryEscape(next) }

// signInView is the data of the template signin.
type signInView struct {
	Closed   bool   // the server has no sign-in
	Provider string // its host; "" = none
	Next     string
	Name     string // as it was typed
	ByToken  bool   // the form of the access token is open
	Error    string // key of the text; "" = none
	Until    time.Time
	Said     string // key of another text; "" = none
}

func (p *page) noSignIn() bool { return p.Service.Env.Config.Server.Auth == "none" }

func showSignIn(p *page) error {
	q := p.R.URL.Query()
	v := signInView{Next: local(q.Get("next"))}
	if code := q.Get("failed"); code != "" { // at the provider
		v.Error = "provider"
		if toolcrib.Code(code) == toolcrib.CodeForbidden {
			v.Error = "provider_forbidden"
		}
		return p.showSignIn(http.StatusOK, v)
	}
	if _, _, err := p.Web.Watch(p.R); err == nil && !p.noSignIn() {
		return p.done(v.Next)
	}
	switch {
	case q.Has("out"):
		v.Said = "out"
	case p.Web.Cookie(p.R) != "":
		v.Said = "ended"
	}
	return p.showSignIn(http.StatusOK, v)
}

func (p *page) showSignIn(status int, v signInView) error {
	v.Closed = p.noSignIn()
	if at, err := url.Parse(p.Service.Env.Config.Server.OIDC.Issuer); err == nil && p.Web.HasProvider() {
		v.Provider = at.Host
	}
	return p.render("signin", status, v)
}

func signIn(p *page) (err error) {
	v := signInView{Next: local(p.R.PostFormValue("next")), Name: p.R.PostFormValue("user")}
	v.ByToken = p.R.PostForm.Has("token")
	switch {
	case p.noSignIn():
		return p.showSignIn(http.StatusOK, v)
	case v.ByToken:
		_, err = p.Web.SignInByToken(p.W, p.R, p.R.PostFormValue("token"))
	default:
		_, err = p.Web.SignIn(p.W, p.R, v.Name, p.R.PostFormValue("password"))
	}
	if err == nil {
		return p.done(v.Next)
	}
	if len(v.Name) > access.MaxName {
		v.Name = ""
	}
	e := p.Readable(p.Request, err)
	if v.Error = signInError(e.Code, v.ByToken); v.Error == "" {
		return err
	}
	if e.RetryAfter > 0 {
		v.Until = time.Now().Add(e.RetryAfter)
	}
	return p.showSignIn(statusOf(e.Code), v)
}

// signInError returns the key of the text about a sign-in that failed, or "".
func signInError(code toolcrib.Code, byToken bool) string {
	switch code {
	case toolcrib.CodeRateLimited:
		return "locked"
	case toolcrib.CodeOverloaded:
		return "busy"
	case toolcrib.CodeForbidden:
		return "forbidden"
	case toolcrib.CodeTokenExpired, toolcrib.CodeTokenRevoked:
		return string(code)
	case toolcrib.CodeUnauthorized, toolcrib.CodeTokenInvalid, toolcrib.CodeBadRequest:
		if byToken {
			return "token"
		}
		return "wrong"
	}
	return ""
}

// signOut ends the session. Where the provider can end its own one, the browser goes there: by a module, or by a link,
// because browsers do not follow a form to another server.
func signOut(p *page) error {
	old, err := p.Web.SignOut(p.W, p.R)
	if err != nil {
		return err
	}
	if old.ID != "" {
		if at := p.Web.EndURL(p.R, old); at != "" && p.enhanced() {
			return p.done(at)
		} else if at != "" {
			return p.render("signedout", http.StatusOK, at)
		}
	}
	return p.done(signInPath + "?out=yes")
}

// linkView is the data of the template password.
type linkView struct {
	Closed bool
	Link   string
	User   string // whose link it is; "" = not known yet
	Error  *failure
}

func (p *page) showLink(status int, v linkView) error {
	v.Closed = p.noSignIn()
	return p.render("password", status, v)
}

// useLink takes a link, and then the password that it permits to set, which signs in.
func useLink(p *page) error {
	v := linkView{Link: linkToken(p.R.PostFormValue("link"))}
	if p.noSignIn() {
		return p.showLink(http.StatusOK, v)
	}
	var err error
	from, password := p.Web.Address(p.R), p.R.PostFormValue("password")
	if v.User, err = p.Service.People.LinkUser(p, v.Link, from); err == nil && p.R.PostForm.Has("password") {
		if _, err = p.Service.People.UseLink(p, v.Link, password, from); err == nil {
			return p.linkUsed(v.User, password)
		}
	}
	if err != nil {
		if v.Error = p.failureOf(err); v.Error.Code == toolcrib.CodeUnauthorized {
			v.Error.Text = "signin.link_wrong"
		}
		return p.showLink(v.Error.Status, v)
	}
	return p.showLink(http.StatusOK, v)
}

// linkUsed signs in after a password was set, and leads to the tokens that remain valid, if there are any.
func (p *page) linkUsed(user, password string) error {
	who, next := toolcrib.Principal{User: user}, "/"
	if p.R.PostForm.Has("revoke") {
		if _, err := p.Service.People.RevokeOwnTokens(p, who); err != nil {
			return err
		}
	}
	left, err := p.Service.People.ValidTokens(p, who)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		next = "/account?said=" + saidPassword
	}
	if _, err := p.Web.SignIn(p.W, p.R, user, password); err != nil { // after too many failures of this name
		next = toSignIn(next)
	}
	return p.done(next)
}

// linkToken returns the token of a link, which may be a whole address.
func linkToken(link string) string {
	if at, err := url.Parse(link); err == nil && at.Fragment != "" {
		return at.Fragment
	}
	return link
}
