package main

import (
	"strings"
	"testing"
)

func TestApprove(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "")
	var out strings.Builder
	if err := run(t.Context(), strings.NewReader("20, not 2000\ny\n"), &out, "demo", "Refund order 17."); err != nil {
		t.Fatal(err)
	}
	want := `refund {"amount":2000,"order":17}
May it? (y/n, or why not) refund {"amount":20,"order":17}
May it? (y/n, or why not) refunded 20.00 EUR of order 17
Order 17 is refunded.
`
	if out.String() != want {
		t.Errorf("it printed\n%s", out.String())
	}
}

// Without an answer the run waits, and nothing is refunded.
func TestApprove_Nobody(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "")
	var out strings.Builder
	err := run(t.Context(), strings.NewReader(""), &out, "demo", "Refund order 17.")
	if err == nil || !strings.Contains(err.Error(), "waits for an approval") || strings.Contains(out.String(), "refunded") {
		t.Errorf("%v\n%s", err, out.String())
	}
}
