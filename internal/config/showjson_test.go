package config_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib/internal/config"
)

const shownFile = `
providers: {openai: {type: openai, api_key: sk-very-secret, headers: {X-Team: a<b}}, local: {type: ollama, proxy: "http://u:pass-word@localhost:1"}}
models: {m: {provider: openai, model: x, extra: {seed: 7, deep: {a: [1, null]}}}}
agents: {default: {tools: null, tool_choice: {name: read_file}, limits: {tool_timeout: 90s}}, none: {tools: []}}
rules: [{name: r, tools: [exec_shell], when: 'args.n < 3 && true', then: ask}]
`

// The configuration as JSON is read as what it is, and is the same as the YAML that is
// shown: JSON is YAML.
func TestShowJSON_SameAsShow(t *testing.T) {
	c, err := config.Parse("toolcrib.yaml", []byte(shownFile))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*config.Config{"file": c, "default": config.Default()} {
		raw := config.ShowJSON(*c)
		if !json.Valid(raw) {
			t.Fatalf("%s: %s", name, raw)
		}
		for _, secret := range []string{"sk-very-secret", "pass-word"} {
			if strings.Contains(string(raw), secret) {
				t.Errorf("%s: the secret %s is shown", name, secret)
			}
		}
	}
	raw := config.ShowJSON(*c)
	var got struct {
		Agents map[string]struct {
			Tools      []string          `json:"tools"`
			ToolChoice any               `json:"tool_choice"`
			Limits     map[string]any    `json:"limits"`
			Fallback   []json.RawMessage `json:"fallback"`
		} `json:"agents"`
		Models map[string]struct {
			Extra json.RawMessage `json:"extra"`
		} `json:"models"`
		Rules []struct {
			When string `json:"when"`
		} `json:"rules"`
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	def, none := got.Agents["default"], got.Agents["none"]
	if def.Tools != nil || none.Tools == nil || len(none.Tools) != 0 || def.Fallback == nil {
		t.Errorf("null and [] are not told apart: %v, %v, %v", def.Tools, none.Tools, def.Fallback)
	}
	if !cmp.Equal(def.ToolChoice, map[string]any{"name": "read_file"}) || none.ToolChoice != "auto" {
		t.Errorf("tool_choice %v, %v", def.ToolChoice, none.ToolChoice)
	}
	if def.Limits["tool_timeout"] != "90s" && def.Limits["tool_timeout"] != "1m30s" ||
		def.Limits["max_iterations"] != 20.0 {
		t.Errorf("limits %v", def.Limits)
	}
	if len(got.Rules) != 1 || got.Rules[0].When != "args.n < 3 && true" ||
		!strings.Contains(string(raw), "a<b") && !strings.Contains(string(raw), "***") {
		t.Errorf("rules %v in %s", got.Rules, raw)
	}
	if string(got.Models["m"].Extra) != `{"seed":7,"deep":{"a":[1,null]}}` {
		t.Errorf("extra %s", got.Models["m"].Extra)
	}
}

// What is shown as JSON can be read again where nothing is masked, and is the same then.
func TestShowJSON_ReadAgain(t *testing.T) {
	c, err := config.Parse("toolcrib.yaml", []byte("agents: {default: {limits: {max_iterations: 7}, tools: [read_*]}}\nworkspace: \"a b\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	raw := config.ShowJSON(*c)
	again, err := config.Parse("toolcrib.yaml", raw)
	if err != nil {
		t.Fatalf("%v\n%s", err, raw)
	}
	if diff := cmp.Diff(string(config.Show(c)), string(config.Show(again))); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

// Errors say where in the line their key stands.
func TestErrors_Columns(t *testing.T) {
	for text, want := range map[string]config.Error{
		"agents:\n  default: {limits: {max_iterations: 0}}\n": {Line: 2, Column: 22, Key: "agents.default.limits.max_iterations"},
		"colour: red\n":                     {Line: 1, Column: 1, Key: "colour"},
		"log: {level: info, level: debug}":  {Line: 1, Column: 20, Key: "log.level"},
		"log:\n    level: loud\n":           {Line: 2, Column: 5, Key: "log.level"},
		"skills: {dirs: [a, 7]}":            {Line: 1, Column: 20, Key: "skills.dirs[1]"},
		"log:\n  level: info\n  - a: 1\n":   {Line: 3, Column: 3},
		"[]":                                {Line: 1, Column: 1},
		"models:\n  m:\n    model: gpt-5\n": {Line: 2, Column: 3, Key: "models.m.provider"},
	} {
		_, err := config.Parse("c.yaml", []byte(text))
		var all config.Errors
		if !errors.As(err, &all) {
			t.Errorf("%q: %v", text, err)
			continue
		}
		got := all[0]
		want.File, want.Message = "c.yaml", got.Message
		if got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
	_, err := config.Load(config.Source{Path: os.DevNull + "/none.yaml", Origin: config.OriginFlag}, nil)
	var all config.Errors
	if !errors.As(err, &all) || all[0].Line != 0 || all[0].Column != 0 {
		t.Errorf("a file that is not there: %v", err)
	}
}

// What a file may have is shown, also where it is longer as JSON.
func TestShowJSON_LongExtra(t *testing.T) {
	var keys strings.Builder
	for i := range 7000 {
		fmt.Fprintf(&keys, "      k%d: 1\n", i)
	}
	for name, extra := range map[string]string{
		"keys": "\n" + keys.String(), "escapes": " {x: '" + strings.Repeat(`"`, 530_000) + "'}\n",
	} {
		file := "providers: {p: {type: openai}}\nmodels:\n  m:\n    provider: p\n    model: x\n    extra:" + extra
		c, err := config.Parse("toolcrib.yaml", []byte(file))
		if err != nil {
			t.Fatal(name, err)
		}
		if raw := config.ShowJSON(*c); len(raw) < len(extra)/2 || !bytes.Contains(raw, []byte(`"extra":{"`)) {
			t.Errorf("%s: %.100s", name, raw)
		}
		if text := config.Show(c); len(text) < len(extra)/2 {
			t.Errorf("%s: %.100s", name, text)
		}
	}
}
