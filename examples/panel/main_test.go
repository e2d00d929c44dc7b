package main

import (
	"strings"
	"testing"
)

func TestPanel(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "")
	var out strings.Builder
	if err := run(t.Context(), &out, "demo", "Where do we keep sessions?"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"architect (proposer): completed \n", "operator (critic): completed, verify ok \n", "sceptic (critic): completed \n",
		"editor (synthesizer): completed \n", "SQLite, as long as there is one server. (75 %)\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, out.String())
		}
	}
}
