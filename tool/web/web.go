// Package web implements web_fetch and web_search, the access to the web.
//
// Nothing can be reached before an administrator has allowed it by lists of hosts, which also apply to
// every redirect. Regardless of the URL, the IP address of the connection decides whether it is made.
// Proxies of the environment are not used, and neither cookies nor credentials are sent.
package web

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/egress"
	"github.com/toolcrib/toolcrib/internal/hosts"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

// The names of the tools, their group, and the kinds of their targets.
const (
	Fetch       = "web_fetch"
	Search      = "web_search"
	WorkerFetch = "fetch"
	Group       = "web"

	TargetHost = "host"
	TargetURL  = "url"

	source = "builtin"
)

// Limits of a call.
const (
	DefaultMaxBytes = 10 << 20

	maxRedirects   = 10
	maxHeaders     = 32
	maxHeaderBytes = 8 << 10
	maxBody        = 1 << 20 // bytes of a request
	headTimeout    = 20 * time.Second
)

// Options are the options of [New]. With the zero value nothing can be reached.
type Options struct {
	Version string // version of toolcrib, for User-Agent
	// Allow and Deny are lists of hosts; see [hosts.NewList]. A host on both lists is denied.
	Allow, Deny []string
	// AllowPrivate also permits connections to loopback and private networks, for hosts that Allow
	// lists other than by *.
	AllowPrivate bool
	// MaxBytes bounds the bytes read from one address. If 0, it is [DefaultMaxBytes].
	MaxBytes int64
	// SessionBytes and SessionHosts bound the bytes that all calls of a session send and receive, and the hosts
	// that they reach. If 0, there is no bound. The usage is in Files, in a folder web; without them, a bound refuses
	// all calls.
	SessionBytes int64
	SessionHosts int
	Files        toolcrib.Files
	// CountedFor returns the session to which the usage of a call without a session is attributed, such
	// as the topmost run. If nil, it is the call's own run.
	CountedFor func(call toolcrib.Call) (string, error)
	// Cache keeps pages. It may be nil.
	Cache *Cache
	// Worker makes [New] return only fetch, the web_fetch for the workers of a team, which reads by GET.
	Worker bool
	// SearchEndpoint and SearchKey are called at each use. If SearchEndpoint is nil, there is no
	// web_search. Their errors are for operators and must not contain secrets.
	SearchEndpoint, SearchKey func() (string, error)

	net network
}

// network contains the functions that tests replace.
type network struct {
	resolver  *net.Resolver
	transport func(*http.Transport)
}

// New returns web_fetch, and web_search if it has an endpoint.
func New(o Options) []toolcrib.Tool {
	o.MaxBytes = cmp.Or(o.MaxBytes, DefaultMaxBytes)
	f := &fetcher{
		Options: o,
		budget:  egress.Budget{Bytes: o.SessionBytes, Hosts: o.SessionHosts, Files: o.Files, CountedFor: o.CountedFor},
		guard:   egress.Guard{Key: "tools.web.allow", AllowPrivate: o.AllowPrivate, Resolver: o.net.resolver},
	}
	var allow, deny error
	f.guard.Allow, allow = hosts.NewList(o.Allow)
	f.guard.Deny, deny = hosts.NewList(o.Deny)
	f.broken = errors.Join(allow, deny)
	if o.Worker {
		return []toolcrib.Tool{&worker{f}}
	}
	tools := []toolcrib.Tool{f}
	if o.SearchEndpoint != nil {
		tools = append(tools, &searcher{f})
	}
	return tools
}

// fetcher is web_fetch.
type fetcher struct {
	Options
	guard  egress.Guard
	budget egress.Budget
	broken error // error of a list that cannot be read, which refuses every call
}

const parameters = `{
  "type": "object",
  "properties": {
    "url": {"type": "string", "maxLength": 8192},
    "method": {"type": "string", "enum": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]},
    "headers": {"type": "object", "additionalProperties": {"type": "string"}, "description": "no credentials"},
    "body": {"type": "string", "maxLength": 1048576},
    "format": {"type": "string", "enum": ["auto", "page", "raw"],
      "description": "of HTML: auto = its article, if it has one, as Markdown; page = all of it, as Markdown; raw = as it is"},
    "force_refresh": {"type": "boolean", "description": "not from the cache"}
  },
  "required": ["url"],
  "additionalProperties": false
}`

// worker is fetch: web_fetch with two arguments.
type worker struct{ *fetcher }

