// Package find implements find_tools. If a list of tools is too large to show a model completely, the
// model finds the tools that it needs by their purpose.
package find

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/tool"
)

// Name is the name of the tool.
const Name = "find_tools"

// Bounds of one search.
const (
	maxHits      = 8        // tools that it returns
	maxHitsBytes = 32 << 10 // bytes of their schemas, not counting the first
	maxTextBytes = 4 << 10  // bytes that are read of a description, and of the parameters
	maxAbout     = 240      // bytes of a description in the result
	maxGroups    = 40       // groups that the description names
)

type finder struct{ toolcrib.Tool }

// New returns find_tools.
func New() toolcrib.Tool {
	return finder{tool.MustFunc(toolcrib.Spec{
		Name: Name,
		Description: "Find further tools. Say what you want to do, in a few words, or give names of tools. " +
			"You can call those that are found from your next step on.",
		Parameters: json.RawMessage(`{"type":"object","properties":{"query":{"type":"string","minLength":1,"maxLength":1000}},` +
			`"required":["query"],"additionalProperties":false}`),
		Effect: toolcrib.EffectReadOnly, Group: "tools", Source: "builtin", EnabledByDefault: true,
	}, func(ctx context.Context, call toolcrib.Call, in struct {
		Query string `json:"query"`
	},
	) (toolcrib.Output, error) {
		if call.Offered == nil {
			return toolcrib.Output{}, toolcrib.Failf(toolcrib.ExecutionFailed, "this call has no offer to search")
		}
		return answer(ctx, call.Offered(), in.Query)
	})}
}

// About implements [toolcrib.Finder].
func (f finder) About(groups []string) string {
	text := f.Spec().Description
	if len(groups) > 0 {
		text += " There are tools of: " + list(groups) + "."
	}
	return text
}

// list formats the names of groups, mcp:github as github.
func list(groups []string) string {
	names := make([]string, len(groups))
	for i, name := range groups {
		if _, server, ok := strings.Cut(name, ":"); ok {
			name = server
		}
		names[i] = name
	}
	if more := len(names) - maxGroups; more > 0 {
		names = append(names[:maxGroups], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

func answer(ctx context.Context, specs []toolcrib.Spec, query string) (toolcrib.Output, error) {
	hits, err := search(ctx, specs, query)
	if err != nil {
		return toolcrib.Output{}, err
	}
	if len(hits) == 0 {
		return toolcrib.Output{Text: fmt.Sprintf("None of %d tools matches. Try other words.", len(specs))}, nil
	}
	var out toolcrib.Output
	var b strings.Builder
	size := 0
	for _, s := range hits[:min(len(hits), maxHits)] {
		size += len(s.Description) + len(s.Parameters)
		if len(out.Found) > 0 && size > maxHitsBytes {
			break
		}
		out.Found = append(out.Found, s.Name)
		fmt.Fprintf(&b, "%s: %s\n", s.Name, about(s.Description))
	}
	if more := len(hits) - len(out.Found); more > 0 {
		fmt.Fprintf(&b, "%d more match; use more specific words to find them.\n", more)
	}
	out.Text = b.String() + "You can call these tools from your next step on."
	return out, nil
}

// about returns the beginning of a description on one line.
func about(text string) string {
	return guard.Clip(strings.Join(strings.Fields(text[:min(len(text), 2*maxAbout)]), " "), maxAbout)
}

// Weights of a word by its place, and of a complete name.
const (
	inName, inText, inParameters = 3, 1, 0.5
	wholeName                    = 100
	leastShare                   = 0.25 // share of the best score; lower ones match only common words
	// for a word that is the beginning of a word in the query, or the other way round
	atStart = 0.5
)

// search returns the tools that match a query, the best first: BM25 over the words of their names,
// descriptions and parameters, without normalization by length.
func search(ctx context.Context, specs []toolcrib.Spec, query string) ([]*toolcrib.Spec, error) {
	asked := words(query)
	slices.Sort(asked)
	asked = slices.Compact(asked)
	whole := strings.FieldsFunc(strings.ToLower(query), func(r rune) bool {
		return strings.ContainsRune(" ,;:\t\n\"'`", r)
	})
	found := make([][]float64, len(specs)) // weight of each word in each tool
	tools := make([]float64, len(asked))   // number of tools with each word
	for i := range specs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		found[i] = weigh(&specs[i], asked)
		for k, w := range found[i] {
			if w > 0 {
				tools[k]++
			}
		}
	}
	type hit struct {
		spec  *toolcrib.Spec
		score float64
	}
	var hits []hit
	best := 0.0
	for i := range specs {
		h := hit{spec: &specs[i]}
		for k, w := range found[i] {
			h.score += math.Log(1+(float64(len(specs))-tools[k]+0.5)/(tools[k]+0.5)) * w * 2.2 / (w + 1.2)
		}
		best = max(best, h.score)
		if slices.Contains(whole, strings.ToLower(specs[i].Name)) {
			h.score += wholeName
		}
		if h.score > 0 {
			hits = append(hits, h)
		}
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(b.score, a.score) })
	var out []*toolcrib.Spec
	for _, h := range hits {
		if h.score >= best*leastShare {
			out = append(out, h.spec)
		}
	}
	return out, nil
}

// weigh returns the weight of each word in a tool.
func weigh(s *toolcrib.Spec, asked []string) []float64 {
	sums := make([]float64, len(asked))
	add := func(text string, weight float64) {
		for _, w := range words(text[:min(len(text), maxTextBytes)]) {
			for k, a := range asked {
				switch {
				case w == a:
					sums[k] += weight
				case min(len(w), len(a)) >= 4 && (strings.HasPrefix(w, a) || strings.HasPrefix(a, w)):
					sums[k] += weight * atStart
				}
			}
		}
	}
	add(s.Name, inName)
	add(s.Description, inText)
	var schema struct {
		Properties map[string]any `json:"properties"`
	}
	if json.Unmarshal(s.Parameters, &schema) == nil {
		for name, p := range schema.Properties {
			about, _ := p.(map[string]any)
			text, _ := about["description"].(string)
			add(name+" "+text, inParameters)
		}
	}
	return sums
}

// words splits a text into words in lower case: at characters other than letters and digits, and where a capital
// follows a small letter, without the s of a plural. In scripts without spaces, each character is a word.
func words(text string) []string {
	var out []string
	var b strings.Builder
	end := func() {
		w := strings.ToLower(b.String())
		if b.Reset(); len(w) > 3 && !strings.HasSuffix(w, "ss") {
			w = strings.TrimSuffix(w, "s")
		}
		if w != "" {
			out = append(out, w)
		}
	}
	small := false
	for _, r := range text {
		alone := unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana)
		if alone || small && unicode.IsUpper(r) || !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			end()
		}
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			b.WriteRune(r)
		}
		if small = unicode.IsLower(r); alone {
			end()
		}
	}
	end()
	return out
}
