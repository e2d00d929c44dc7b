package skill_test

import (
	"testing"

	"github.com/toolcrib/toolcrib/skill"
)

func BenchmarkAllowed(b *testing.B) {
	r := skill.Compile([]string{"Bash(jq:*)", "Bash(git log *)", "Read(docs/**)", "WebFetch(domain:example.com)", "list_directory"})
	for name, c := range map[string]struct{ tool, key, text string }{
		"name": {"list_directory", "path", "docs"}, "command": {"exec_shell", "command", "git log -3 | jq ."},
		"path": {"read_file", "path", "docs/a/b.md"}, "url": {"web_fetch", "url", "https://example.com/a"},
	} {
		b.Run(name, func(b *testing.B) {
			args := object(b, c.key, c.text)
			b.ReportAllocs()
			for b.Loop() {
				if ok, err := r.Allowed(c.tool, args, skill.Place{}); !ok || err != nil {
					b.Fatal(ok, err)
				}
			}
		})
	}
}
