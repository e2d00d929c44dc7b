package web

import (
	"net"
	"net/http"

	"github.com/toolcrib/toolcrib"
)

// NewOn is [New] on another network.
func NewOn(o Options, resolver *net.Resolver, transport func(*http.Transport)) []toolcrib.Tool {
	o.net = network{resolver: resolver, transport: transport}
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
