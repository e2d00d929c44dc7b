package web

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Cache keeps pages in memory, for the user who read them. The zero value is an empty cache. It is safe
// for concurrent use by multiple goroutines.
type Cache struct {
	mu      sync.Mutex
	entries map[string]*entry
	bytes   int
	clock   uint64
}

const (
	maxEntries  = 256
	maxKept     = 32 << 20 // bytes of all pages
	maxKeptPage = 8 << 20
	// How long a page is fresh: at most, and by default if its server does not say.
	maxFresh     = time.Hour
	defaultFresh = 5 * time.Minute
)

// entry is a cached page. Only until and used change, guarded by the cache's lock.
type entry struct {
	kept           page
	etag, modified string
	until          time.Time
	used           uint64
}

func key(r *request) string { return strconv.Quote(r.call.Principal.User) + " " + r.url.String() }

// find returns the cached page for a request, if any, and whether it is fresh. The current lists must
// allow the page and every address that redirected to it.
func (c *Cache) find(r *request, f *fetcher) (e *entry, fresh bool) {
	if c == nil || !cacheable(r) {
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e = c.entries[key(r)]; e == nil {
		return nil, false
	}
	for _, hop := range e.kept.hops {
		if private, err := f.may(hop); err != nil || e.kept.private && !private {
			return nil, false
		}
	}
	c.clock++
	e.used = c.clock
	return e, time.Now().Before(e.until)
}

func cacheable(r *request) bool { return r.method == http.MethodGet && len(r.header) == 0 }

// page returns a copy of the page, marked as cached.
func (e *entry) page() *page {
	p := e.kept
	p.cached = true
	return &p
}

// validate asks the server whether the page has changed.
func (e *entry) validate(to http.Header) {
	if e.etag != "" {
		to.Set("If-None-Match", e.etag)
	}
	if e.modified != "" {
		to.Set("If-Modified-Since", e.modified)
	}
}

// renew records that a page has not changed.
func (c *Cache) renew(e *entry, h http.Header) *page {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.until, _ = freshUntil(h)
	return e.page()
}

// put adds a page to the cache.
func (c *Cache) put(r *request, p *page, h http.Header) {
	until, keep := freshUntil(h)
	if c == nil || !cacheable(r) || !keep || p.status != http.StatusOK || p.cut || len(p.data) > maxKeptPage {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil {
		c.entries = map[string]*entry{}
	}
	c.drop(key(r))
	c.clock++
	c.entries[key(r)] = &entry{
		kept: *p, etag: h.Get("Etag"), modified: h.Get("Last-Modified"), until: until, used: c.clock,
	}
	for c.bytes += len(p.data); len(c.entries) > maxEntries || c.bytes > maxKept; {
		oldest, at := "", uint64(0)
		for key, e := range c.entries {
			if oldest == "" || e.used < at {
				oldest, at = key, e.used
			}
		}
		c.drop(oldest)
	}
}

func (c *Cache) drop(key string) {
	if e := c.entries[key]; e != nil {
		c.bytes -= len(e.kept.data)
		delete(c.entries, key)
	}
}

// freshUntil returns the time until which a response is fresh. keep is false if it must not be cached (RFC 9111).
func freshUntil(h http.Header) (until time.Time, keep bool) {
	now, fresh := time.Now(), defaultFresh
	if expires, err := http.ParseTime(h.Get("Expires")); err == nil {
		fresh = time.Until(expires)
	} else if h.Get("Expires") != "" {
		fresh = 0
	}
	for _, directive := range strings.Split(strings.ToLower(strings.Join(h.Values("Cache-Control"), ",")), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(directive), "=")
		switch name {
		case "no-store":
			return now, false
		case "no-cache":
			return now, true
		case "max-age":
			seconds, err := strconv.ParseInt(strings.Trim(value, `"`), 10, 32)
			if fresh = time.Duration(seconds) * time.Second; err != nil {
				fresh = 0
			}
		}
	}
	if strings.Contains(h.Get("Vary"), "*") {
		fresh = 0
	}
	return now.Add(min(fresh, maxFresh)), true
}
