package web

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/egress"
	"github.com/toolcrib/toolcrib/internal/hosts"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

const (
	defaultResults = 5
	maxResults     = 20
	maxSearch      = 4 << 20 // bytes of a response
	maxSnippet     = 1000    // characters
)

// searcher is web_search. Its endpoint belongs to the administrator: the lists of web_fetch do not
// apply to it, and it may be at a private address.
type searcher struct{ web *fetcher }

const searchParameters = `{
  "type": "object",
  "properties": {
    "query": {"type": "string", "minLength": 1, "maxLength": 1000},
    "num_results": {"type": "integer", "minimum": 1, "maximum": 20, "description": "5 if left out"}
  },
  "required": ["query"],
  "additionalProperties": false
}`

// Spec describes web_search. A query may carry data to the outside.
func (s *searcher) Spec() toolcrib.Spec {
	return toolcrib.Spec{
		Name: Search, Description: "Search the web. Returns title, url and snippet of each result.",
		Parameters: json.RawMessage(searchParameters), Effect: toolcrib.EffectReadOnly, Group: Group, Source: source,
		EnabledByDefault: true, Untrusted: true, Sink: true, Plans: toolcrib.PlanFacts{Targets: true},
	}
}

// Plan decodes the arguments. The target is the host of the endpoint. A wrong endpoint is reported when
// the call runs.
func (s *searcher) Plan(_ context.Context, call toolcrib.Call) (*toolcrib.Plan, error) {
	u, wrong := s.endpoint()
	plan, _, err := wire.Plan(call, searchArguments{},
		func(ctx context.Context, call toolcrib.Call, in searchArguments) (toolcrib.Output, error) {
			if wrong != nil {
				return toolcrib.Output{}, wrong
			}
			at := *u // which the request completes
			return s.find(ctx, call, &at, in)
		})
	if wrong == nil {
		plan.Targets = []toolcrib.Target{{Kind: TargetHost, Name: u.Hostname()}}
	}
	return plan, err
}

// Call plans the call and runs the plan.
func (s *searcher) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	return toolcrib.RunPlan(ctx, s, call)
}

func (s *searcher) endpoint() (*url.URL, error) {
	text, err := s.web.SearchEndpoint()
	if err != nil {
		return nil, err
	}
	u, err := hosts.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("tools.web.search.endpoint: %w", err)
	}
	return u, nil
}

// engine describes the API of a search service.
type engine struct {
	path           string // path if the endpoint has none
	query, count   string // names of these parameters; "" if not supported
	format         string
	header, before string // header of the key, and the text before the key
	post           bool   // the parameters are JSON in the body
}

// engines are the services known by their hosts. Any other host is queried like SearXNG, which has no count (C9).
var engines = map[string]engine{
	"api.search.brave.com": {path: "/res/v1/web/search", query: "q", count: "count", header: "X-Subscription-Token"},
	"api.tavily.com": {
		path: "/search", query: "query", count: "max_results", header: "Authorization", before: "Bearer ", post: true,
	},
	"": {path: "/search", query: "q", count: "count", format: "json", header: "Authorization", before: "Bearer "},
}

// request returns a request to an endpoint.
func (e *engine) request(ctx context.Context, u *url.URL, query string, n int, key string) (*http.Request, error) {
	if u.Path == "/" {
		u.Path = e.path
	}
	method, values, fields := http.MethodGet, u.Query(), map[string]any{e.query: query}
	values.Set(e.query, query)
	if e.count != "" {
		values.Set(e.count, strconv.Itoa(n))
		fields[e.count] = n
	}
	if e.format != "" {
		values.Set("format", e.format)
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	if e.post {
		method = http.MethodPost
	} else {
		u.RawQuery, body = values.Encode(), nil
	}
	r, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	if e.post {
		r.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		r.Header.Set(e.header, e.before+key)
	}
	return r, nil
}

// found is a response of the services, each of which uses some of the fields.
type found struct {
	Results []hit `json:"results"`
	Web     struct {
		Results []hit `json:"results"`
	} `json:"web"`
}

type hit struct {
	Title       string `json:"title"`
	URL         string `json:"url"`
	Content     string `json:"content"`
	Description string `json:"description"`
}

// searchResult is one result for the model.
type searchResult struct {
	Title   string `json:"title"`
	URL     string `json:"url"`
	Snippet string `json:"snippet"`
}

type searchArguments struct {
	Query      string `json:"query"`
	NumResults int    `json:"num_results"`
}

// find searches. Redirects of the service are not followed.
func (s *searcher) find(ctx context.Context, call toolcrib.Call, u *url.URL, in searchArguments) (
	toolcrib.Output, error,
) {
	n := min(cmp.Or(max(in.NumResults, 0), defaultResults), maxResults)
	got, err := s.search(ctx, call, u, in.Query, n)
	if err != nil {
		return toolcrib.Output{}, err
	}
	results := []searchResult{}
	for _, h := range append(got.Results, got.Web.Results...) {
		if u, err := hosts.Parse(h.URL); err == nil && len(results) < n {
			results = append(results, searchResult{plainText(h.Title), u.String(), plainText(cmp.Or(h.Content, h.Description))})
		}
	}
	return wire.Output(map[string]any{"query": in.Query, "results": results})
}

func (s *searcher) search(ctx context.Context, call toolcrib.Call, u *url.URL, query string, n int) (
	got found, err error,
) {
	key := ""
	if s.web.SearchKey != nil {
		if key, err = s.web.SearchKey(); err != nil {
			return got, err
		}
	}
	e, known := engines[u.Hostname()]
	if !known {
		e = engines[""]
	}
	r, err := e.request(ctx, u, query, n, key)
	if err != nil {
		return got, err
	}
	r.Header.Set("User-Agent", s.web.userAgent())
	if err := s.web.budget.Spend(call, "", int64(len(query)), true); err != nil {
		return got, err
	}
	own := egress.Guard{Resolver: s.web.net.resolver} // no list applies to it
	response, err := s.web.transport(own.Dialer(u, true)).RoundTrip(r)
	if err != nil {
		return got, s.web.failure(ctx, u, err)
	}
	defer response.Body.Close()
	fails := func(what string) error {
		return toolcrib.Failf(toolcrib.ExecutionFailed, "the search service %s %s", u.Host, what)
	}
	switch code := response.StatusCode; {
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return got, fails(fmt.Sprintf("refuses (status %d): see tools.web.search.api_key; a SearXNG must list json in search.formats", code))
	case code == http.StatusTooManyRequests:
		return got, fails("allows no more requests for now (status 429)")
	case code != http.StatusOK:
		return got, fails(fmt.Sprintf("answered with status %d", code))
	}
	meter := s.web.budget.Meter(call, maxSearch+1)
	defer meter.Close()
	data, err := io.ReadAll(io.LimitReader(meter.Reader(response.Body), maxSearch+1))
	switch {
	case errors.Is(err, egress.ErrSpent):
		return got, s.web.budget.Refusal()
	case err != nil:
		return got, s.web.failure(ctx, u, err)
	case len(data) > maxSearch || json.Unmarshal(data, &got) != nil:
		return got, fails("did not answer with results in JSON")
	}
	return got, nil
}

var tagPattern = lazyregexp.New(`</?[a-zA-Z][^<>]{0,200}>`)

// plainText returns a title or snippet without the marks that some services put around matches.
func plainText(text string) string {
	text = html.UnescapeString(tagPattern.ReplaceAllString(text, ""))
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > maxSnippet {
		text = string(runes[:maxSnippet]) + "…"
	}
	return text
}
