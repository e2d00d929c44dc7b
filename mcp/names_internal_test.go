package mcp

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
)

func TestCleanName(t *testing.T) {
	for name, want := range map[string]string{
		"fs": "fs", "my.files": "my_files", "a b": "a_b", "": "", "a__b": "", "_a": "", "a_": "", "Agent": "", "ä": "", "über": "",
		strings.Repeat("x", 41): "", "a..b": "",
	} {
		if got, err := CleanName(name); got != want || (err == nil) != (want != "") {
			t.Errorf("CleanName(%q) = %q, %v; want %q", name, got, err, want)
		}
	}
}

func TestDefinitions_OfHostileLists(t *testing.T) {
	schema := map[string]any{"type": "object"}
	list := []*sdk.Tool{
		nil,
		{Name: "a.b", InputSchema: schema},
		{Name: "a_b", InputSchema: schema, Description: "its own name"},
		{Name: "A_B", InputSchema: schema},
		{Name: "a b", InputSchema: schema},
		{Name: strings.Repeat("x", 1<<20), InputSchema: schema},
		{Name: "", InputSchema: schema},
		{Name: "fat", Description: strings.Repeat("x", 5<<20), InputSchema: schema},
		{Name: "list", InputSchema: []any{1}},
		{Name: "none"},
		{Name: "ünïcode", InputSchema: schema},
	}
	server := Server{Name: "s"}
	defs, problems := server.definitions("s", list)
	got := map[string]string{}
	for _, d := range defs {
		if !toolcrib.ValidToolName(d.Name) || !json.Valid(d.Text) {
			t.Errorf("%q is no definition", d.Name)
		}
		got[d.Name] = d.Tool
	}
	if got["s__a_b"] != "a_b" {
		t.Errorf("s__a_b is %q", got["s__a_b"])
	}
	if got["s___n_code"] != "ünïcode" {
		t.Errorf("got %v", got)
	}
	if len(problems) != 5 { // a.b, A_B, a b, the long one, fat
		t.Errorf("%d problems: %q", len(problems), problems)
	}
	for _, p := range problems {
		if len(p) > maxProblemLength {
			t.Errorf("a problem of %d bytes", len(p))
		}
	}

	var many []*sdk.Tool
	for i := range maxTools {
		long := strings.Repeat("x", 200<<10)
		many = append(many, &sdk.Tool{Name: fmt.Sprint("t", i), Description: long, InputSchema: schema})
	}
	if defs, _ := server.definitions("s", many); len(defs) == 0 || len(defs) > maxDefinitions/(200<<10) {
		t.Errorf("%d definitions of 200 KiB are kept", len(defs))
	}
}

// Two servers never have a tool of the same name, whatever they call their tools.
func TestNames_NeverShadow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[ab_.]{1,6}`)
		a, errA := CleanName(word.Draw(t, "a"))
		b, errB := CleanName(word.Draw(t, "b"))
		if errA != nil || errB != nil || a == b {
			return
		}
		x, y := word.Draw(t, "x"), word.Draw(t, "y")
		if one, two := a+separator+clean(x), b+separator+clean(y); one == two {
			t.Fatalf("%s of %s and %s of %s are both %s", x, a, y, b, one)
		}
	})
}

// A name that led to a public address does not lead into one's own network later.
func TestNetwork(t *testing.T) {
	for _, tt := range []struct {
		at   string
		want bool // at the last
	}{
		{"127.0.0.1:80", true},
		{"10.0.0.1:80 192.168.1.1:80 [::1]:80", true},
		{"8.8.8.8:443 8.8.4.4:443", true},
		{"10.0.0.1:80 8.8.8.8:443", true},
		{"8.8.8.8:80 127.0.0.1:80", false},
		{"8.8.8.8:80 10.0.0.1:80", false},
		{"8.8.8.8:80 [::ffff:127.0.0.1]:80", false},
		{"[2606:4700::1111]:443 [fd12::1]:443", false},
		{"10.0.0.1:80 8.8.8.8:443 10.0.0.1:80", false},
		{"169.254.169.254:80", false},
		{"[fd00:ec2::254]:80", false},
		{"0.0.0.0:80", false},
		{"224.0.0.1:80", false},
		{"nonsense", false},
	} {
		var n network
		var err error
		for at := range strings.FieldsSeq(tt.at) {
			err = n.check("tcp", at, nil)
		}
		if (err == nil) != tt.want {
			t.Errorf("%s: %v", tt.at, err)
		}
	}
}
