package server

import (
	"net/http"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/api"
)

// The cost of a body: it is read strictly once, checked, and decoded into its type.
func BenchmarkBody(b *testing.B) {
	said := strings.Repeat("some words that were said, ", 40)
	turn := `{"role":"user","content":"` + said + `"},{"role":"assistant","content":"` + said + `"},`
	body := []byte(`{"agent":"a","limits":{"max_iterations":5},"messages":[` + strings.Repeat(turn, 50) +
		`{"role":"user","content":"x"}]}`)
	r := send(http.MethodPost, "/", "", func(_ *call, b api.RunRequest) (int, error) { return len(b.Messages), nil })
	if err := r.compile(); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		c := &call{route: &r}
		value, err := c.readObject(body)
		if err == nil {
			err = r.check(value)
		}
		if err != nil {
			b.Fatal(err)
		}
		if n, err := r.do(c); n != 101 || err != nil {
			b.Fatal(n, err)
		}
	}
}
