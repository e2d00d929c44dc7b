package wire_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// A connection is not retried if waiting does not help: a certificate that is not
// trusted or is for another host, and a server without TLS.
func TestHandshake_NotTriedAgain(t *testing.T) {
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	for base, says := range map[string]string{
		secure.URL: "certificate",
		strings.Replace(plain.URL, "http:", "https:", 1): "TLS handshake",
	} {
		c, err := wire.NewClient(wire.Options{Name: "local", BaseURL: base, Proxy: wire.ProxyNone}, "", func(http.Header, string) {})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Get(context.Background(), "/models")
		var e *toolcrib.ModelError
		if !errors.As(err, &e) || e.Class.Retryable() || !e.Unsent || !strings.Contains(e.Message, says) {
			t.Errorf("%s: %+v", base, err)
		}
	}
}

// A request without a connection was not sent, even if it had one before on which
// nothing was sent. For transports that do not report this, it is unknown.
func TestUnsent(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	for name, tt := range map[string]struct {
		hooks  string
		unsent bool
	}{
		"no connection":                 {"look", true},
		"the first was stale":           {"look got look", true},
		"it broke":                      {"look got", false},
		"HTTP/2, shared":                {"look look got", false},
		"a transport that says nothing": {"", false},
	} {
		rt := roundTrip(func(r *http.Request) (*http.Response, error) {
			trace := httptrace.ContextClientTrace(r.Context())
			for _, hook := range strings.Fields(tt.hooks) {
				if hook == "look" {
					trace.GetConn("api.example:80")
				} else {
					trace.GotConn(httptrace.GotConnInfo{})
				}
			}
			return nil, refused
		})
		c, err := wire.NewClient(wire.Options{BaseURL: "http://api.example", Transport: rt}, "", func(http.Header, string) {})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Get(t.Context(), "/models")
		var e *toolcrib.ModelError
		if !errors.As(err, &e) || e.Class != toolcrib.ErrNetwork || e.Unsent != tt.unsent {
			t.Errorf("%s: %+v", name, err)
		}
	}
}

// Failures before a request is sent: the proxy refuses, the name does not exist,
// TLS is not completed in time. Refused connections and names that do not exist are
// in modeltest.
func TestUnsent_BeforeTheRequest(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer proxy.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, o := range map[string]wire.Options{
		"proxy": {BaseURL: "https://api.example", Proxy: proxy.URL},
		"TLS":   {BaseURL: "https://" + silent.Addr().String(), Proxy: wire.ProxyNone, ConnectTimeout: 50 * time.Millisecond},
	} {
		c, err := wire.NewClient(o, "", func(http.Header, string) {})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Get(t.Context(), "/models")
		var e *toolcrib.ModelError
		if !errors.As(err, &e) || !e.Unsent {
			t.Errorf("%s: %+v", name, err)
		}
	}
}
