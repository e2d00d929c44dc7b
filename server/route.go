package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/server/ui"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
)

// route is a row of the table that defines the mux and the OpenAPI document.
type route struct {
	method, path, summary string
	open                  bool              // needs no token
	may                   func(*call) error // returns an error for principals without access; may be nil
	probe                 bool              // polled by monitoring, and exempt from the rate limit
	media                 string            // media type of the answer, if not JSON
	events                bool              // with Accept: text/event-stream, or if answer is nil, it is a stream
	mcp                   bool              // the Model Context Protocol defines requests and answers
	query                 []param
	body, answer          reflect.Type // may be nil
	status                int          // status of success, if not 200
	also                  int          // another status of success
	schema                *jsonschema.Resolved
	do                    func(c *call) (any, error)
	page                  *ui.Route // a web page, which reads the request and answers itself
}

// param is a parameter of the query, or a header in canonical form.
type param struct{ name, kind, about string }

// The kinds of parameters.
const (
	kindText    = "string"
	kindNumber  = "integer"
	kindCount   = "count"
	kindTime    = "date-time"
	kindSwitch  = "boolean"
	kindHeader  = "header"
	kindOrdinal = "header-integer"
)

// kinds describes the kinds for errors.
var kinds = map[string]string{
	kindNumber: "a whole number from 0 on", kindCount: "a whole number from 1 on",
	kindTime: "a time such as 2026-01-31T15:04:05Z", kindSwitch: "true or false",
}

var (
	afterParam   = param{"after", kindNumber, "the last event that is known"}
	onceParam    = param{"Idempotency-Key", kindHeader, "a repeated request with the same key gets the same run"}
	retryParam   = param{"X-Stainless-Retry-Count", kindOrdinal, "above 0: a retry of a request whose answer did not arrive"}
	attendsParam = param{"attends", kindSwitch, "with a stream: a person is there, who answers what calls ask while they run"}
	idParam      = param{"id", kindText, "only the one of this name: an ID, a part of one that is enough, or last"}
	limitParam   = param{"limit", kindCount, "the most entries to return"}
	cursorParam  = param{"cursor", kindText, "the value of next on the previous page"}
	sinceParam   = param{"since", kindTime, "only entries from this time on"}
	untilParam   = param{"until", kindTime, "only entries before this time"}
)

// call is a request in progress.
type call struct {
	context.Context
	*Server
	Service *service.Service // uses the configuration in effect when the request arrived

	w     http.ResponseWriter
	r     *http.Request
	who   toolcrib.Principal
	route *route
	body  []byte
	query url.Values
	wrote bool    // whether the answer was written
	leave func()  // marks the connection as idle; nil until the body is read
	ws    *socket // the WebSocket of a message; nil for a request
	early bool    // whether the message is tried again, because its run was active
}

// get and send return routes of functions without and with a body.
func get[A any](path, summary string, do func(*call) (A, error), query ...param) route {
	return route{
		method: http.MethodGet, path: path, summary: summary, query: query, answer: reflect.TypeFor[A](),
		do: func(c *call) (any, error) { return do(c) },
	}
}

func send[B, A any](method, path, summary string, do func(*call, B) (A, error), query ...param) route {
	r := get(path, summary, func(c *call) (answer A, err error) {
		var body B
		if len(c.body) > 0 {
			if err := json.Unmarshal(c.body, &body); err != nil {
				return answer, toolcrib.Errorf(toolcrib.CodeSchemaMismatch, "the body does not match the schema: %v", unfit(err))
			}
		}
		return do(c, body)
	}, query...)
	r.method = method
	if r.body = reflect.TypeFor[B](); r.body == reflect.TypeFor[nothing]() {
		r.body = nil
	}
	return r
}

// forAdministrators restricts a route to administrators.
func forAdministrators(r route) route {
	r.may = func(c *call) error {
		_, err := env.Administrator(c.who)
		return err
	}
	r.summary += ", for administrators"
	return r
}

// unfit describes a value that the schema allows and the Go type does not, such as 1e99, without the type's name.
func unfit(err error) error {
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		return fmt.Errorf("/%s: must not be %s", strings.ReplaceAll(wrong.Field, ".", "/"), wrong.Value)
	}
	return err
}

