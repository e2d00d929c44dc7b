package openai_test

import (
	"strings"
	"testing"
)

func BenchmarkReadChat(b *testing.B) {
	said := strings.Repeat("some words that were said, ", 40)
	turn := `{"role":"user","content":"` + said + `"},{"role":"assistant","content":[{"type":"text","text":"` + said + `"}]},`
	body := `{"model":"agent/a","messages":[` + strings.Repeat(turn, 50) + `{"role":"user","content":"x"}]}`
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := read(true, body); err != nil {
			b.Fatal(err)
		}
	}
}
