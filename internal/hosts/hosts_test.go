package hosts_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/internal/hosts"
)

// Every spelling that is read is read as the one address that is connected to; what two
// readers could take for two addresses is refused ("" = refused).
func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"http://example.com":                      "http://example.com/",
		"HTTPS://Example.COM:443/A?b#c":           "https://example.com/A?b",
		"http://example.com:80":                   "http://example.com/",
		"https://example.com:80":                  "https://example.com:80/",
		"http://example.com./x":                   "http://example.com/x",
		"http://bücher.example/ü":                 "http://xn--bcher-kva.example/%C3%BC",
		"http://EXAMPLE。com":                      "http://example.com/",
		"http://exa_mple.com/":                    "http://exa_mple.com/",
		"http://[::1]:80/":                        "http://[::1]/",
		"http://[0:0:0:0:0:0:0:1]:8080/":          "http://[::1]:8080/",
		"http://[::ffff:127.0.0.1]/":              "http://127.0.0.1/",
		"http://①②⑦.⓪.⓪.①/":                       "http://127.0.0.1/",
		"http://１２７.０.０.１":                        "http://127.0.0.1/",
		"http://127.0.0.1.":                       "http://127.0.0.1/",
		"http://127。0。0。1":                        "http://127.0.0.1/",
		"http://ex\u00ADample.com/":               "http://example.com/",
		"http://example.com/a%2F..%2fb/./":        "http://example.com/a%2F..%2fb/./",
		"http://127.1":                            "",
		"http://0177.0.0.1":                       "",
		"http://0x7f.0.0.1":                       "",
		"http://0x7f000001":                       "",
		"http://0x":                               "",
		"http://2130706433":                       "",
		"http://127.0.0.01":                       "",
		"http://127.0.0.1.1":                      "",
		"http://127.0.0.256":                      "",
		"http://a.1":                              "",
		"http://a.0x1":                            "",
		"http://①②⑦.1":                            "",
		"http://user@example.com":                 "",
		"http://user:pw@example.com":              "",
		"http://@example.com":                     "",
		"http://a@b@example.com":                  "",
		"http://example.com\\@evil.example/":      "",
		"http:\\\\example.com/":                   "",
		"http://example.com%2eevil.example":       "",
		"http://%31%32%37.0.0.1":                  "",
		"http://[fe80::1%25eth0]/":                "",
		"http://[fe80::1%eth0]/":                  "",
		"http://[127.0.0.1]/":                     "",
		"http://[::1":                             "",
		"http://::1/":                             "",
		"http://[::1]x/":                          "",
		"http://example.com:":                     "",
		"http://example.com:0":                    "",
		"http://example.com:65536":                "",
		"http://example.com:080":                  "",
		"http://example.com:8a":                   "",
		"http://example.com:80:80":                "",
		"http://":                                 "",
		"http:///path":                            "",
		"http://?q":                               "",
		"http://.":                                "",
		"http://..":                               "",
		"http://a..b":                             "",
		"http:example.com":                        "",
		"http:/example.com":                       "",
		"//example.com":                           "",
		"example.com":                             "",
		"ftp://example.com":                       "",
		"file:///etc/passwd":                      "",
		"gopher://example.com":                    "",
		"javascript:alert(1)":                     "",
		"data:text/html,x":                        "",
		" http://example.com":                     "",
		"http://exa mple.com":                     "",
		"http://example.com/\n":                   "",
		"http://example.com/\x00":                 "",
		"http://example.com/%zz":                  "",
		"http://exa$mple.com":                     "",
		"http://exa&mple.com":                     "",
		"http://-":                                "",
		"http://xn--a/":                           "",
		"http://" + strings.Repeat("a", 64):       "",
		"http://e.x/" + strings.Repeat("a", 9000): "",
		"": "",
	} {
		u, err := hosts.Parse(text)
		got := ""
		if err == nil {
			got = u.String()
		}
		if got != want {
			t.Errorf("%q: got %q, %v; want %q", text, got, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "example") {
			t.Errorf("%q: the error holds the URL: %v", text, err)
		}
	}
}