const workerParameters = `{
  "type": "object",
  "properties": {
    "url": {"type": "string", "maxLength": 8192},
    "force_refresh": {"type": "boolean", "description": "not from the cache"}
  },
  "required": ["url"],
  "additionalProperties": false
}`

// Spec describes fetch.
func (w *worker) Spec() toolcrib.Spec {
	s := w.fetcher.Spec()
	s.Name, s.As, s.Effect = WorkerFetch, Fetch, toolcrib.EffectReadOnly
	s.Parameters = json.RawMessage(workerParameters)
	return s
}

// noneParameters are the parameters if nothing can be reached, which is all that a model needs to know then.
const noneParameters = `{"type": "object", "properties": {"url": {"type": "string"}}}`

// Spec describes web_fetch. A GET writes nothing, but its URL may carry data to the outside.
func (f *fetcher) Spec() toolcrib.Spec {
	s := toolcrib.Spec{
		Name: Fetch, Description: "Read an address of the web, of a host that is allowed. HTML becomes Markdown.",
		Parameters: json.RawMessage(parameters), Effect: toolcrib.EffectNonIdempotentWrite, Group: Group, Source: source,
		EnabledByDefault: true, Untrusted: true, Sink: true,
		Plans: toolcrib.PlanFacts{Effect: true, Targets: true, Policy: true},
	}
	if len(f.Allow) == 0 {
		s.Description, s.Parameters = "Read the web: no host is allowed.", json.RawMessage(noneParameters)
	}
	return s
}

type arguments struct {
	URL          string            `json:"url"`
	Method       string            `json:"method"`
	Headers      map[string]string `json:"headers"`
	Body         string            `json:"body"`
	Format       string            `json:"format"`
	ForceRefresh bool              `json:"force_refresh"`
}

// request is the decoded form of a call.
type request struct {
	url     *url.URL
	method  string
	header  http.Header
	body    string
	format  string
	refresh bool
	reads   bool // the method is GET or HEAD

	call toolcrib.Call
}

func readRequest(call toolcrib.Call) (*request, error) {
	var in arguments
	if err := wire.Decode(call.Arguments, &in); err != nil {
		return nil, err
	}
	r := &request{
		method: cmp.Or(in.Method, http.MethodGet), header: http.Header{}, body: in.Body,
		format: in.Format, refresh: in.ForceRefresh, call: call,
	}
	switch r.method {
	case http.MethodGet, http.MethodHead:
		r.reads = true
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return nil, toolcrib.Failf(toolcrib.InvalidArguments, "/method: %q is not one that can be used", r.method)
	}
	var err error
	if r.url, err = hosts.Parse(in.URL); err != nil {
		return nil, toolcrib.Failf(toolcrib.InvalidArguments, "/url: %s", err)
	}
	if r.body != "" && r.reads || len(r.body) > maxBody {
		return nil, toolcrib.Failf(toolcrib.InvalidArguments, "/body: only writes take one, of at most %d bytes", maxBody)
	}
	for name, value := range in.Headers {
		if why := badHeader(name, value); why != "" {
			return nil, toolcrib.Failf(toolcrib.PermissionDenied, "the header %q %s", name, why)
		}
		r.header.Set(name, value)
	}
	if size := r.size(&url.URL{}) - int64(len(r.body)); len(r.header) > maxHeaders || size > maxHeaderBytes {
		return nil, toolcrib.Failf(
			toolcrib.InvalidArguments, "/headers: at most %d, with %d bytes", maxHeaders, maxHeaderBytes)
	}
	return r, nil
}

// size returns the number of bytes, chosen by the call, that a request to an address sends.
func (r *request) size(u *url.URL) int64 {
	n := len(u.String()) + len(r.body)
	for name, values := range r.header {
		n += len(name) + len(values[0])
	}
	return int64(n)
}

