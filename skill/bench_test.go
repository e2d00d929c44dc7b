package skill_test

import (
	"testing"
)

func BenchmarkAllowed(b *testing.B) {
	ws := folder(b)
	r := []string{"Bash(jq:*)", "Bash(git log *)", "Read(docs/**)", "WebFetch(domain:example.com)", "list_directory"}
	for name, c := range map[string]struct{ tool, key, text string }{
		"name": {"list_directory", "path", "docs"}, "command": {"exec_shell", "command", "git log -3 | jq ."},
		"path": {"read_file", "path", "docs/a/b.md"},
	} {
		b.Run(name, func(b *testing.B) {
			args := object(b, c.key, c.text)
			b.ReportAllocs()
			for b.Loop() {
				if ok, err := allowed(r, c.tool, args, ws); !ok || err != nil {
					b.Fatal(ok, err)
				}
			}
		})
	}
}
