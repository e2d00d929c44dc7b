package service_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
)

// Resolved references are checked too: a header has no line breaks.
func TestFileProblems_References(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"key": "sk-1\nsk-2\n", "good": "sk-1\n",
		"toolcrib.yaml": `providers:
  one: {type: openai, api_key: "${file:key}", base_url: "http://localhost:1"}
  two: {type: openai, api_key: "${file:good}", base_url: "http://localhost:1", headers: {X-Team: "${env:TWO_LINES}"}}
  three: {type: openai, api_key: "${file:missing}", headers: {X-Team: "${env:NOT_SET}"}}
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("TWO_LINES", "a\nb")
	path := filepath.Join(dir, "toolcrib.yaml")
	c, err := config.Load(config.Source{Path: path, Origin: config.OriginFlag}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, e := range service.New(env.Options{Config: c, DataDir: t.TempDir()}).FileProblems() {
		found = append(found, e.Key)
		if !strings.Contains(e.Message, "line breaks") || strings.Contains(e.Error(), "sk-1") {
			t.Errorf("%v", e)
		}
	}
	slices.Sort(found)
	if got := strings.Join(found, " "); got != "providers.one.api_key providers.two.headers.X-Team" {
		t.Errorf("wrong are %s", got)
	}
}
