package websession_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/server/websession"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
)

// The address of a client is that of the connection, except behind a trusted proxy, whose word counts up to the first
// address that is not trusted.
func TestAddress(t *testing.T) {
	long := strings.Repeat("10.0.0.3, ", 7000)
	for name, tt := range map[string]struct {
		peer, want string
		trusted    []string
		forwarded  []string
	}{
		"no proxy":                {"192.0.2.1:5", "192.0.2.1", nil, nil},
		"header without a proxy":  {"192.0.2.1:5", "192.0.2.1", nil, []string{"198.51.100.9"}},
		"header of another peer":  {"192.0.2.1:5", "192.0.2.1", []string{"10.0.0.1"}, []string{"198.51.100.9"}},
		"beside the network":      {"10.1.0.1:5", "10.1.0.1", []string{"10.0.0.0/16"}, []string{"198.51.100.9"}},
		"proxy without a header":  {"10.0.0.1:5", "10.0.0.1", []string{"10.0.0.1"}, nil},
		"proxy":                   {"10.0.0.1:5", "198.51.100.9", []string{"10.0.0.1"}, []string{"198.51.100.9"}},
		"made up before":          {"10.0.0.1:5", "198.51.100.9", []string{"10.0.0.1"}, []string{"203.0.113.1, 10.0.0.1,198.51.100.9"}},
		"two proxies":             {"10.0.0.1:5", "198.51.100.9", []string{"10.0.0.0/8"}, []string{"203.0.113.1, 198.51.100.9, 10.0.0.7"}},
		"several headers":         {"10.0.0.1:5", "198.51.100.9", []string{"10.0.0.0/8"}, []string{"203.0.113.1", "198.51.100.9", "10.0.0.7"}},
		"only proxies":            {"10.0.0.1:5", "10.0.0.9", []string{"10.0.0.0/8"}, []string{"10.0.0.9, 10.0.0.7"}},
		"garbage":                 {"10.0.0.1:5", "10.0.0.1", []string{"10.0.0.0/8"}, []string{"198.51.100.9, unknown"}},
		"garbage behind a proxy":  {"10.0.0.1:5", "10.0.0.7", []string{"10.0.0.0/8"}, []string{"198.51.100.9, _hidden, 10.0.0.7"}},
		"empty element":           {"10.0.0.1:5", "10.0.0.1", []string{"10.0.0.0/8"}, []string{"198.51.100.9,"}},
		"port":                    {"10.0.0.1:5", "198.51.100.9", []string{"10.0.0.1"}, []string{"198.51.100.9:4711"}},
		"IPv6":                    {"10.0.0.1:5", "2001:db8:1:2::/64", []string{"10.0.0.1"}, []string{"2001:db8:1:2:3::4"}},
		"IPv6 in brackets":        {"10.0.0.1:5", "2001:db8:1:2::/64", []string{"10.0.0.1"}, []string{"[2001:db8:1:2:3::4]"}},
		"IPv6 with a port":        {"10.0.0.1:5", "2001:db8:1:2::/64", []string{"10.0.0.1"}, []string{"[2001:db8:1:2:3::4]:443"}},
		"IPv6 with a zone":        {"[fe80::1%eth0]:5", "2001:db8:1:2::/64", []string{"fe80::/10"}, []string{"2001:db8:1:2:3::4, fe80::2%eth1"}},
		"IPv4 in IPv6":            {"[::ffff:10.0.0.1]:5", "198.51.100.9", []string{"10.0.0.1"}, []string{"::ffff:198.51.100.9"}},
		"very long":               {"10.0.0.1:5", "10.0.0.3", []string{"10.0.0.0/8"}, []string{"198.51.100.9, " + long + "10.0.0.7"}},
		"a very long element":     {"10.0.0.1:5", "10.0.0.1", []string{"10.0.0.0/8"}, []string{"198.51.100.9, " + strings.Repeat("1", 1<<16)}},
		"cut within an element":   {"10.0.0.1:5", "10.0.0.7", []string{"10.0.0.0/8"}, []string{strings.Repeat("1", 9) + "0.0.0.3" + strings.Repeat(" ", 2030) + ", 10.0.0.7"}},
		"peer that is no address": {"@", "@", []string{"10.0.0.0/8"}, []string{"198.51.100.9"}},
	} {
		c := &config.Config{}
		c.Server.TrustedProxies = tt.trusted
		s := websession.New(func() *service.Service { return &service.Service{Env: &env.Env{Options: env.Options{Config: c}}} })
		r := &http.Request{RemoteAddr: tt.peer, Header: http.Header{
			"X-Forwarded-For": tt.forwarded, "Forwarded": {"for=203.0.113.77"}, "X-Real-Ip": {"203.0.113.77"},
		}}
		if got := s.Address(r); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}