// nothing is the type of absent bodies.
type nothing struct{}

// serve answers a request by its route.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, to *route) {
	c := &call{Context: r.Context(), Server: s, Service: s.Service.Current(), w: w, r: r, route: to}
	defer func() {
		if c.leave != nil {
			c.leave()
		}
	}()
	answer, err := c.answer()
	switch {
	case c.wrote:
	case err != nil && to.page != nil:
		s.ui.Fail(c.onPage(), err)
	case err != nil:
		s.failWith(w, 0, err, c.known(err, w.Header().Get("X-Request-ID")))
	default:
		status := http.StatusOK
		if to.status != 0 {
			status = to.status
		}
		s.answer(w, status, answer)
	}
}

func (c *call) answer() (answer any, err error) {
	counted := c.fromAddress(c.r)
	if !c.route.open {
		who, err := c.Server.who(c.r)
		if err != nil {
			if limited := c.take(counted); limited != nil {
				err = limited
			}
			if c.route.mcp {
				err = c.challenge(err)
			}
			return nil, err
		}
		c.who, counted = who, ofUser(who)
		c.sentBy(who)
		c.r = c.r.WithContext(store.WithToken(c.r.Context(), who.TokenID()))
		var leave func()
		c.Context, leave = c.whileValid(c.r, who)
		defer leave()
		defer func() {
			if why := c.revoked(); err != nil && why != nil {
				err = why
			}
		}()
	}
	if !c.route.probe {
		if err := c.take(counted); err != nil {
			return nil, err
		}
	}
	if c.route.may != nil {
		if err := c.route.may(c); err != nil {
			return nil, err
		}
	}
	if c.route.page != nil {
		s, q := c.ui, c.onPage()
		if c.r.Method == http.MethodPost && c.route.open { // names, passwords, preferences
			c.r.Body = http.MaxBytesReader(c.w, c.r.Body, maxOpenForm)
			form, err := c.readBody() // before a sign-in waits
			if err != nil {
				return nil, err
			}
			q.R.Body = io.NopCloser(bytes.NewReader(form))
		} else if c.r.Method == http.MethodPost {
			end, err := c.reading()
			if err != nil {
				return nil, err
			}
			defer end()
			defer func() {
				if form := q.R.MultipartForm; form != nil {
					_ = form.RemoveAll() // temporary files, if any
				}
			}()
		}
		c.leave = c.connections.answering(c.r.RemoteAddr)
		c.wrote = true
		s.Serve(*c.route.page, q)
		return nil, nil
	}
	if err := c.read(); err != nil {
		return nil, err
	}
	c.leave = c.connections.answering(c.r.RemoteAddr)
	return c.route.do(c)
}

// maxOpenForm bounds the forms of those who have not signed in, in bytes.
const maxOpenForm = 64 << 10

// read reads the query and the body, and returns an error for anything that the route does not accept.
func (c *call) read() (err error) {
	if c.query, err = url.ParseQuery(c.r.URL.RawQuery); err != nil {
		return bad("the query cannot be read")
	}
	for name, values := range c.query {
		i := slices.IndexFunc(c.route.query, func(p param) bool { return p.name == name && !p.header() })
		if i < 0 || len(values) != 1 {
			return bad("the query: parameter %s is unknown or repeated", strconv.Quote(name))
		}
		if err := c.route.query[i].check(values[0]); err != nil {
			return err
		}
	}
	for _, name := range []string{"id", "name", "agent"} {
		if value := c.r.PathValue(name); value != "" && !pathValue.MatchString(value) {
			return toolcrib.Errorf(toolcrib.CodeNotFound, "%s not found", strconv.Quote(value))
		}
	}
	if c.route.body == nil {
		return nil
	}
	data, err := c.readBody()
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(data)) == 0 {
		data = []byte("{}")
	} else if !c.sendsJSON() {
		return bad("the body must be JSON, with Content-Type: application/json")
	}
	value, err := c.readObject(data)
	if err != nil {
		return bad("the body: %v", err)
	}
	return c.route.check(value)
}

