package web

import (
	"crypto/x509"
	"net"
	"net/http"

	"github.com/toolcrib/toolcrib"
)

// NewOn is [New] with names looked up, and certificates checked, by a test.
func NewOn(o Options, resolver *net.Resolver, roots *x509.CertPool) []toolcrib.Tool {
	o.net = network{resolver: resolver, transport: func(t *http.Transport) { t.TLSClientConfig.RootCAs = roots }}
	return New(o)
}

// Expire makes all that is kept old.
func (c *Cache) Expire() {
	for _, e := range c.entries {
		e.until = e.until.Add(-2 * maxFresh)
	}
}

// Size is how much is kept.
func (c *Cache) Size() (entries, bytes int) { return len(c.entries), c.bytes }
