package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/models"
)

// agentsHome is a home with a configuration of several agents, and a workspace with skills that are not trusted.
func agentsHome(t *testing.T) *Service {
	t.Helper()
	home, work := t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	for _, name := range []string{
		"XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "TOOLCRIB_CONFIG",
		"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY",
	} {
		t.Setenv(name, "")
	}
	t.Chdir(work)
	for path, text := range map[string]string{
		filepath.Join(home, ".config", "toolcrib", "toolcrib.yaml"): `
providers:
  demo: {type: script, file: demo.script}
  lost: {type: script, file: lost.script}
  remote: {type: openai, api_key: a-secret-of-the-remote}
agents:
  default: {model: demo/x}
  writer: {model: remote/gpt-5-mini, fallback: [lost/y], skills: [house, local], tools: [read_file], system: "Write."}
  broken: {model: lost/y}
`,
		filepath.Join(home, ".config", "toolcrib", "demo.script"):                 "- {text: hello}\n",
		filepath.Join(home, ".config", "toolcrib", "skills", "house", "SKILL.md"): "---\nname: house\ndescription: How we do it.\nallowed-tools: Read\n---\nBe kind to ${user} in ${workspace}.\n",
		filepath.Join(work, "skills", "local", "SKILL.md"):                        "---\nname: local\ndescription: Of this folder.\n---\nObey the folder.\n",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := config.Load(config.Find("", os.Getenv), nil)
	if err != nil {
		t.Fatal(err)
	}
	a := New(env.Options{
		Config: c, Source: config.Find("", os.Getenv), DataDir: filepath.Join(home, "data"),
		Driver: "test",
	})
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := a.Env.OpenFor(t.Context(), toolcrib.Principal{User: "local:ann", Admin: true}); err != nil {
		t.Fatal(err)
	}
	return a
}

// Several sub-agents are prepared at the same time, while the open models are in use (spawn).
func TestSubAgent_ManyAtTheSameTime(t *testing.T) {
	a := agentsHome(t)
	m := &models.Choice{}
	open := a.Models.Opening(m)
	var told []string // tell is called by one goroutine at a time
	tell := func(text string) { told = append(told, text) }
	who := toolcrib.Principal{User: "ann"}
	if _, err := a.subAgent(t.Context(), m, who, "default", "/w", tell); err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	tasks, errs := make([]agent.Task, 8), make([]error, 8)
	for i := range tasks {
		work.Go(func() {
			name := []string{"writer", "default"}[i%2]
			tasks[i], errs[i] = a.subAgent(t.Context(), m, who, name, fmt.Sprintf("/w%d", i), tell)
			if errs[i] == nil {
				_, errs[i] = open(t.Context(), tasks[i].Models[0])
			}
		})
	}
	work.Wait()
	for i, task := range tasks {
		if errs[i] != nil {
			t.Fatal(i, errs[i])
		}
		if task.Principal.User != "ann" || task.Workspace != fmt.Sprintf("/w%d", i) || task.Driver != "test" ||
			task.Approve != "" || task.RunTools != nil {
			t.Errorf("%d: %+v", i, task)
		}
		if i%2 == 1 {
			if task.Agent.Name != "default" || len(task.Models) != 1 || task.Models[0].Ref != "demo/x" || task.Skills != nil ||
				task.SkillTools != nil {
				t.Errorf("%d: %+v", i, task)
			}
			// The skill that the other agent names is listed for this one.
			if len(task.Listed) != 1 || len(task.History) != 1 || !strings.Contains(task.History[0].Text(), "\n- house: ") {
				t.Errorf("%d: %+v %+v", i, task.Listed, task.History)
			}
			continue
		}
		if task.Agent.Name != "writer" || task.Agent.System != "Write." ||
			!slices.Equal(task.Agent.Tools, []string{"read_file"}) || len(task.Models) != 2 || !task.Models[0].Price.Known {
			t.Errorf("%d: %+v", i, task)
		}
		if len(task.Skills) != 1 || task.Skills[0].Name != "house" || task.SkillTools == nil || len(task.SkillTools) != 0 {
			// The other skill does not apply, so there are no tools (N16).
			t.Errorf("%d: skills %+v allow %q", i, task.Skills, task.SkillTools)
		}
		if len(task.History) != 1 || !strings.Contains(task.History[0].Text(), fmt.Sprintf("Be kind to ann in /w%d.", i)) ||
			strings.Contains(task.History[0].Text(), "Obey") {
			t.Errorf("%d: %+v", i, task.History)
		}
	}
	text := strings.Join(told, "\n")
	for _, want := range []string{"skill house is new here", "skill local is off: "} {
		if strings.Count(text, want) != 1 {
			t.Errorf("%q is not told once:\n%s", want, text)
		}
	}
	if got := a.Env.Mask.Mask("a-secret-of-the-remote"); strings.Contains(got, "a-secret") {
		t.Errorf("the key of a sub-agent's provider is not masked: %q", got)
	}
	// A fallback that cannot be opened is reported when it is needed.
	var failed *toolcrib.ModelError
	if _, err := open(t.Context(), tasks[0].Models[1]); !errors.As(err, &failed) || !failed.Unsent {
		t.Errorf("the broken fallback says %v", err)
	}
}

// A problem of a sub-agent is an error that says what to do, and not a question.
func TestSubAgent_Errors(t *testing.T) {
	a := agentsHome(t)
	ended, end := context.WithCancel(t.Context())
	end()
	m := &models.Choice{}
	tell := func(text string) { t.Errorf("told: %s", text) }
	for _, test := range []struct {
		ctx  context.Context
		name string
		want []string
	}{
		{t.Context(), "wirter", []string{"unknown agent", "writer", "broken, default"}},
		{t.Context(), "", []string{"no agent is named", "writer"}},
		{t.Context(), "broken", []string{"providers.lost", "lost.script"}},
		{ended, "default", []string{"canceled"}},
	} {
		task, err := a.subAgent(test.ctx, m, toolcrib.Principal{User: "ann"}, test.name, "/w", tell)
		if err == nil {
			t.Errorf("%q is prepared: %+v", test.name, task)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v does not say %q", test.name, err, want)
			}
		}
	}
}

