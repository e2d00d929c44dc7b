package server_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/server/ui"
)

// reader is a person who is signed in at the pages.
type reader struct {
	*browser
	kind, name       string
	tokens, sessions []string // IDs
}

// readers signs two users and an administrator in.
func (h *seen) readers() (all []*reader) {
	h.t.Helper()
	for kind, name := range map[string]string{"ann": "ann.private", "bob": "bob.private", "boss": "boss"} {
		if err := h.service.People.SetPassword(h.t.Context(), root, name, password); err != nil {
			h.t.Fatal(err)
		}
		r := &reader{browser: h.browser(), kind: kind, name: name}
		r.signIn(name)
		tokens, err := h.service.People.Tokens(h.t.Context(), root, name)
		if err != nil {
			h.t.Fatal(err)
		}
		for _, one := range tokens {
			r.tokens = append(r.tokens, one.ID)
		}
		sessions, err := h.service.People.WebSessions(h.t.Context(), root, name)
		if err != nil {
			h.t.Fatal(err)
		}
		for _, one := range sessions {
			r.sessions = append(r.sessions, one.ID)
		}
		all = append(all, r)
	}
	return all
}

// pageRow has the requests for a route of the pages.
type pageRow struct {
	at    []string // addresses
	forms []string // one for each request; an empty one if nil
	shows []string // marks that an administrator reads there, which shows that the requests are right
	may   []string // marks that the owner of a run may read
}