// Plan decodes the arguments. It refuses an address that the configuration does not allow. GET and HEAD
// read, other methods write. The targets are the host, without its port, and the URL.
func (f *fetcher) Plan(_ context.Context, call toolcrib.Call) (*toolcrib.Plan, error) {
	r, err := readRequest(call)
	if err != nil {
		return nil, err
	}
	if _, err := f.may(r.url); err != nil {
		return nil, err
	}
	err = f.budget.Spend(r.call, r.url.Hostname(), r.size(r.url), false)
	if err != nil && !errors.Is(err, toolcrib.ErrNotFound) { // its run is not stored yet; the call itself is counted
		return nil, err
	}
	plan := &toolcrib.Plan{
		Targets: []toolcrib.Target{
			{Kind: TargetHost, Name: r.url.Hostname(), Write: !r.reads},
			{Kind: TargetURL, Name: r.url.String(), Write: !r.reads},
		},
		Effect: toolcrib.EffectReadOnly, Content: []string{r.method, r.body},
		Matches: func(patterns []string) (bool, error) { return r.allowed(patterns), nil },
		Preview: func(context.Context) (toolcrib.Preview, error) { return r.preview(), nil },
		Run: func(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
			r := *r
			r.call = call
			p, err := f.get(ctx, &r)
			if err != nil {
				return toolcrib.Output{}, err
			}
			return f.result(ctx, &r, p)
		},
	}
	if !r.reads {
		plan.Effect = toolcrib.EffectNonIdempotentWrite
	}
	return plan, nil
}

// preview shows a request that writes.
func (r *request) preview() toolcrib.Preview {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", r.method, r.url)
	_ = r.header.Write(&b) // writing to a strings.Builder never fails
	fmt.Fprintf(&b, "\n%s", r.body)
	return toolcrib.Preview{Kind: "text", Text: b.String()}
}

// may checks that an address is allowed. private reports whether a connection to it may go to a private address.
func (f *fetcher) may(u *url.URL) (private bool, err error) {
	if f.broken != nil {
		return false, f.broken
	}
	return f.guard.Check(u)
}

// Patterns of headers that belong to the transport, and of those that carry credentials or that servers
// accept as set by a proxy.
var (
	ownHeader = lazyregexp.New(`^(host|connection|keep-alive|te|trailer|transfer-encoding|upgrade|content-length|` +
		`expect|accept-encoding|user-agent|range|if-range|http2-settings|via|from)$`)
	secretHeader = lazyregexp.New(`auth|cookie|token|secret|key|passw|credential|session|signature|[cx]srf|jwt|` +
		`metadata|identity|assertion|forwarded|-ip$|x-(original|rewrite|http-method|method|host|amz|ms|goog|aws)|` +
		`^(proxy|sec|cf)-`)
	headerName  = lazyregexp.New(`^[a-z0-9_-]{1,128}$`)
	headerValue = lazyregexp.New(`^[^\x00-\x08\x0A-\x1F\x7F]*$`)
	credentials = lazyregexp.New(`(?i)^\s*(bearer|basic|digest|negotiate|ntlm)\s`)
)

// badHeader returns the reason why a header is not sent, or "".
func badHeader(name, value string) string {
	lower := strings.ToLower(name)
	switch {
	case !headerName.MatchString(lower), !headerValue.MatchString(value):
		return "is not valid"
	case ownHeader.MatchString(lower):
		return "cannot be set"
	case lower != "idempotency-key" && secretHeader.MatchString(lower), credentials.MatchString(value):
		return "is not sent: it may carry credentials, or pass for the word of a proxy"
	}
	return ""
}

// allowed reports whether patterns of the skills allow the address.
func (r *request) allowed(patterns []string) bool {
	for _, text := range patterns {
		if list, err := hosts.NewList([]string{entryOf(text)}); err == nil {
			if ok, named := list.Allows(r.url); ok && named {
				return true
			}
		}
	}
	return false
}

// BadPattern returns the reason why a pattern can never match an address, or "".
func (f *fetcher) BadPattern(text string) string {
	if entry := entryOf(text); entry == "" || entry == "*" || hosts.CheckEntry(entry) != "" {
		return "a pattern of an address is domain:HOST, domain:*.HOST or https://HOST/PATH/*"
	}
	return ""
}

// entryOf converts a pattern of a skill to an entry of a list. It returns "" if that is impossible.
func entryOf(pattern string) string {
	if host, ok := strings.CutPrefix(pattern, "domain:"); ok && !strings.Contains(host, "/") {
		return strings.TrimSpace(host)
	}
	if prefix, ok := strings.CutSuffix(strings.TrimSuffix(pattern, "*"), ":"); ok || strings.HasSuffix(pattern, "/*") {
		if strings.Contains(prefix, "://") {
			return prefix
		}
	}
	return ""
}

// userAgent identifies the program to servers.
func (f *fetcher) userAgent() string {
	return fmt.Sprintf("toolcrib/%s (+https://github.com/toolcrib/toolcrib)", cmp.Or(f.Version, "dev"))
}

// Call plans the call and runs the plan.
func (f *fetcher) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	return toolcrib.RunPlan(ctx, f, call)
}
