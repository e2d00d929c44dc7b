package cli

import (
	"regexp"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/internal/config"
)

// TestInitExamples reads the configuration of init with every example in it taken.
func TestInitExamples(t *testing.T) {
	text := strings.NewReplacer("MODEL\n", "model: openai/gpt-5-mini\n", "SHELL", "ask", "CONFIRM", "writes").Replace(initText)
	all := regexp.MustCompile(`(?m)^( *)#([a-z-])`).ReplaceAllString(text, "$1$2")
	if strings.Count(all, "\n#") == strings.Count(text, "\n#") || !strings.Contains(all, "\n  - {name: pushes") {
		t.Fatal("no example was taken")
	}
	for _, text := range []string{text, all} {
		if _, err := config.Parse("toolcrib.yaml", []byte(text)); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	}
}
