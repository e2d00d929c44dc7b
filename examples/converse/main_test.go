package main

import (
	"strings"
	"testing"
)

func TestConverse(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "")
	var out strings.Builder
	if err := run(t.Context(), strings.NewReader("I am Ada.\nWhat is my name?\n"), &out, "demo"); err != nil {
		t.Fatal(err)
	}
	if want := "Hello, Ada.\nYour name is Ada.\n"; out.String() != want {
		t.Errorf("it printed %q", out.String())
	}
}
