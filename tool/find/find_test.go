package find_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/find"
)

// thousand are the tools of 50 servers.
func thousand() []toolcrib.Spec {
	specs := []toolcrib.Spec{
		{Name: "github__create_issue", Description: "Create an issue in a repository.", Group: "mcp:github"},
		{Name: "github__listPullRequests", Description: "Pull requests of a repository.", Group: "mcp:github"},
		{Name: "mail__send", Description: "Sends a message to people.", Group: "mcp:mail", Parameters: json.RawMessage(
			`{"type":"object","properties":{"attachments":{"description":"files to add"},"any":true}}`)},
		{Name: "kalender__neu", Description: "Legt einen Termin an. 予定を作成する", Group: "mcp:kalender"},
	}
	for i := len(specs); i < 1000; i++ {
		server := fmt.Sprintf("s%02d", i%50)
		specs = append(specs, toolcrib.Spec{
			Name: fmt.Sprintf("%s__entity_%03d", server, i), Description: "Reads an entity of the data warehouse of " + server,
			Parameters: json.RawMessage(`{"type":"object","properties":{"id":{"type":"string","description":"its number"}}}`),
			Group:      "mcp:" + server,
		})
	}
	return specs
}

func search(t testing.TB, specs []toolcrib.Spec, query string) toolcrib.Output {
	t.Helper()
	raw, err := json.Marshal(map[string]string{"query": query})
	if err != nil {
		t.Fatal(err)
	}
	out, err := find.New().Call(t.Context(), toolcrib.Call{Arguments: raw, Offered: func() []toolcrib.Spec { return specs }})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestFindsByWhatToolsDo(t *testing.T) {
	specs := thousand()
	for query, want := range map[string]string{
		"open a new issue on GitHub":  "github__create_issue",
		"list pull requests":          "github__listPullRequests",
		"GITHUB__CREATE_ISSUE":        "github__create_issue",
		"`mail__send`, other":         "mail__send",
		"messages":                    "mail__send",
		"attachment":                  "mail__send",
		"Termin anlegen":              "kalender__neu",
		"予定":                          "kalender__neu",
		"the entity with the no. 777": "s27__entity_777",
	} {
		out := search(t, specs, query)
		if len(out.Found) == 0 || out.Found[0] != want || !strings.HasPrefix(out.Text, want+": ") {
			t.Errorf("%q: %v\n%s", query, out.Found, out.Text)
		}
	}
}

func TestWhatIsFoundIsBounded(t *testing.T) {
	specs := thousand()
	out := search(t, specs, "entity")
	if len(out.Found) != 8 || !strings.Contains(out.Text, "\n988 more match; use more specific words") {
		t.Errorf("%v\n%s", out.Found, out.Text)
	}
	again := search(t, specs, "entity")
	if !slices.Equal(again.Found, out.Found) || again.Text != out.Text {
		t.Errorf("the same search again: %v", again.Found)
	}
	out = search(t, specs, "!!! ???")
	if len(out.Found) != 0 || !strings.Contains(out.Text, "None of 1000 tools matches") {
		t.Errorf("%v\n%s", out.Found, out.Text)
	}
	// Large schemas come one at a time.
	for i := range specs {
		specs[i].Description += strings.Repeat(" word\x00\u202e\xff", 5000)
	}
	if out = search(t, specs, "issue"); len(out.Found) != 1 || len(out.Text) > 1000 {
		t.Errorf("%d bytes, %v", len(out.Text), out.Found)
	}
	if out = search(t, nil, "issue"); len(out.Found) != 0 {
		t.Errorf("of nothing: %v", out.Found)
	}
}

func TestWithoutAnOfferNothingIsFound(t *testing.T) {
	if _, err := find.New().Call(t.Context(), toolcrib.Call{Arguments: json.RawMessage(`{"query":"x"}`)}); err == nil {
		t.Error("no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := find.New().Call(ctx, toolcrib.Call{Arguments: json.RawMessage(`{"query":"x"}`), Offered: thousand})
	if err == nil {
		t.Error("a search that was told to end continued")
	}
}

func TestAboutNamesTheServers(t *testing.T) {
	var groups []string
	for i := range 50 {
		groups = append(groups, fmt.Sprintf("mcp:s%02d", i))
	}
	about := find.New().(toolcrib.Finder).About(append([]string{"files"}, groups...))
	if !strings.Contains(about, " There are tools of: files, s00, s01, s02, ") ||
		!strings.HasSuffix(about, "s38, 11 more.") {
		t.Error(about)
	}
	if about = find.New().(toolcrib.Finder).About(nil); strings.Contains(about, "There are") {
		t.Error(about)
	}
}

func BenchmarkFind1000(b *testing.B) {
	specs := thousand()
	for b.Loop() {
		search(b, specs, "open a new issue on GitHub")
	}
}
