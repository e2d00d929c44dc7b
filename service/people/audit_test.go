package people

import (
	"encoding/json"
	"strings"
	"testing"
)

// A long argument is cut, and the others stay; all of them together are bounded.
func TestShortArguments(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	args := map[string]any{"content": long, "path": "a.txt"}
	if got := shorten(t, args); len(got) > auditArguments || !strings.Contains(got, `"path":"a.txt"`) ||
		!strings.Contains(got, `xxx... [truncated`) {
		t.Errorf("%d bytes: %s", len(got), got)
	}
	for i := range 100 {
		args[strings.Repeat("n", i+1)] = long[:1<<17]
	}
	if got := shorten(t, args); len(got) > auditArguments {
		t.Errorf("%d bytes", len(got))
	}
	if got := shorten(t, map[string]any{"b": 1, "a": "x"}); got != `{"a":"x","b":1}` {
		t.Errorf("short ones are changed: %s", got)
	}
}

func shorten(t *testing.T, args map[string]any) string {
	raw, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	got := shortArguments(raw)
	if !json.Valid(got) {
		t.Fatalf("not JSON: %s", got)
	}
	return string(got)
}
