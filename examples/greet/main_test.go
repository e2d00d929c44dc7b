package main

import (
	"strings"
	"testing"
)

func TestGreet(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "")
	var out strings.Builder
	if err := run(t.Context(), &out, "demo", "Greet Ada and Grace."); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"greet Hello, Ada!\n", "greet Hello, Grace!\n", "Both are greeted."} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, out.String())
		}
	}
}