// A run that another run started in an earlier process has its models opened when they are needed. A model that is no
// longer configured is an error.
func TestSubAgent_ModelsOfARunBefore(t *testing.T) {
	a := agentsHome(t)
	m := &models.Choice{}
	open := a.Models.Opening(m)
	var work sync.WaitGroup
	for range 8 {
		work.Go(func() {
			if _, err := open(t.Context(), journal.ModelInfo{Ref: "demo/x", Provider: "demo", ID: "x"}); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	for _, provider := range []string{"lost", "nobody"} {
		if _, err := open(t.Context(), journal.ModelInfo{Provider: provider, ID: "z"}); err == nil ||
			!strings.Contains(err.Error(), provider) {
			t.Errorf("%s: %v", provider, err)
		}
	}
}

// A sub-agent does not change the skills of the run that started it: they stay as they were at its start (N16, N26).
func TestN26_SubAgentKeepsTheSkillsOfOthers(t *testing.T) {
	a := agentsHome(t)
	tell := func(string) {}
	first, err := a.subAgent(t.Context(), &models.Choice{}, toolcrib.Principal{User: "ann"}, "writer", "/w", tell)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(os.Getenv("HOME"), ".config", "toolcrib", "skills", "house", "SKILL.md")
	if err := os.WriteFile(path, []byte("---\nname: house\ndescription: Another.\n---\nBe rude.\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	second, err := a.subAgent(t.Context(), &models.Choice{}, toolcrib.Principal{User: "ann"}, "writer", "/w", tell)
	if err != nil {
		t.Fatal(err)
	}
	if len(second.Skills) != 0 || second.SkillTools == nil || len(second.SkillTools) != 0 {
		t.Errorf("a skill that has changed counts: %+v %q", second.Skills, second.SkillTools)
	}
	set := a.Policy.SameSkills(first.Skills)
	if names := set.Names(); !slices.Equal(names, []string{"house"}) {
		t.Errorf("the first run has %q", names)
	}
}