// sendsJSON reports whether the request declares its body as JSON. With a token in the header it may leave that
// out, or declare a form as curl does by default: a page of another site can send a form, but not the header.
func (c *call) sendsJSON() bool {
	kind, _, _ := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	unsaid := kind == "" || kind == "application/x-www-form-urlencoded"
	return kind == "application/json" || unsaid && c.r.Header.Get("Authorization") != ""
}

// readObject reads a JSON object strictly, once: it sets the canonical text, which is decoded into the type of
// the body, and returns the value, which the schema checks. The size is bounded before.
func (c *call) readObject(data []byte) (value object, err error) {
	limits := guard.JSONLimits{MaxBytes: len(data), Floats: true}
	body, any, err := limits.Read(data)
	if value, _ = any.(object); value == nil && err == nil {
		err = errors.New("must be a JSON object")
	}
	c.body = body
	return value, err
}

// check returns an error if a body does not match the schema.
func (r *route) check(value object) error {
	if err := r.schema.Validate(value); err != nil {
		text := err.Error()
		if i := strings.LastIndex(text, "validating "); i > 0 {
			text = text[i:]
		}
		if where, _, several := strings.Cut(text, "/anyOf/"); several {
			text = where + ": fits none of the forms of /api/openapi.json"
		}
		text = strings.ReplaceAll(text, "<invalid reflect.Value>", "null") // the library's spelling of null
		if n := len(text) - maxShown; n > 0 {                              // of a long value
			text = strings.ToValidUTF8(text[:maxShown/2]+"…"+text[maxShown/2+n:], "")
		}
		return toolcrib.Errorf(toolcrib.CodeSchemaMismatch, "the body does not match the schema: %s", text)
	}
	return nil
}

// maxShown bounds the text about a body that does not match its schema.
const maxShown = 400

// pathValue matches a parameter of the path: an ID, or the name of a tool or a group.
var pathValue = lazyregexp.New(`^[A-Za-z0-9_.:@+-]{1,128}$`)

// header reports whether p is a header.
func (p param) header() bool { return p.kind == kindHeader || p.kind == kindOrdinal }

func (p param) check(text string) error {
	var err error
	switch p.kind {
	case kindNumber, kindCount:
		var n int
		if n, err = strconv.Atoi(text); n < 0 || n == 0 && p.kind == kindCount {
			err = strconv.ErrRange
		}
	case kindTime:
		_, err = time.Parse(time.RFC3339, text)
	case kindSwitch:
		_, err = strconv.ParseBool(text)
	}
	if err != nil {
		return bad("the query: %s must be %s", p.name, kinds[p.kind])
	}
	return nil
}

func bad(format string, args ...any) error {
	return toolcrib.Errorf(toolcrib.CodeBadRequest, format, args...)
}

// text, number, yes and time return parameters of the query, or zero values. [call.read] has checked them.
func (c *call) text(name string) string { return c.query.Get(name) }

func (c *call) number(name string) int {
	n, _ := strconv.Atoi(c.query.Get(name)) // checked
	return n
}

func (c *call) yes(name string) bool {
	yes, _ := strconv.ParseBool(c.query.Get(name)) // checked
	return yes
}

func (c *call) time(name string) time.Time {
	at, _ := time.Parse(time.RFC3339, c.query.Get(name)) // checked
	return at
}

// words returns the comma-separated values of a parameter.
func (c *call) words(name string) []string {
	if c.query.Get(name) == "" {
		return nil
	}
	return strings.Split(c.query.Get(name), ",")
}

// id returns the ID in the path: a whole ID, or last.
func (c *call) id(prefix string) (string, error) {
	return whole(prefix, c.r.PathValue("id"))
}

// whole returns an error if id is not a whole ID or last.
func whole(prefix, id string) (string, error) {
	if whole := strings.TrimPrefix(id, prefix); id != "last" && (whole == id || len(whole) != idLength) {
		return "", toolcrib.Errorf(toolcrib.CodeNotFound, "%s not found", strconv.Quote(id))
	}
	return id, nil
}

const idLength = 26

// run returns the run in the path.
func (c *call) run() (service.Run, error) {
	id, err := c.id("run_")
	if err != nil {
		return service.Run{}, err
	}
	return c.Service.FindRun(c, c.who, id)
}