// pageRows are the requests for every route of the pages.
func (h *seen) pageRows(readers []*reader) map[string]pageRow {
	var runs, asks, sessions, webs, tokens, names []string
	for _, kind := range []string{"ann", "scoped", "bob", "bearer", "boss"} {
		runs, asks, sessions = append(runs, h.runs[kind]), append(asks, h.asks[kind]), append(sessions, mark(kind)+"session")
	}
	for _, r := range readers {
		webs, tokens, names = append(webs, r.sessions...), append(tokens, r.tokens...), append(names, r.name)
	}
	each := func(of []string, formats ...string) (all []string) {
		for _, format := range formats {
			for _, one := range of {
				all = append(all, fmt.Sprintf(format, one))
			}
		}
		return all
	}
	users := []string{"ann.private", "bob.private"}
	all, file := []string{"RUN-OF-ANN-", "RUN-OF-SCOPED-", "RUN-OF-BEARER-", "RUN-OF-BOB-"}, "toolcrib.yaml"
	system := []string{"PROMPT-OF-DEFAULT"} // the story of a run shows what its model read
	own := append([]string{file}, system...)
	usage := []string{"by=run", "by=user", "by=session", "by=tool", "by=run&user=ann.private", "by=day&user=bob.private"}
	return map[string]pageRow{
		"GET /assets/{version}/{file...}": {at: []string{"/assets/x/style.css"}}, "GET /favicon.ico": {at: []string{"/favicon.ico"}},
		"POST /preferences": {at: []string{"/preferences"}, forms: []string{"theme=dark&next=/runs"}},

		"GET /{$}":            {at: append(each(sessions, "/?session=%s"), "/", "/?agent=concealed"), shows: []string{mark("boss"), "ABOUT-CONCEALED"}, may: system},
		"POST /{$}":           {at: []string{"/"}, forms: append(each(sessions, "prompt=&session=%s"), "prompt=x&agent=concealed"), may: system},
		"GET /sessions":       {at: []string{"/sessions", "/sessions?user=ann.private", "/sessions?user=bob.private"}, shows: all},
		"GET /compare":        {at: append(each(runs, "/compare?run=%s"), "/compare?run="+runs[2]+"&run="+runs[0]), shows: all},
		"POST /compare":       {at: []string{"/compare"}, forms: []string{"prompt=x&agent=concealed&with=demo/x&with=quiet/x"}},
		"POST /compare/again": {at: []string{"/compare/again"}, forms: each(runs, "run=%s&model=quiet/x")},

		"GET /runs": {
			at: append(append(each(runs, "/runs?id=%s", "/runs?parent=%s"), each(sessions, "/runs?session=%s")...), "/runs",
				"/runs?user=ann.private", "/runs?user=bob.private", "/runs?agent=concealed", "/runs?status=parked"),
			shows: append(all, users...),
		},
		"GET /runs/{id}":      {at: each(runs, "/runs/%s", "/runs/%s?view=timeline", "/runs/%s?before=5"), shows: append(all, file), may: own},
		"GET /runs/{id}/live": {at: each(runs, "/runs/%s/live?after=0", "/runs/%s/live?after=0&view=timeline"), shows: all, may: own},
		"GET /runs/{id}/events/{seq}": {
			at: each(runs, "/runs/%s/events/1", "/runs/%s/events/3", "/runs/%s/events/5", "/runs/%s/events/8"), shows: all, may: own,
		},
		"GET /runs/{id}/events/{seq}/result": {at: each(runs, "/runs/%s/events/9/result", "/runs/%s/events/10/result", "/runs/%s/events/11/result")},
		"GET /runs/{id}/export":              {at: each(runs, "/runs/%s/export"), shows: all, may: own},
		"GET /runs/{id}/verify":              {at: each(runs, "/runs/%s/verify")},
		"GET /runs/{id}/replay":              {at: each(runs, "/runs/%s/replay")},
		"POST /runs/{id}/cancel":             {at: each(runs, "/runs/%s/cancel")},
		"POST /runs/{id}/message":            {at: each(runs, "/runs/%s/message"), forms: []string{"text=x"}},
		"POST /runs/{id}/resume":             {at: each(runs, "/runs/%s/resume"), forms: []string{"text=x"}},
		"POST /runs/{id}/fork":               {at: each(runs, "/runs/%s/fork"), forms: []string{"text=x"}},

		"GET /approvals":      {at: []string{"/approvals", "/approvals?show=mine", "/approvals?show=decided"}, shows: append(asks, users...)},
		"GET /approvals/live": {at: []string{"/approvals/live"}, shows: []string{asks[0], asks[2]}},
		"GET /approvals/{id}": {at: each(asks, "/approvals/%s"), shows: append(all, file)},
		"POST /approvals/{id}": {
			at: each(asks, "/approvals/%s"), forms: []string{"do=approve&digest=x&reason=y", "do=deny&digest=x", "do=approve call_2&digest=x"},
			shows: all,
		},
		"GET /approvals/{id}/edit": {at: each(asks, "/approvals/%s/edit?call=call_1", "/approvals/%s/edit?call=call_2"), shows: all},
		"POST /approvals/{id}/edit": {
			at: each(asks, "/approvals/%s/edit"), forms: []string{"call=call_2&digest=x&do=preview+json&arguments=%7B%22path%22:%22x%22%7D"},
		},

		"GET /tools":         {at: []string{"/tools", "/tools?q=write"}},
		"POST /tools/switch": {at: []string{"/tools/switch"}, forms: []string{"tool=write_file&to=on&next=/tools"}},
		"GET /tools/{name}":  {at: append(each(runs, "/tools/write_file?run=%s"), "/tools/write_file"), shows: all},
		"POST /tools/{name}/call": {
			at: []string{"/tools/read_file/call"}, forms: []string{"agent=concealed&arguments=%7B%22path%22:%22x%22%7D"},
		},
		"GET /explain": {
			at: append(append(each(runs, "/explain?run=%s", "/explain?run=%s&call=call_1"), each(users, "/explain?user=%s&tool=write_file")...),
				"/explain?agent=concealed", "/explain?tool=write_file&arguments=%7B%22path%22:%22x%22,%22content%22:%22y%22%7D"),
			shows: append(all, file),
		},
		"GET /policy":           {at: []string{"/policy"}, shows: []string{file}},
		"POST /policy/test":     {at: []string{"/policy/test"}, forms: []string{"rules=rules:+[]"}, shows: all},
		"POST /policy/propose":  {at: []string{"/policy/propose"}, forms: []string{"rules=rules:+[]"}},
		"POST /policy/add":      {at: []string{"/policy/add"}, forms: []string{"rules=rules:+[]&add=x"}},
		"POST /policy/download": {at: []string{"/policy/download"}, forms: []string{"rules=rules:+[]"}},

		"GET /usage":         {at: each(usage, "/usage?%s"), shows: append(slices.Clone(runs), users...)},
		"GET /usage.csv":     {at: each(usage, "/usage.csv?%s"), shows: append(slices.Clone(runs), users...)},
		"GET /audit":         {at: []string{"/audit", "/audit?user=ann.private", "/audit?run=" + runs[0]}, shows: []string{users[0], runs[0], file}},
		"POST /audit/verify": {at: []string{"/audit/verify"}},
		"GET /audit/export":  {at: []string{"/audit/export", "/audit/export?content=yes"}, shows: append(all, users...)},
		"GET /audit/head":    {at: []string{"/audit/head"}},

		"GET /account":                     {at: []string{"/account"}, shows: []string{"boss"}},
		"POST /account/sessions/{id}/end":  {at: each(webs, "/account/sessions/%s/end")},
		"POST /account/password":           {at: []string{"/account/password"}, forms: []string{"old=wrong+wrong+wrong&password=another+password"}},
		"POST /account/tokens":             {at: []string{"/account/tokens"}, forms: []string{"hours=1&label=x&agent=concealed", "hours=1"}},
		"POST /account/tokens/{id}/revoke": {at: each(tokens, "/account/tokens/%s/revoke")},

		"GET /people":                            {at: []string{"/people", "/people?q=private"}, shows: users},
		"POST /people":                           {at: []string{"/people"}, forms: []string{"name=", "name=ann.private"}},
		"GET /people/{name}":                     {at: each(names, "/people/%s"), shows: tokens},
		"POST /people/{name}":                    {at: each(names, "/people/%s"), forms: []string{"changed=x"}},
		"POST /people/{name}/{do}":               {at: each(names, "/people/%s/none", "/people/%s/disable", "/people/%s/link", "/people/%s/remove")},
		"POST /people/{name}/sessions/{id}/end":  {at: each(webs, "/people/ann.private/sessions/%s/end")},
		"POST /people/{name}/tokens/{id}/revoke": {at: each(tokens, "/people/ann.private/tokens/%s/revoke")},

		"GET /sign-in":   {at: []string{"/sign-in", "/sign-in?next=/runs&failed=forbidden"}},
		"POST /sign-in":  {at: []string{"/sign-in"}, forms: []string{"user=ann.private&password=wrong+wrong+wrong", "token=x"}},
		"POST /sign-out": {at: []string{"/sign-out"}},
		"GET /password":  {at: []string{"/password"}},
		"POST /password": {at: []string{"/password"}, forms: []string{"link=x&password=another+password"}},
	}
}

