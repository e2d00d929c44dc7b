package ui

import (
	"crypto/rand"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/server/websession"
	"github.com/toolcrib/toolcrib/service/env"
)

// contentPolicy is the Content-Security-Policy: files of this server only, no code in a page, no frame around it. HTML
// that a module inserts must come through the policy toolcrib of js/dom.js.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; " +
	"connect-src 'self'; font-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types toolcrib"

// page is a request for a page in progress.
type page struct {
	*UI
	Request
	language string
	theme    string // light | dark; "" follows the system
	wrote    bool   // the answer has begun
}

func (u *UI) page(r Request) *page {
	p := &page{UI: u, Request: r, language: languageOf(r.R), theme: themeOf(r.R)}
	h := r.W.Header()
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("Referrer-Policy", "same-origin")
	h.Set("X-Frame-Options", "DENY") // for browsers that ignore frame-ancestors
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
	return p
}

// maxForm bounds a form without files, in bytes.
const maxForm = 2 << 20

// readForm reads the fields of a form that was sent. A form with files is left to the page that takes it.
func (p *page) readForm() error {
	kind, _, _ := mime.ParseMediaType(p.R.Header.Get("Content-Type")) // without one there are no fields
	if p.R.Method != http.MethodPost || kind == "multipart/form-data" {
		return nil
	}
	p.R.Body = http.MaxBytesReader(p.W, p.R.Body, maxForm)
	err := p.R.ParseForm()
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return toolcrib.Errorf(toolcrib.CodeTooLarge, "the form has more than %d bytes", large.Limit)
	}
	if err != nil {
		return bad("the form cannot be read")
	}
	return nil
}

// view is the data of the template of a whole page.
type view struct {
	Page     string // name of the template
	Path     string // of the request, without the query
	Address  string // of this page, which can be opened again
	Language string
	Theme    string
	Who      toolcrib.Principal
	SignedIn bool // by a session that can be ended
	Admin    bool
	Waiting  int // approvals that Who may decide
	Version  string
	Once     string // a new key for a form that begins something
	Data     any
}

// Section returns the entry of the navigation that the page belongs to.
func (v view) Section() string {
	if section, ok := sections[v.Page]; ok {
		return section
	}
	return v.Page
}

// sections are the entries of the navigation of pages with another name.
var sections = map[string]string{
	"run": "runs", "event": "runs", "checked": "runs", "approval": "approvals", "approvaledit": "approvals",
	"person": "people", "tool": "tools", "explain": "tools", "sessions": "playground", "compare": "playground",
}

// render answers with a page.
func (p *page) render(name string, status int, data any) error {
	v := p.view(name, data)
	text, err := p.templates.execute(p.language, name, "layout", v)
	if err != nil {
		return err
	}
	p.html(status, text)
	return nil
}

func (p *page) view(name string, data any) view {
	v := view{
		Page: name, Path: p.R.URL.Path, Language: p.language, Theme: p.theme, Who: p.Who,
		Version: p.Version, Once: rand.Text(), Data: data,
	}
	if v.Address = v.Path; p.R.Method == http.MethodGet {
		v.Address = p.R.URL.RequestURI()
	}
	if p.Who.User != "" {
		_, err := env.Administrator(p.Who)
		v.Admin = err == nil
		v.SignedIn = p.Web.Cookie(p.R) != ""
		v.Waiting = p.waiting()
	}
	return v
}

// waiting returns the number of approvals that are open. It is only shown, so an error counts as none.
func (p *page) waiting() int {
	open, err := p.Service.Waiting(p, p.Who)
	if err != nil {
		return 0
	}
	return len(open)
}

// fragment returns a part of a page: the template part of those of the page name.
func (p *page) fragment(name, part string, data any) (string, error) {
	text, err := p.templates.execute(p.language, name, part, data)
	return string(text), err
}

// part answers with a part of a page, for a module that inserts it.
func (p *page) part(name, part string, status int, data any) error {
	text, err := p.templates.execute(p.language, name, part, data)
	if err == nil {
		p.html(status, text)
	}
	return err
}

func (p *page) html(status int, text []byte) {
	p.wrote = true
	p.W.Header().Set("Content-Type", "text/html; charset=utf-8")
	p.W.Header().Add("Vary", "Accept-Language, Cookie")
	p.W.WriteHeader(status)
	_, _ = p.W.Write(text) // the client may have disconnected
}

// enhanced reports whether a module sent the request, which inserts a part of a page instead of following a redirect.
func (p *page) enhanced() bool { return p.R.Header.Get("X-Toolcrib-Part") != "" }

