package catalog_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/catalog"
)

// Every entry of the embedded file is plausible, and the file is read as a user's file
// is.
func TestEmbeddedIsSane(t *testing.T) {
	file, err := os.ReadFile("models.json")
	if err != nil {
		t.Fatal(err)
	}
	read, err := catalog.Parse(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if err := catalog.Embedded().Write(&again); err != nil || !bytes.Equal(file, again.Bytes()) {
		t.Errorf("the file is read otherwise at the start of a program (error %v)", err)
	}
	info := catalog.Embedded().Info()
	if diff := cmp.Diff(info, read.Info()); diff != "" {
		t.Errorf("written and read:\n%s", diff)
	}
	if _, err := time.Parse(time.DateOnly, info.Date); err != nil || info.Version == "" || info.License != "MIT" ||
		info.Source != "charm.land/catwalk" {
		t.Errorf("%+v, error %v", info, err)
	}
	type provider struct {
		ID     string          `json:"id"`
		Models []catalog.Model `json:"models"`
	}
	var all struct {
		Providers []provider `json:"providers"`
	}
	if err := json.Unmarshal(file, &all); err != nil {
		t.Fatal(err)
	}
	n, vendors := 0, map[string]bool{}
	for _, v := range all.Providers {
		vendors[v.ID] = true
		for _, m := range v.Models {
			n++
			p := m.Price
			for what, bad := range map[string]bool{
				"local":                         m.Local,
				"a negative price":              p.Input < 0 || p.CachedInput < 0 || p.CacheWrite < 0 || p.Output < 0,
				"a price beyond all others":     p.Input > 200 || p.Output > 1000,
				"cached input is dearer":        p.CachedInput > p.Input,
				"cached input costs nothing":    p.Known && p.Input > 0 && p.CachedInput == 0,
				"writing a cache is cheaper":    p.CacheWrite != 0 && p.CacheWrite <= p.Input,
				"writing a cache is far dearer": p.CacheWrite > 2*p.Input,
				"a price that is not known":     !p.Known && p != (toolcrib.Price{}),
				"free, and does not say so":     p.Known && p.Input == 0 && p.Output == 0 && !strings.HasSuffix(m.ID, "free"),
				"no context":                    m.Context < 1000,
				"an odd context":                m.Context > 20_000_000,
				"negative output":               m.MaxOutput < 0 || m.MaxOutput > 2_000_000,
			} {
				if bad {
					t.Errorf("%s, %s: %s: %+v", v.ID, m.ID, what, m)
				}
			}
		}
	}
	if n != info.Models || n < 1000 {
		t.Errorf("%d models, Info says %d", n, info.Models)
	}
	for _, v := range []string{"openai", "anthropic", "gemini", "azure", "openrouter", "groq", "deepseek", "xai"} {
		if !vendors[v] {
			t.Errorf("no list of %s", v)
		}
	}
}

// list is a catalog of a few models, as from a user.
func list(t *testing.T) *catalog.Catalog {
	t.Helper()
	c, err := catalog.Parse(strings.NewReader(`{"format":2,"source":"test","providers":[
		{"id":"openai","models":[{"id":"gpt-5-mini","price":{"input":0.25,"cached_input":0.025,"output":2,"known":true},"context":400000},
			{"id":"gpt-4o","price":{"input":2.5,"output":10,"known":true}},{"id":"gpt-4o-2024-08-06","price":{"input":2.6,"output":10,"known":true}},{"id":"codex-mini-latest","price":{"input":1.5,"output":6,"known":true}}]},
		{"id":"anthropic","models":[{"id":"claude-sonnet-4-5-20250929","price":{"input":3,"cached_input":0.3,"cache_write":3.75,"output":15,"known":true}},
			{"id":"claude-sonnet-4-6","price":{"input":3.1,"output":15,"known":true}},{"id":"claude-3-5-sonnet-20240620","price":{"input":3.2,"known":true}},{"id":"claude-3-5-sonnet-20241022","price":{"input":3.3,"known":true}}]},
		{"id":"gemini","models":[{"id":"gemini-2.5-flash","price":{"input":0.3,"output":2.5,"known":true}}]},
		{"id":"azure","models":[{"id":"gpt-4o","price":{"input":2.7,"output":10,"known":true}}]},
		{"id":"openrouter","base_url":"https://openrouter.ai/api/v1","models":[{"id":"openai/gpt-4o","price":{"input":2.8,"known":true}},{"id":"x/y:free","price":{"input":0,"known":true}}]},
		{"id":"groq","base_url":"https://api.groq.com/openai/v1","models":[{"id":"openai/gpt-oss-120b","price":{"input":0.1,"known":true}}]},
		{"id":"deepseek","base_url":"https://api.deepseek.com/v1","models":[{"id":"deepseek-chat","price":{"input":0.28,"known":true}}]},
		{"id":"plain","base_url":"https://shared.example/api/paas/v4","models":[{"id":"glm","price":{"input":1,"known":true}}]},
		{"id":"wide","base_url":"https://shared.example/api","models":[{"id":"glm","price":{"input":2,"known":true}}]},
		{"id":"priceless","base_url":"https://priceless.example","models":[{"id":"m","context":1000}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLookup(t *testing.T) {
	c := list(t)
	for _, one := range []struct {
		typ, url, model string
		want            string // PROVIDER ID INPUT; "" if unknown
	}{
		{"openai", "", "gpt-5-mini", "openai gpt-5-mini 0.25"},
		{"openai", "https://api.openai.com/v1", "gpt-5-mini", "openai gpt-5-mini 0.25"},
		{"openai", "https://API.OpenAI.com:443/v1/", "gpt-5-mini", "openai gpt-5-mini 0.25"},
		{"openai", "https://eu.api.openai.com/v1", "gpt-5-mini", "openai gpt-5-mini 0.25"},
		{"openai", "", "gpt-5-mini-2025-08-07", "openai gpt-5-mini 0.25"},
		{"openai", "", "gpt-5-mini-20250807", "openai gpt-5-mini 0.25"},
		{"openai", "", "gpt-4o-2024-08-06", "openai gpt-4o-2024-08-06 2.6"}, // its own entry first
		{"openai", "", "gpt-4o-2024-05-13", ""},                             // dearer than the name without the date
		{"openai", "", "gpt-5-mini-latest", "openai gpt-5-mini 0.25"},
		{"openai", "", "codex-mini-latest", "openai codex-mini-latest 1.5"},
		{"openai", "", "codex-mini", ""},
		{"openai", "", "gpt-5", ""},
		{"openai", "", "gpt-5-mini-2025-13-07", ""}, // not a date
		{"openai", "", "gpt-5-mini-2", ""},
		{"openai", "", "GPT-5-mini", ""},
		{"openai", "", "gpt-5-minim", ""},
		{"openai", "", "openai/gpt-5-mini", ""},
		{"openai", "", "", ""},
		{"openai", "https://api.openai.com.evil.example/v1", "gpt-5-mini", "openai gpt-5-mini 0.25"},
		{"openai", "https://example.com/api.openai.com", "gpt-5-mini", "openai gpt-5-mini 0.25"},
		{"openai", "http://localhost:8000/v1", "gpt-5-mini", "openai gpt-5-mini 0.25"}, // a gateway that bills
		{"openai", "http://localhost:8000/v1", "claude-sonnet-4-6", "anthropic claude-sonnet-4-6 3.1"},
		{"anthropic", "https://gateway.example", "gpt-4o-2024-11-20", "openai gpt-4o 2.5"},
		{"openai", "http://localhost:8000/v1", "qwen3-32b", ""},
		{"openai", "", "claude-sonnet-4-6", ""},
		{"openai", "not an address", "gpt-5-mini", "openai gpt-5-mini 0.25"},
		{"openai", "https://mine.openai.azure.com/openai/deployments/x", "gpt-4o", "azure gpt-4o 2.7"},
		{"openai", "https://openai.azure.com.example/", "gpt-4o", "openai gpt-4o 2.5"},
		{"openai", "https://openrouter.ai/api/v1", "openai/gpt-4o", "openrouter openai/gpt-4o 2.8"},
		{"openai", "https://openrouter.ai/api/v1", "openai/gpt-4o-2024-11-20", "openrouter openai/gpt-4o 2.8"},
		{"openai", "https://openrouter.ai/api/v1", "openai/gpt-4o:nitro", ""}, // another price
		{"openai", "https://openrouter.ai/api/v1", "gpt-4o", "openai gpt-4o 2.5"},
		{"openai", "https://openrouter.ai/api/v1", "x/y:free", "openrouter x/y:free 0"},
		{"openai", "https://openrouter.ai/api/v1", "x/y", ""},
		{"openai", "https://api.groq.com/openai/v1", "openai/gpt-oss-120b", "groq openai/gpt-oss-120b 0.1"},
		{"openai", "https://api.groq.com", "openai/gpt-oss-120b", "groq openai/gpt-oss-120b 0.1"},
		{"openai", "https://api.deepseek.com", "deepseek-chat", "deepseek deepseek-chat 0.28"},
		{"anthropic", "https://api.deepseek.com/anthropic", "deepseek-chat", ""}, // not where that list counts
		{"openai", "https://api.mistral.ai/v1", "mistral-large-latest", ""},
		{"openai", "https://shared.example/api/paas/v4", "glm", "plain glm 1"},
		{"openai", "https://shared.example/api/v9", "glm", "wide glm 2"},
		{"openai", "https://shared.example/other", "glm", ""},
		{"anthropic", "", "claude-sonnet-4-5", "anthropic claude-sonnet-4-5-20250929 3"},
		{"anthropic", "", "claude-sonnet-4-5-latest", "anthropic claude-sonnet-4-5-20250929 3"},
		{"anthropic", "", "claude-3-5-sonnet-latest", "anthropic claude-3-5-sonnet-20241022 3.3"},
		{"anthropic", "", "claude-sonnet-4-5-20991231", ""}, // another version than the known one
		{"anthropic", "", "claude-sonnet-4-6-20260101", "anthropic claude-sonnet-4-6 3.1"},
		{"anthropic", "https://api.anthropic.com", "claude-sonnet-4-6", "anthropic claude-sonnet-4-6 3.1"},
		{"gemini", "", "gemini-2.5-flash", "gemini gemini-2.5-flash 0.3"},
		{"gemini", "", "models/gemini-2.5-flash-001", "gemini gemini-2.5-flash 0.3"},
		{"gemini", "", "gemini-2.5-flash-lite", ""},
		{"bus", "", "gpt-5-mini", ""},
		{"", "", "gpt-5-mini", ""},
		{"ollama", "", "gemma3", " gemma3 0"},
		{"ollama", "http://gpu.lan:11434", "gpt-5-mini", " gpt-5-mini 0"},
		{"ollama", "https://ollama.com", "gpt-oss:120b", ""},
		{"ollama", "", "gpt-oss:120b-cloud", ""},
		{"llamacpp", "http://localhost:8080/v1", "m", " m 0"},
		{"script", "", "demo", " demo 0"},
		{"offline", "", "offline", " offline 0"},
	} {
		got := ""
		if m, ok := c.Lookup(one.typ, one.url, one.model); ok {
			got = fmt.Sprintf("%s %s %v", m.Provider, m.ID, m.Price.Input)
			if !m.Price.Known || m.Local != (m.Provider == "") {
				t.Errorf("%+v: %+v", one, m)
			}
		}
		if got != one.want {
			t.Errorf("%s %s %s: %q, want %q", one.typ, one.url, one.model, got, one.want)
		}
	}
	if m, ok := c.Lookup("openai", "https://priceless.example/v1", "m"); !ok || m.Price.Known || m.Context != 1000 {
		t.Errorf("a model without a price: %+v, %v", m, ok)
	}
	var none catalog.Catalog
	if m, ok := none.Lookup("openai", "", "gpt-5-mini"); ok {
		t.Errorf("the zero value knows %+v", m)
	}
}

func TestLookupEmbedded(t *testing.T) {
	for _, one := range []struct {
		typ, url, model string
		want            toolcrib.Price
	}{
		{"openai", "", "gpt-5-mini", toolcrib.Price{Input: 0.25, CachedInput: 0.025, Output: 2, Known: true}},
		{"anthropic", "", "claude-sonnet-4-5", toolcrib.Price{Input: 3, CachedInput: 0.3, CacheWrite: 3.75, Output: 15, Known: true}},
		{"gemini", "", "gemini-2.5-pro", toolcrib.Price{Input: 1.25, CachedInput: 0.125, Output: 10, Known: true}},
	} {
		if m, ok := catalog.Embedded().Lookup(one.typ, one.url, one.model); !ok || m.Price != one.want {
			t.Errorf("%s: %+v, %v; want %+v", one.model, m, ok, one.want)
		}
	}
}

// catwalk's lists name the cached prices in two ways; both give the same result.
func TestParseCatwalk(t *testing.T) {
	const openai = `{"id":"openai","type":"openai","api_endpoint":"$OPENAI_API_ENDPOINT","models":[
		{"id":"a","name":"A","cost_per_1m_in":3,"cost_per_1m_out":15,"cost_per_1m_in_cached":3.75,"cost_per_1m_out_cached":0.3,"context_window":200000,"default_max_tokens":5000,"can_reason":true,"supports_attachments":true},
		{"id":"b","cost_per_1m_in":3,"cost_per_1m_out":15,"cost_per_1m_in_cached":0.3,"cost_per_1m_out_cached":3.75},
		{"id":"c","cost_per_1m_in":0.39999999999999997,"cost_per_1m_out":15,"cost_per_1m_in_cached":0.1,"cost_per_1m_out_cached":0.1},
		{"id":"d","cost_per_1m_in":3,"cost_per_1m_out":15,"cost_per_1m_in_cached":0,"cost_per_1m_out_cached":15},
		{"id":"e","cost_per_1m_in":0,"cost_per_1m_out":0,"context_window":1000},
		{"id":"e:free","cost_per_1m_in":0,"cost_per_1m_out":0}]}`
	const rest = `,{"id":"copilot","type":"openai-compat","models":[{"id":"x"}]},{"id":"bedrock","type":"bedrock","models":[{"id":"x"}]}`
	want := []catalog.Model{
		{Provider: "openai", ID: "a", Price: toolcrib.Price{Input: 3, CachedInput: 0.3, CacheWrite: 3.75, Output: 15, Known: true}, Context: 200000, MaxOutput: 5000, Attachments: true},
		{Provider: "openai", ID: "b", Price: toolcrib.Price{Input: 3, CachedInput: 0.3, CacheWrite: 3.75, Output: 15, Known: true}},
		{Provider: "openai", ID: "c", Price: toolcrib.Price{Input: 0.4, CachedInput: 0.1, Output: 15, Known: true}},
		{Provider: "openai", ID: "d", Price: toolcrib.Price{Input: 3, CachedInput: 3, Output: 15, Known: true}},
		{Provider: "openai", ID: "e", Context: 1000},
		{Provider: "openai", ID: "e:free", Price: toolcrib.Price{Known: true}},
	}
	for _, text := range []string{openai, "[" + openai + rest + "]"} {
		c, err := catalog.Parse(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, c.List("openai", "")); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	entry := func(rest string) string {
		return `{"format":2,"source":"x","providers":[{"id":"p","models":[{"id":"m"` + rest + `}]}]}`
	}
	if _, err := catalog.Parse(strings.NewReader(entry(""))); err != nil {
		t.Fatal(err)
	}
	for name, one := range map[string]struct{ text, want string }{
		"empty":             {" \n", "empty"},
		"no JSON":           {"models:", "cannot be read"},
		"something else":    {`{"providers":[]}`, "neither"},
		"text":              {`"x"`, "cannot be read"},
		"later format":      {`{"format":3}`, "reads 2"},
		"no providers":      {`{"format":2,"providers":[]}`, "no providers"},
		"empty array":       {`[]`, "no providers"},
		"two providers":     {`[{"id":"p"},{"id":"p"}]`, "twice"},
		"nameless provider": {`{"format":2,"providers":[{"id":"","models":[]}]}`, "provider"},
		"odd provider":      {`[{"id":"a\u202eb"}]`, "printable"},
		"address":           {`[{"id":"p","api_endpoint":"file:///etc"}]`, "address"},
		"models":            {`{"format":2,"providers":[{"id":"p","models":{}}]}`, "cannot be read"},
		"two models":        {`[{"id":"p","models":[{"id":"m"},{"id":"m"}]}]`, "twice"},
		"no ID":             {`[{"id":"p","models":[{"id":""}]}]`, "model 1"},
		"long ID":           {`[{"id":"p","models":[{"id":"` + strings.Repeat("x", 257) + `"}]}]`, "bytes"},
		"control character": {`[{"id":"p","models":[{"id":"a\u001b[2Jb"}]}]`, "printable"},
		"negative":          {entry(`,"price":{"input":-1}`), "prices"},
		"too dear":          {entry(`,"price":{"input":1e9}`), "prices"},
		"negative output":   {entry(`,"price":{"input":1,"output":-2}`), "prices"},
		"tokens":            {entry(`,"context":-5`), "tokens"},
		"many tokens":       {entry(`,"max_output":99999999999`), "tokens"},
		"catwalk price":     {`[{"id":"p","models":[{"id":"m","cost_per_1m_in":-1}]}]`, "prices"},
		"catwalk tokens":    {`[{"id":"p","models":[{"id":"m","context_window":1e300}]}]`, "tokens"},
		"type":              {entry(`,"price":"1"`), "cannot be read"},
	} {
		c, err := catalog.Parse(strings.NewReader(one.text))
		if err == nil || c != nil || !strings.Contains(err.Error(), one.want) {
			t.Errorf("%s: catalog %v, error %v; want %q", name, c != nil, err, one.want)
		}
	}
	large := strings.NewReader(strings.Repeat(" ", catalog.MaxBytes+1))
	if _, err := catalog.Parse(large); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("a file that is too large: error %v", err)
	}
}

func TestMerge(t *testing.T) {
	over, err := catalog.Parse(strings.NewReader(`{"format":2,"source":"new","date":"2027-01-01","providers":[
		{"id":"groq","models":[{"id":"openai/gpt-oss-120b","price":{"input":9,"known":true}},{"id":"new","price":{"input":1,"known":true}}]},
		{"id":"other","base_url":"https://other.example","models":[{"id":"z","price":{"input":7,"known":true}}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	base := list(t)
	c := base.Merge(over)
	for _, one := range []struct {
		url, model string
		want       float64
	}{
		{"https://api.groq.com/openai/v1", "openai/gpt-oss-120b", 9},
		{"https://api.groq.com/openai/v1", "new", 1},
		{"https://other.example", "z", 7},
		{"", "gpt-5-mini", 0.25},
	} {
		if m, ok := c.Lookup("openai", one.url, one.model); !ok || m.Price.Input != one.want {
			t.Errorf("%+v: %+v, %v", one, m, ok)
		}
	}
	if info := c.Info(); info.Source != "new" || info.Date != "2027-01-01" || info.Models != base.Info().Models+2 {
		t.Errorf("%+v", info)
	}
	if m, _ := base.Lookup("openai", "https://api.groq.com/openai/v1", "openai/gpt-oss-120b"); m.Price.Input != 0.1 {
		t.Errorf("merging has changed what was merged: %+v", m)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`[{"id":"p","models":[{"id":"m","cost_per_1m_in":1}]}]`))
	f.Add([]byte(`{"format":2,"providers":[{"id":"p","models":[{"id":"m","price":{"input":1,"known":true}}]}]}`))
	f.Add([]byte(`{"id":"p"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := catalog.Parse(bytes.NewReader(text))
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := c.Write(&again); err != nil {
			t.Fatal(err)
		}
		second, err := catalog.Parse(&again)
		if err != nil {
			t.Fatalf("what was taken is refused when it is written: %v", err)
		}
		if diff := cmp.Diff(c.Info(), second.Info()); diff != "" {
			t.Error(diff)
		}
	})
}

func BenchmarkLookup(b *testing.B) {
	for b.Loop() {
		if _, ok := catalog.Embedded().Lookup("openai", "", "gpt-5-mini"); !ok {
			b.Fatal("unknown")
		}
	}
}