// everyPage sends the requests for every route of the pages. None shows anything that its reader may not see, and those
// for administrators refuse all others. A new page needs a row.
func (h *seen) everyPage() {
	h.t.Helper()
	pages, err := ui.New(ui.Options{})
	if err != nil {
		h.t.Fatal(err)
	}
	readers := h.readers()
	rows, mux, asked := h.pageRows(readers), http.NewServeMux(), 0
	for _, one := range pages.Routes() {
		mux.Handle(one.Pattern, http.NotFoundHandler())
	}
	for _, one := range pages.Routes() {
		row, ok := rows[one.Pattern]
		if !ok {
			h.t.Errorf("%s has no row: what must the page not show?", one.Pattern)
			continue
		}
		delete(rows, one.Pattern)
		method, _, _ := strings.Cut(one.Pattern, " ")
		for _, at := range row.at {
			if _, pattern := mux.Handler(httptest.NewRequest(method, at, nil)); pattern != one.Pattern {
				h.t.Errorf("%s is no request for %s", at, one.Pattern)
			}
		}
		for _, r := range readers {
			asked += h.readPage(r, readers, one, &row)
		}
	}
	for pattern := range rows {
		h.t.Errorf("%s: there is no such page", pattern)
	}
	h.t.Logf("%d answers", asked)
}