// done answers an action: with the address of the page to show next.
func (p *page) done(to string) error {
	p.wrote = true
	if p.enhanced() {
		p.W.Header().Set("X-Toolcrib-Location", to)
		p.W.WriteHeader(http.StatusNoContent)
		return nil
	}
	http.Redirect(p.W, p.R, to, http.StatusSeeOther)
	return nil
}

// failure is the data of the template error.
type failure struct {
	Status    int
	Text      string // key of the sentence about it
	Code      toolcrib.Code
	Message   string // of the service, in English
	RequestID string
	Ref       string
	Retry     time.Duration
	Back      string // where to go instead
	Whole     bool   // it is a page, whose heading is Text
	SignIn    string // where to sign in, if that is missing
}

// fail answers with a page about an error, or with the part that modules insert. Without a sign-in it leads there.
func (p *page) fail(err error) {
	f := p.failureOf(err)
	if f.Status == http.StatusUnauthorized && p.R.Method == http.MethodGet && !p.enhanced() {
		p.wrote = true
		if p.R.Header.Get("Accept") == "text/event-stream" {
			p.W.WriteHeader(http.StatusNoContent) // the browser ends the stream (HTML Living Standard, 9.2.3)
			return
		}
		http.Redirect(p.W, p.R, toSignIn(p.R.URL.RequestURI()), http.StatusSeeOther)
		return
	}
	var text []byte
	if p.enhanced() {
		text, err = p.templates.execute(p.language, "error", "failure", f)
	} else {
		f.Whole = true
		text, err = p.templates.execute(p.language, "error", "layout", p.view("error", f))
	}
	if err != nil {
		p.Log.Error("a page cannot be shown", "request_id", p.ID, "error", err)
		http.Error(p.W, "internal error", http.StatusInternalServerError)
		return
	}
	p.html(f.Status, text)
}

// failureOf returns an error as its person may read it.
func (p *page) failureOf(err error) *failure {
	e := p.Readable(p.Request, err)
	f := &failure{
		Status: statusOf(e.Code), Code: e.Code, Message: e.Message, RequestID: p.ID, Ref: e.Ref, Retry: e.RetryAfter,
		Back: "/", Text: "error.code_" + string(e.Code),
	}
	if _, ok := p.texts[f.Text]; !ok {
		f.Text = "error.status_" + strconv.Itoa(f.Status)
	}
	if back, err := url.Parse(p.R.Referer()); err == nil && back.Host == p.R.Host && p.R.Method != http.MethodGet {
		f.Back = local(back.RequestURI())
	}
	path := p.R.URL.Path
	if f.Status == http.StatusUnauthorized && p.Who.User == "" && path != signInPath && path != passwordPath {
		f.SignIn = toSignIn(f.Back)
	}
	return f
}

// statusOf returns the HTTP status of a code: that of the API, but for an expired token, which a browser would cache.
func statusOf(code toolcrib.Code) int {
	switch code {
	case toolcrib.CodeBadRequest, toolcrib.CodeSchemaMismatch:
		return http.StatusBadRequest
	case toolcrib.CodeUnauthorized, toolcrib.CodeTokenInvalid, toolcrib.CodeTokenRevoked, toolcrib.CodeTokenExpired,
		toolcrib.CodeSignature:
		return http.StatusUnauthorized
	case toolcrib.CodeForbidden, toolcrib.CodeScopeInsufficient, toolcrib.CodeRevoked, toolcrib.CodeFederation:
		return http.StatusForbidden
	case toolcrib.CodeNotFound:
		return http.StatusNotFound
	case toolcrib.CodeTimeout:
		return http.StatusRequestTimeout
	case toolcrib.CodeConflict:
		return http.StatusConflict
	case toolcrib.CodeExpired:
		return http.StatusGone
	case toolcrib.CodeTooLarge:
		return http.StatusRequestEntityTooLarge
	case toolcrib.CodeRateLimited, toolcrib.CodeCapacityExceeded:
		return http.StatusTooManyRequests
	case toolcrib.CodeOverloaded, toolcrib.CodePartition:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// download begins an answer that a browser saves as a file.
func (p *page) download(name, kind string) {
	p.wrote = true
	h := p.W.Header()
	h.Set("Content-Type", kind)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
}

// local returns the path of a page of this server to lead to, or "/" if to is not one.
func local(to string) string { return websession.Local(to) }

func bad(format string, args ...any) error {
	return toolcrib.Errorf(toolcrib.CodeBadRequest, format, args...)
}
