package imports_test

import (
	"bytes"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	specRow  = regexp.MustCompile(`(?m)^\| ([A-Z][0-9]{1,2}) \|`)
	citedIn  = regexp.MustCompile(`(?m)(?:^|\s)(?://|#).*$|func Test[NAHMXC][0-9]{1,2}_`)
	citation = regexp.MustCompile(`(?:\b|Test)([NAHMXC][0-9]{1,2})(?:\b|_)`)
)

// TestSpec holds docs/spec.md against the IDs that code and tests name in their
// comments and in the names of tests.
func TestSpec(t *testing.T) {
	listed, cited := map[string]bool{}, map[string]string{}
	walk(t, func(name string, data []byte) {
		if name == "docs/spec.md" {
			for _, found := range specRow.FindAllSubmatch(data, -1) {
				listed[string(found[1])] = true
			}
		}
		if !strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, ".txtar") || strings.HasPrefix(name, "internal/imports/") {
			return
		}
		for line := range bytes.Lines(data) {
			if !bytes.ContainsAny(line, "0123456789") { // most have none
				continue
			}
			for _, text := range citedIn.FindAll(bytes.TrimRight(line, "\n"), -1) {
				for _, found := range citation.FindAllSubmatch(text, -1) {
					cited[string(found[1])] = name
				}
			}
		}
	})
	if len(listed) < 50 {
		t.Fatalf("docs/spec.md lists %d behaviours only", len(listed))
	}
	for _, id := range slices.Sorted(maps.Keys(cited)) {
		if !listed[id] {
			t.Errorf("%s names %s, which docs/spec.md does not list", cited[id], id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(listed)) {
		if cited[id] == "" {
			t.Errorf("docs/spec.md lists %s, which no comment and no test names", id)
		}
	}
}