// readPage sends the requests for a route as a reader, and returns how many there were.
func (h *seen) readPage(r *reader, readers []*reader, to ui.Route, row *pageRow) (asked int) {
	h.t.Helper()
	method, _, _ := strings.Cut(to.Pattern, " ")
	never, foreign := h.mayNot(r.kind), []string{}
	if r.kind != "boss" {
		for _, other := range readers {
			if other != r {
				foreign = slices.Concat(foreign, other.tokens, other.sessions)
			}
		}
	}
	never = append(never, foreign...)
	shown := bytes.Buffer{}
	for _, at := range row.at {
		for _, form := range append(row.forms, "")[:max(len(row.forms), 1)] {
			about := at + " " + form
			if method == http.MethodPost && h.alters(r, readers, about) {
				continue
			}
			for _, part := range []bool{false, true} {
				asked++
				status, answer := r.page(method, at, form, part)
				answer = without(answer, about)
				shown.Write(answer)
				if to.Admin && r.kind != "boss" && status != http.StatusForbidden {
					h.t.Errorf("%s may use %s %s: %d", r.kind, method, about, status)
				}
				named := func(m string) bool { return strings.Contains(about, m) }
				if strings.Contains(to.Pattern, "{id}") && slices.ContainsFunc(never, named) && status != http.StatusForbidden &&
					status != http.StatusNotFound {
					h.t.Errorf("%s %s for %s: %d", method, about, r.kind, status)
				}
				for _, m := range never {
					if bytes.Contains(answer, []byte(m)) && !slices.ContainsFunc(row.may, func(may string) bool { return strings.HasPrefix(may, m) }) {
						h.t.Errorf("%s\n reads %s in\n%s %s\n%.3000s", r.kind, m, method, about, answer)
					}
				}
			}
		}
	}
	for _, m := range row.shows {
		if r.kind == "boss" && !bytes.Contains(shown.Bytes(), []byte(m)) {
			h.t.Errorf("%s: an administrator does not read %s: this shows nothing", to.Pattern, m)
		}
	}
	return asked
}

// alters reports whether a request would change what other requests are about.
func (h *seen) alters(r *reader, readers []*reader, about string) bool {
	if strings.HasPrefix(about, "/approvals/") { // with a digest that is not the one
		return false
	}
	for _, kind := range kinds[1:] {
		if strings.Contains(about, h.runs[kind]) && !slices.Contains(h.mayNot(r.kind), h.runs[kind]) {
			return true
		}
	}
	if r.kind == "boss" && strings.HasPrefix(about, "/people/") {
		return !strings.Contains(about, "/none ")
	}
	return slices.ContainsFunc(slices.Concat(r.tokens, r.sessions), func(id string) bool { return strings.Contains(about, id) }) ||
		r.kind == "boss" && strings.HasPrefix(about, "/account/sessions/")
}

// page sends a request as a page does, and follows no redirect. part is whether a module sends it. Of a stream it returns
// the first event. The session stays, also if the request ends it.
func (b *browser) page(method, path, form string, part bool) (int, []byte) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	defer cancel()
	r := b.request(method, path, "", form, "Content-Type", "application/x-www-form-urlencoded", "Accept", "text/html").WithContext(ctx)
	at := "http://" + r.URL.Host
	r.Header.Set("Origin", at)
	if path != "/sign-out" {
		r.Header.Set("Cookie", b.head(at)[1])
	}
	if part {
		r.Header.Set("X-Toolcrib-Part", "yes")
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	var data bytes.Buffer
	for _, name := range []string{"Location", "X-Toolcrib-Location", "Content-Disposition"} {
		data.WriteString(res.Header.Get(name) + "\n")
	}
	if res.Header.Get("Content-Type") == "text/event-stream" {
		for line, lines := "", bufio.NewReader(res.Body); err == nil && !strings.HasPrefix(line, "data: "); {
			line, err = lines.ReadString('\n')
			data.WriteString(line)
		}
	} else {
		_, err = data.ReadFrom(res.Body)
	}
	if err != nil && err != io.EOF {
		b.t.Fatalf("%s %s: %v", method, path, err)
	}
	return res.StatusCode, data.Bytes()
}
