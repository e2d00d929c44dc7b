package signin

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
)

// TestReachable: an authorization server that a public server names is not in the network of
// the person, however the address is written.
func TestReachable(t *testing.T) {
	for _, host := range []string{
		"127.0.0.1", "127.9.9.9", "localhost", "LOCALHOST", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", "10.0.0.1",
		"172.16.0.1", "192.168.1.1", "::ffff:192.168.1.1", "169.254.169.254", "fe80::1", "fd00:ec2::254", "100.64.0.1",
		"198.18.0.1", "192.0.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::",
		"2001::1", "ff02::1", "fec0::1",
	} {
		if reachable(host, false) == nil {
			t.Errorf("%s is taken for public", host)
		}
	}
	for _, host := range []string{"8.8.8.8", "2606:4700::1111", "auth.example"} {
		if err := reachable(host, false); err != nil {
			t.Error(err)
		}
	}
}

// TestReachable_Private: an issuer that its administrator has named may be in their network,
// but nothing leads to where a cloud hands out credentials.
func TestReachable_Private(t *testing.T) {
	for host, ok := range map[string]bool{
		"127.0.0.1": true, "localhost": true, "10.0.0.1": true, "fd12::1": true, "8.8.8.8": true,
		"169.254.169.254": false, "fd00:ec2::254": false, "100.100.100.200": false, "224.0.0.1": false,
	} {
		if err := reachable(host, true); (err == nil) != ok {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// TestClient_Reaches: the address that is connected to counts, also of a name.
func TestClient_Reaches(t *testing.T) {
	here := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(here.Close)
	far, _ := url.Parse("https://mcp.example/mcp")
	same, _ := url.Parse(here.URL + "/mcp")
	named := strings.Replace(here.URL, "127.0.0.1", "localhost", 1)
	for _, tt := range []struct {
		server  *url.URL
		private bool
		to      string
		reaches bool
	}{
		{far, false, here.URL, false},
		{far, false, named, false},
		{far, true, here.URL, true},
		{same, false, here.URL, true}, // the server itself is where its administrator says
		{same, false, named, false},
	} {
		r, err := client(tt.server, tt.private).Get(tt.to)
		if err == nil {
			_ = r.Body.Close()
		}
		if reached := err == nil; reached != tt.reaches || err != nil && !strings.Contains(err.Error(), "public address") {
			t.Errorf("from %s to %s: %v", tt.server, tt.to, err)
		}
	}
}

func TestAddress(t *testing.T) {
	for text, ok := range map[string]bool{
		"https://a.example/x?y": true, "http://127.0.0.1:1/x": true, "http://localhost/x": true, "http://[::1]/": true,
		"http://a.example": false, "http://127.0.0.1.example": false, "https://user:pw@a.example": false, "https://": false,
		"https://a.example/#x": false, "javascript:alert(1)": false, "": false, "/x": false, "https:a": false,
		"file:///etc/passwd": false, "HTTP://localhost@evil.example": false,
	} {
		if _, err := address(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestBelieve_Reaches: nor is the person's browser sent into their network by a public server.
func TestBelieve_Reaches(t *testing.T) {
	at, _ := url.Parse("https://mcp.example/mcp")
	for _, change := range []func(m *oauthex.AuthServerMeta){
		func(m *oauthex.AuthServerMeta) { m.AuthorizationEndpoint = "http://127.0.0.1:8080/admin?delete=all" },
		func(m *oauthex.AuthServerMeta) { m.AuthorizationEndpoint = "https://192.168.1.1/" },
		func(m *oauthex.AuthServerMeta) { m.TokenEndpoint = "https://[::ffff:10.0.0.1]/token" },
		func(m *oauthex.AuthServerMeta) { m.RegistrationEndpoint = "http://localhost/register" },
		func(m *oauthex.AuthServerMeta) { m.RevocationEndpoint = "https://169.254.169.254/revoke" },
	} {
		meta := &oauthex.AuthServerMeta{
			Issuer: "https://a.example", AuthorizationEndpoint: "https://a.example/authorize",
			TokenEndpoint: "https://a.example/token", CodeChallengeMethodsSupported: []string{"S256"},
		}
		l := &login{at: at, credentials: new(Credentials)}
		if err := l.apply(meta, new(oauthex.ProtectedResourceMetadata), nil); err != nil {
			t.Fatal(err)
		}
		change(meta)
		if err := l.apply(meta, new(oauthex.ProtectedResourceMetadata), nil); err == nil ||
			!strings.Contains(err.Error(), "public address") {
			t.Errorf("%+v: %v", meta, err)
		}
	}
}

// Some servers write the numbers of a registration or token as texts.
func TestPlainNumbers(t *testing.T) {
	for text, want := range map[string]string{
		`{"client_id":"x","client_id_issued_at":"17","client_secret_expires_at":"0"}`: `{"client_id":"x","client_id_issued_at":17,"client_secret_expires_at":0}`,
		`{"client_id_issued_at":1.7,"client_secret_expires_at":null}`:                 `{"client_id_issued_at":1}`,
		`{"expires_in":"3600","scope":"5"}`:                                           `{"expires_in":3600,"scope":"5"}`,
		`{"expires_in":3600}`:                                                         `{"expires_in":3600}`,
		`no JSON`:                                                                     `no JSON`,
	} {
		if got := string(plainNumbers([]byte(text))); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}
