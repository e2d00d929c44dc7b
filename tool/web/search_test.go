package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/safefile"
	"github.com/toolcrib/toolcrib/tool/web"
	"github.com/toolcrib/toolcrib/toolcribtest/tooltest"
)

// search calls web_search with an endpoint whose name leads to a server of the test.
func search(t *testing.T, endpoint, key, arguments string, handler http.HandlerFunc) (string, error) {
	t.Helper()
	return searchWith(t, web.Options{}, endpoint, key, arguments, handler)
}

func searchWith(t *testing.T, o web.Options, endpoint, key, arguments string, handler http.HandlerFunc) (string, error) {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	to := func(tr *http.Transport) {
		tr.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, s.Listener.Addr().String())
		}
	}
	o.SearchEndpoint, o.SearchKey = func() (string, error) { return endpoint, nil }, func() (string, error) { return key, nil }
	tool := web.NewOn(o, nil, to)[1]
	out, err := tool.Call(t.Context(), toolcrib.Call{Name: web.Search, Arguments: json.RawMessage(arguments), Session: "ses_1"})
	return string(out.JSON), err
}

func TestSearch(t *testing.T) {
	const (
		found = `{"query":"a b&c","results":[{"title":"One & two","url":"https://one.example/","snippet":"the match"}]}`
		hits  = `[{"title":"One &amp; two","url":"https://one.example","content":"the <strong>match</strong>"},` +
			`{"title":"no address","url":"javascript:1","content":"x"},{"title":"Two","url":"https://two.example/","content":"x"}]`
	)
	brave := strings.ReplaceAll(hits, `"content"`, `"description"`)
	for _, c := range []struct{ endpoint, key, reply, request string }{
		{
			"http://searx.example:8888", "", `{"query":"x","results":` + hits + `}`,
			"GET /search?count=1&format=json&q=a+b%26c  ",
		},
		{
			"http://searx.example/find?language=de", "k", `{"results":` + hits + `}`,
			"GET /find?count=1&format=json&language=de&q=a+b%26c  Bearer k",
		},
		{
			"http://api.search.brave.com/res/v1/web/search", "k", `{"web":{"results":` + brave + `}}`,
			"GET /res/v1/web/search?count=1&q=a+b%26c  k",
		},
		{
			"http://api.tavily.com", "k", `{"results":` + hits + `}`,
			`POST /search {"max_results":1,"query":"a b\u0026c"} Bearer k`,
		},
	} {
		var request string
		got, err := search(t, c.endpoint, c.key, `{"query":"a b&c","num_results":1}`, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			request = fmt.Sprintf("%s %s %s %s", r.Method, r.URL, body, r.Header.Get("Authorization")+r.Header.Get("X-Subscription-Token"))
			fmt.Fprint(w, c.reply)
		})
		if err != nil || got != found || request != c.request {
			t.Errorf("%s: %s, %v, asked %q", c.endpoint, got, err, request)
		}
	}
	var many strings.Builder
	for i := range 50 {
		fmt.Fprintf(&many, `,{"title":"t","url":"https://h%d.example/","content":%q}`, i, strings.Repeat("x", 5000))
	}
	for arguments, want := range map[string]int{
		`{"query":"x"}`: 5, `{"query":"x","num_results":20}`: 20, `{"query":"x","num_results":1000}`: 20, `{"query":"x","num_results":-1}`: 5,
	} {
		got, err := search(t, "http://searx.example", "", arguments, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"results":[`+many.String()[1:]+`]}`)
		})
		if err != nil || strings.Count(got, `"url"`) != want || len(got) > want*1200 {
			t.Errorf("%s: %d bytes, %v", arguments, len(got), err)
		}
	}
}

func TestX11_SearchIsBounded(t *testing.T) {
	o := web.Options{SessionBytes: 2000, SessionHosts: 1, Files: safefile.Folder{Dir: t.TempDir()}}
	asked := 0
	for i, want := range []string{"", "", "max_bytes_per_session", "max_bytes_per_session"} {
		_, err := searchWith(t, o, "http://searx.example", "", `{"query":"`+strings.Repeat("q", 200)+`"}`,
			func(w http.ResponseWriter, _ *http.Request) {
				asked++
				fmt.Fprint(w, `{"results":[]}`+strings.Repeat(" ", 600))
			})
		if want == "" && err != nil || want != "" && !strings.Contains(refusal(t, err), want) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if asked != 3 { // the answer to the third is longer than what is left
		t.Errorf("%d requests", asked)
	}
}

func TestSearchFails(t *testing.T) {
	for reply, want := range map[string]string{
		"401": "refuses (status 401): see tools.web.search.api_key", "403": "search.formats", "429": "no more requests", "500": "status 500",
		"302": "status 302", "<html>": "did not answer with results in JSON", `{"results":7}`: "did not answer with results in JSON",
		strings.Repeat(" ", 5<<20) + "{}": "did not answer with results in JSON",
	} {
		_, err := search(t, "http://searx.example", "sk-very-secret", `{"query":"x"}`, func(w http.ResponseWriter, r *http.Request) {
			var status int
			if _, err := fmt.Sscanf(reply, "%d", &status); err == nil {
				w.Header().Set("Location", "http://127.0.0.1/")
				w.WriteHeader(status)
				return
			}
			fmt.Fprint(w, reply)
		})
		if text := refusal(t, err); !strings.Contains(text, want) || strings.Contains(text, "secret") {
			t.Errorf("%.20q: %s", reply, text)
		}
	}
	// What the configuration has wrong is for the operator.
	broken := errors.New("no secret of this name")
	for _, o := range []web.Options{
		{SearchEndpoint: func() (string, error) { return "", broken }},
		{SearchEndpoint: func() (string, error) { return "http://user:pw@h/", nil }},
		{
			SearchEndpoint: func() (string, error) { return "http://h/", nil },
			SearchKey:      func() (string, error) { return "", broken },
		},
	} {
		_, err := web.New(o)[1].Call(t.Context(), toolcrib.Call{Arguments: json.RawMessage(`{"query":"x"}`)})
		if made := (*toolcrib.ToolError)(nil); err == nil || errors.As(err, &made) || strings.Contains(err.Error(), "pw") {
			t.Errorf("%v", err)
		}
	}
	if tools := web.New(web.Options{}); len(tools) != 1 {
		t.Error("web_search without an endpoint")
	}
	spec := web.New(web.Options{SearchEndpoint: func() (string, error) { return "http://h.example:1/", nil }})[1]
	if s := spec.Spec(); !s.Untrusted || !s.Sink || s.Effect != toolcrib.EffectReadOnly {
		t.Errorf("%+v", s)
	}
	if targets := tooltest.Facts(spec, toolcrib.Call{}).Targets; len(targets) != 1 || targets[0].Name != "h.example" {
		t.Errorf("%+v", targets)
	}
}