func TestLists(t *testing.T) {
	for _, c := range []struct {
		list, url              string
		allowed, named, denied bool
	}{
		{"", "https://example.com/", false, false, false},
		{"example.com", "https://example.com/", true, true, true},
		{"example.com", "http://example.com/x", true, true, true},
		{"example.com", "http://example.com:8080/", false, false, true},
		{"example.com:8080", "http://example.com:8080/", true, true, true},
		{"example.com:8080", "http://example.com/", false, false, false},
		{"example.com", "https://www.example.com/", false, false, false},
		{"example.com", "https://badexample.com/", false, false, false},
		{"example.com", "https://example.com.evil.example/", false, false, false},
		{"EXAMPLE.com", "https://example.com/", true, true, true},
		{"bücher.example", "https://xn--bcher-kva.example/", true, true, true},
		{"*.example.com", "https://a.b.example.com/", true, true, true},
		{"*.example.com", "https://example.com/", false, false, false},
		{"*.example.com", "https://badexample.com/", false, false, false},
		{"*", "https://example.com/", true, false, true},
		{"*", "https://example.com:8443/", false, false, true},
		{"https://example.com/docs/", "https://example.com/docs/a", true, true, true},
		{"https://example.com/docs/", "https://example.com/docs", true, true, true},
		{"https://example.com/docs/", "http://example.com/docs/a", false, false, false},
		{"https://example.com/docs/", "https://example.com/docsx", false, false, false},
		{"https://example.com/docs", "https://example.com/docs-internal/", false, false, false},
		{"https://example.com/docs/", "https://example.com/%64ocs/a", true, true, true},
		{"https://example.com/docs/", "https://example.com/docs/../secret", false, false, true},
		{"https://example.com/docs/", "https://example.com/docs/%2e%2e/secret", false, false, true},
		{"https://example.com/docs/", "https://example.com/docs/..%2fsecret", false, false, true},
		{"https://example.com/docs/", "https://example.com/docs/%252e%252e/secret", false, false, true},
		{"https://example.com/docs/", "https://example.com/docs/..;/secret", false, false, true},
		{"https://example.com/docs/", "https://example.com//docs/", false, false, true},
		{"https://example.com/docs/", "https://example.com/x/../docs/", false, false, true},
		{"https://example.com/docs/", "https://example.com/DOCS/", false, false, true},
		{"https://example.com", "https://example.com/a/../b", true, true, true},
		{"127.0.0.1:8080", "http://127.0.0.1:8080/", true, true, true},
		{"[::1]", "http://[::1]/", true, true, true},
		{"::1", "http://[::1]/", true, true, true},
		{"127.0.0.1", "http://[::ffff:127.0.0.1]/", true, true, true},
	} {
		var texts []string
		if c.list != "" {
			texts = []string{c.list}
		}
		l, err := hosts.NewList(texts)
		if err != nil {
			t.Errorf("%s: %v", c.list, err)
			continue
		}
		u, err := hosts.Parse(c.url)
		if err != nil {
			t.Fatal(err)
		}
		if allowed, named := l.Allows(u); allowed != c.allowed || named != c.named || l.Denies(u) != c.denied {
			t.Errorf("%s, %s: allowed %t, named %t, denied %t", c.list, c.url, allowed, named, l.Denies(u))
		}
	}
	for _, text := range []string{
		"", "*.", "**", "*.*", "a b", "ftp://a", "https://a/?q", "https://a/#f", "https://u@a/", "https://*.a/", "a/b", "127.1", "0x7f.1",
		"https://a/x/../y", "https://a//b", "a:0", "a:b", "[::1", "a%2eb", "*.127.0.0.1:x", ".a",
	} {
		if _, err := hosts.NewList([]string{"ok.example", text}); err == nil || hosts.CheckEntry(text) == "" {
			t.Errorf("%q is an entry", text)
		}
	}
}

func TestReachOf(t *testing.T) {
	never, private, public := hosts.Never, hosts.Private, hosts.Public
	for text, want := range map[string]hosts.Reach{
		"8.8.8.8": public, "93.184.216.34": public, "1.1.1.1": public, "2606:4700:4700::1111": public, "172.32.0.1": public,
		"100.128.0.1": public, "169.253.255.255": public, "198.20.0.1": public, "223.255.255.255": public,
		"64:ff9b::808:808": public, "::ffff:8.8.8.8": public,
		"127.0.0.1": private, "127.255.255.254": private, "10.0.0.1": private, "172.16.0.1": private, "172.31.255.255": private,
		"192.168.1.1": private, "100.64.0.1": private, "198.18.0.1": private, "::1": private, "fd12:3456::1": private, "fc00::1": private,
		"::ffff:10.0.0.1": private,
		"0.0.0.0":         never, "0.1.2.3": never, "169.254.169.254": never, "169.254.0.1": never, "168.63.129.16": never,
		"100.100.100.200": never, "192.0.0.192": never, "192.0.2.1": never, "198.51.100.1": never, "203.0.113.1": never,
		"192.88.99.1": never, "224.0.0.1": never, "239.255.255.250": never, "240.0.0.1": never, "255.255.255.255": never,
		"::": never, "fe80::1": never, "fec0::1": never, "ff02::1": never, "fd00:ec2::254": never, "fd20:ce::254": never,
		"2002:7f00:1::": never, "2002:808:808::": never, "2001::1": never, "2001:db8::1": never, "::127.0.0.1": never,
		"::8.8.8.8": never, "64:ff9b::7f00:1": never, "64:ff9b::a00:1": never, "64:ff9b::a9fe:a9fe": never, "64:ff9b:1::1": never,
		"::ffff:169.254.169.254": never, "::ffff:0:8.8.8.8": never, "100::1": never, "5f00::1": never, "4000::1": never,
		"fe80::1%eth0": never,
	} {
		if got := hosts.ReachOf(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
	if hosts.ReachOf(netip.Addr{}) != never {
		t.Error("the zero address can be reached")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("http://example.com:80/%2e?x#y")
	f.Add("http://①②⑦.1")
	f.Fuzz(func(t *testing.T, text string) {
		u, err := hosts.Parse(text)
		if err != nil {
			return
		}
		again, err := hosts.Parse(u.String())
		if err != nil || again.String() != u.String() {
			t.Errorf("%q is read as %q, and that as %v, %v", text, u, again, err)
		}
		if u.User != nil || u.Opaque != "" || strings.ContainsAny(u.Host, "%@\\ ") {
			t.Errorf("%q: host %q", text, u.Host)
		}
	})
}

func TestLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LocalHost": true, "127.0.0.1": true, "127.9.9.9": true, "::1": true, "::ffff:127.0.0.1": true,
		"": false, "localhost.example": false, "127.0.0.1.example": false, "10.0.0.1": false, "::": false, "0.0.0.0": false,
	} {
		if hosts.Loopback(host) != want {
			t.Errorf("%q: %t, want %t", host, !want, want)
		}
	}
}
