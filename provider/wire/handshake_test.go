package wire_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// A connection that no waiting mends is not tried again: a certificate that is not
// trusted or is for another host, and a server that speaks no TLS, or nothing but it.
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
