package signin

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// answers receives the answer that the authorization server sends with the browser: to an address on this machine,
// or pasted by the person.
type answers struct {
	listener net.Listener
	redirect string
	server   *http.Server

	state, issuer string
	named         bool // the issuer is part of each answer

	got chan answer
}

type answer struct {
	code string
	err  error
}

// listen opens the address that the browser is sent back to.
func listen(port int) (*answers, error) {
	l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, fmt.Errorf("the browser's answer cannot be awaited on 127.0.0.1: %w", err)
	}
	return &answers{listener: l, redirect: "http://" + l.Addr().String() + "/callback", got: make(chan answer, 1)}, nil
}

// The pages that a browser sees at the end. They contain nothing of the request.
const (
	pageHead = "<!doctype html><html lang=en><meta charset=utf-8><title>toolcrib</title>" +
		"<body style='font:1.1em sans-serif;margin:4em auto;max-width:30em'>"
	pageDone  = pageHead + "<p>toolcrib has the answer. You can close this page; the terminal says how it went."
	pageWrong = pageHead + "<p>This answer does not belong to the sign-in that toolcrib waits for. Begin again with the link " +
		"in the terminal."
)

// serve takes the answer from the browser.
func (a *answers) serve() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /callback", func(w http.ResponseWriter, q *http.Request) {
		for name, value := range map[string]string{
			"Content-Type": "text/html; charset=utf-8", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer",
			"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'", "X-Content-Type-Options": "nosniff",
		} {
			w.Header().Set(name, value)
		}
		// A request with another host name does not come from the browser that toolcrib sent.
		if q.Host != a.listener.Addr().String() || a.take(q.URL.RawQuery) != nil {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, pageWrong)
			return
		}
		fmt.Fprint(w, pageDone)
	})
	a.server = &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10,
	}
	go a.server.Serve(a.listener) //nolint:errcheck // it ends with close
}

func (a *answers) close() {
	if a.server == nil {
		_ = a.listener.Close() // nothing was accepted
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second) // the browser gets its page
	defer cancel()
	if a.server.Shutdown(ctx) != nil {
		_ = a.server.Close() // it ends in any case
	}
}

// take accepts the query of an answer. If it does not belong to this sign-in, take returns an error and changes
// nothing.
func (a *answers) take(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return errors.New("it is not an answer of an authorization server")
	}
	for _, name := range []string{"state", "iss", "code", "error"} {
		if len(values[name]) > 1 {
			return fmt.Errorf("it has %s more than once", name)
		}
	}
	if subtle.ConstantTimeCompare([]byte(values.Get("state")), []byte(a.state)) != 1 {
		return errors.New("it belongs to another sign-in")
	}
	var got answer
	switch iss := values.Get("iss"); {
	case (a.named || values.Has("iss")) && iss != a.issuer: // RFC 9207
		got.err = fmt.Errorf("the answer is not from %s, but from %s, so it was not used", a.issuer, cmp.Or(clean(iss), "nobody"))
	case values.Has("error"):
		reason := clean(values.Get("error"))
		if more := values.Get("error_description"); more != "" {
			reason += ": " + clean(more)
		}
		got.err = fmt.Errorf("%s refused the sign-in: %s", a.issuer, reason)
	case values.Get("code") == "":
		got.err = fmt.Errorf("the answer of %s has no code", a.issuer)
	default:
		got.code = values.Get("code")
	}
	select {
	case a.got <- got:
	default: // an answer is already there
	}
	return nil
}

// wait returns the code of the answer, from the browser or from the person.
func (a *answers) wait(ctx context.Context, p Person) (string, error) {
	for {
		select {
		case got := <-a.got:
			return got.code, got.err
		case text, ok := <-p.Pasted:
			if !ok {
				p.Pasted = nil
				continue
			}
			_, query, found := strings.Cut(strings.TrimSpace(text), "?")
			query, _, _ = strings.Cut(query, "#")
			err := errors.New("the address contains no answer")
			if found {
				err = a.take(query)
			}
			if err != nil && p.Wrong != nil {
				p.Wrong(err.Error())
			}
		case <-ctx.Done():
			if err := context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) {
				return "", err
			}
			return "", errors.New("timed out waiting for the sign-in")
		}
	}
}
