package guard

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestN24_RedactEnv(t *testing.T) {
	for _, name := range []string{
		"PASS", "DB_PASSWORD", "mysql_pwd", "MY_SECRET", "GITHUB_TOKEN", "SSH_KEY", "SALT", "AWS_CREDENTIALS", "AUTH", "X_AUTHORIZATION",
		"PRIVATE", "MASTER_ID", "ENCRYPTION", "SENTRY_DSN", "DATABASE_URL", "OPENAI_API_KEY", "openai_api_key", "Token",
	} {
		if got := RedactEnv(name, "hunter2"); got != "***redacted***" {
			t.Errorf("%s: %q", name, got)
		}
		if got := RedactEnv(name, ""); got != "" {
			t.Errorf("%s, empty: %q", name, got)
		}
	}
	for _, c := range [][3]string{
		{"PATH", "/usr/bin:/bin", "/usr/bin:/bin"},
		{"HOME", "/home/me", "/home/me"},
		{"BROKER", "amqp://me:hunter2@host/vhost", "amqp://***redacted***@host/vhost"},
		{"PROXY", "http://me:p@ss:w0rd@proxy:3128", "http://***redacted***@proxy:3128"},
	} {
		if got := RedactEnv(c[0], c[1]); got != c[2] {
			t.Errorf("%s=%s: %q, want %q", c[0], c[1], got, c[2])
		}
	}
}

func TestN24_RedactText(t *testing.T) {
	for in, want := range map[string]string{
		"connecting to postgres://app:hunter2@db:5432/x?y=1":                         "connecting to postgres://***redacted***@db:5432/x?y=1",
		"https://ghs_0123456789abcdefghij@github.com/a":                              "https://***redacted***@github.com/a",
		`"url":"redis:\/\/:hunter2@cache"`:                                           `"url":"redis:\/\/***redacted***@cache"`,
		"Authorization: Bearer abcdefgh12345":                                        "Authorization: ***redacted***",
		"sent Bearer abcdefgh12345 to x":                                             "sent Bearer ***redacted*** to x",
		"Cookie: a=b; c=d":                                                           "Cookie: ***redacted***",
		"password=hunter2 user=me":                                                   "password=***redacted*** user=me",
		`{"password": "hunter \"2\"","a":1}`:                                         `{"password": "***redacted***","a":1}`,
		`{"log":"{\"password\": \"hunter2\",\"a\":1}"}`:                              `{"log":"{\"password\": \"***redacted***\",\"a\":1}"}`,
		"DB_PASSWORD: 'it is'":                                                       "DB_PASSWORD: '***redacted***'",
		"api-key=abc, b":                                                             "api-key=***redacted***, b",
		"key sk-abcdefghijklmnop0123 leaked":                                         "key ***redacted*** leaked",
		"gsk_abcdefghijklmnop0123, xai-abcdefghijklmnop0123":                         "***redacted***, ***redacted***",
		"hf_abcdefghijklmnop0123 pk-abcdefghijklmnop0123":                            "***redacted*** ***redacted***",
		"key-0123456789abcdef01234567 sk_live_0123456789abcd":                        "***redacted*** ***redacted***",
		"AKIAIOSFODNN7EXAMPLE":                                                       "***redacted***",
		"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc_def":                               "***redacted***",
		"a\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nb": "a\n***redacted***\nb",
		"-----BEGIN PRIVATE KEY-----\nMIIE cut":                                      "***redacted***",
	} {
		if got := RedactText(in); got != want {
			t.Errorf("RedactText(%q)\n got %q\nwant %q", in, got, want)
		}
	}
	for _, text := range []string{
		"", "plain text", "mail me@example.org", "git@github.com:a/b.git", "ssh://git@github.com/a", "https://example.org/@user",
		"total_tokens: ", "the password is wrong", "author: me", "monkey = 1", "a key-value-store-of-a-certain-size", "https://example.org/a?b=c@d",
	} {
		if got := RedactText(text); got != text {
			t.Errorf("RedactText(%q) = %q", text, got)
		}
	}
}

func FuzzRedactText(f *testing.F) {
	f.Add("password=")
	f.Add(`token: "`)
	f.Add("x://a:b@c")
	f.Fuzz(func(t *testing.T, in string) {
		got := RedactText(in)
		if utf8.ValidString(in) && !utf8.ValidString(got) {
			t.Fatalf("RedactText(%q) = %q", in, got)
		}
		if RedactEnv("X_SECRET", in) != Redacted && in != "" {
			t.Fatal("shown")
		}
	})
}

func BenchmarkRedactText(b *testing.B) {
	text := strings.Repeat("2026-01-02T03:04:05Z INFO executing tool name=read_file user=me\n", 1000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		RedactText(text)
	}
}
