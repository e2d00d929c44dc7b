package ui

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/service/people"
	"github.com/toolcrib/toolcrib/store"
)

// auditRoutes returns the routes of the page audit.
func auditRoutes() []Route {
	return []Route{
		{Pattern: "GET /audit", Admin: true, do: func(p *page) error { return p.audit(nil) }},
		{Pattern: "POST /audit/verify", Admin: true, do: verifyAudit},
		{Pattern: "GET /audit/export", Admin: true, do: exportAudit},
		{Pattern: "GET /audit/head", Admin: true, do: downloadHead},
	}
}

// auditView is the data of the template audit.
type auditView struct {
	Kinds                         []string
	Kind, User, Run, Since, Until string // as in the address
	Entries                       []auditEntry
	Next                          string // address of the following page
	Head                          store.Head
	Verified                      *verified
}

// verified is the result of a verification.
type verified struct {
	OK      bool
	TooLong time.Duration // it was given up after this long
	Found   []api.Checked
	Took    time.Duration
}

// auditEntry is an entry with the parts of its sentence.
type auditEntry struct {
	store.AuditEntry
	Say        string // key of its sentence
	Who, About string
	Details    string // other fields of its kind, as JSON
}

// audit answers with the page, for the query of the address.
func (p *page) audit(v *verified) error {
	form := p.R.URL.Query()
	view := auditView{
		Kinds: people.AuditKinds(), Kind: form.Get("kind"), User: form.Get("user"), Run: form.Get("run"),
		Since: form.Get("since"), Until: form.Get("until"), Verified: v,
	}
	f := store.AuditFilter{User: view.User, Cursor: form.Get("cursor")}
	if view.Kind != "" {
		f.Kinds = []toolcrib.Kind{toolcrib.Kind(view.Kind)}
	}
	var err error
	if f.Since, err = dayOf("since", view.Since); err != nil {
		return err
	}
	if f.Until, err = dayOf("until", view.Until); err != nil {
		return err
	}
	if !f.Until.IsZero() {
		f.Until = f.Until.AddDate(0, 0, 1) // the day is included
	}
	found, err := p.Service.People.Audit(p, p.Who, f, view.Run)
	if err != nil {
		return err
	}
	for _, e := range found.Entries {
		view.Entries = append(view.Entries, p.entryOf(e))
	}
	if found.Next != "" {
		next := url.Values{}
		for _, name := range []string{"kind", "user", "run", "since", "until"} {
			if value := form.Get(name); value != "" {
				next.Set(name, value)
			}
		}
		next.Set("cursor", found.Next)
		view.Next = "/audit?" + next.Encode()
	}
	if view.Head, err = p.Service.People.Head(p, p.Who); err != nil {
		return err
	}
	return p.render("audit", http.StatusOK, view)
}

// entryOf returns an entry with the names that its sentence has.
func (p *page) entryOf(e store.AuditEntry) auditEntry {
	a := auditEntry{AuditEntry: e, Say: "audit.say_" + string(e.Kind), Who: e.User, About: e.Tool}
	if _, ok := p.texts[a.Say]; !ok {
		a.Say = "audit.say_other"
	}
	switch {
	case e.By != "":
		a.Who = e.By
	case e.Actor != "":
		a.Who = e.Actor + " (" + e.User + ")"
	}
	if len(e.Calls) > 0 {
		var names []string
		for _, c := range e.Calls {
			names = append(names, c.Name)
		}
		a.About = strings.Join(names, ", ")
	}
	if a.About == "" {
		a.About = e.Subject
	}
	if len(e.Payload) > 0 {
		a.Details = string(e.Payload)
	}
	return a
}

// verifyTime bounds a verification on a page.
const verifyTime = 2 * time.Minute

// verifyAudit verifies everything that is stored, and shows the result above the log.
func verifyAudit(p *page) error {
	kept, err := keptHead(p.R.PostFormValue("head"))
	if err != nil {
		return err
	}
	control := http.NewResponseController(p.W)
	_ = control.SetWriteDeadline(time.Now().Add(verifyTime + time.Minute)) // if the connection supports it
	_ = control.SetReadDeadline(time.Time{})                               // the form was read
	ctx, cancel := context.WithTimeout(p, verifyTime)
	defer cancel()
	began := time.Now()
	found, err := p.Service.Verify(ctx, p.Who, "", kept)
	v := verified{OK: true, Found: found, Took: time.Since(began)}
	switch {
	case errors.Is(err, context.DeadlineExceeded) && p.Err() == nil:
		v.OK, v.TooLong = false, verifyTime
	case err != nil:
		return err
	}
	for _, one := range found {
		v.OK = v.OK && one.OK
	}
	if p.enhanced() {
		return p.part("audit", "verified", http.StatusOK, &v)
	}
	return p.audit(&v)
}

// maxHead bounds a head, in bytes.
const maxHead = 4 << 10

// keptHead reads a head that was downloaded before, or returns nil.
func keptHead(text string) (*store.Head, error) {
	if text = strings.TrimSpace(text); text == "" {
		return nil, nil
	}
	var head store.Head
	if len(text) > maxHead || json.Unmarshal([]byte(text), &head) != nil || head.MAC == "" {
		return nil, bad("the head is not one: paste the content of a file that was downloaded here before")
	}
	return &head, nil
}

// exportAudit answers with an export of the audit log. One that ends early lacks its last line, which is sealed.
func exportAudit(p *page) error {
	out := &slowWriter{p: p}
	w := bufio.NewWriterSize(out, 256<<10)
	o := store.ExportOptions{Content: p.R.URL.Query().Get("content") == "yes"}
	err := p.Service.People.ExportAudit(p, p.Who, w, o)
	if err == nil {
		err = w.Flush()
	}
	if err != nil && p.wrote {
		p.Log.Warn("an export of the audit log ended early", "request_id", p.ID, "error", err)
		panic(http.ErrAbortHandler) // so that the browser sees that it is incomplete
	}
	return err
}

// slowWriter writes a long answer: each write has a time limit of its own.
type slowWriter struct{ p *page }

// slowWrite is how long a write may take.
const slowWrite = time.Minute

func (s *slowWriter) Write(data []byte) (int, error) {
	if !s.p.wrote {
		s.p.download("audit.ndjson", "application/x-ndjson")
	}
	control := http.NewResponseController(s.p.W)
	_ = control.SetWriteDeadline(time.Now().Add(slowWrite)) // if the connection supports it
	return s.p.W.Write(data)
}

// downloadHead answers with the head of the system journal, to be kept elsewhere.
func downloadHead(p *page) error {
	head, err := p.Service.People.Head(p, p.Who)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(head, "", "  ")
	if err != nil {
		return err
	}
	p.download("head.json", "application/json")
	_, _ = p.W.Write(append(text, '\n')) // the client may have disconnected
	return nil
}
