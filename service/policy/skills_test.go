package policy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/journal/inmemory"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/mcpset"
	"github.com/toolcrib/toolcrib/service/people"
	"github.com/toolcrib/toolcrib/skill"
	"github.com/toolcrib/toolcrib/tool/skillread"
)

// A run keeps the skills that it began with. Changes while it continues are neither read nor shown (N16, N26).
func TestN26_SkillChangedWhileARunGoesOn(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("XDG_STATE_HOME", "")
	t.Chdir(t.TempDir())
	dir := filepath.Join(home, ".config", "toolcrib", "skills", "house")
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("SKILL.md", "---\nname: house\ndescription: How we do it.\nallowed-tools: Read Skill\n---\nBe kind to ${user}.\n")
	put("tone.md", "quiet")

	a := open(env.Options{DataDir: t.TempDir()})
	defer a.env.Close() //nolint:errcheck // the folder is temporary
	var told []string
	tell := func(text string) { told = append(told, text) }
	task := agent.Task{
		Agent: toolcrib.Agent{Name: "default", Skills: []string{"house"}}, Workspace: "/w",
		Principal: toolcrib.Principal{User: "ann"}, Prompt: "go",
	}
	if err := a.AddSkills(&task, tell, Paths{}); err != nil {
		t.Fatal(err)
	}
	if len(task.Skills) != 1 || strings.Join(task.SkillTools, " ") != "read_file read_skill" || len(told) != 1 {
		t.Fatalf("%+v %q %q", task.Skills, task.SkillTools, told)
	}
	if len(task.History) != 1 || task.History[0].Background != backgroundSkills ||
		!strings.Contains(task.History[0].Text(), "Be kind to ann.") {
		t.Fatalf("%+v", task.History)
	}

	// A prompt that begins like the text of skills is the user's, and is not replaced.
	said := task
	said.History = []toolcrib.Message{toolcrib.TextMessage(toolcrib.RoleUser, task.History[0].Text())}
	for range 2 { // the second time it exists already
		if err := a.AddSkills(&said, tell, Paths{}); err != nil {
			t.Fatal(err)
		}
		if len(said.History) != 2 || said.History[0].Background != "" || said.History[1].Background != backgroundSkills ||
			said.History[1].Text() != task.History[0].Text() {
			t.Fatalf("%+v", said.History)
		}
	}

	runs := &inmemory.Journal{}
	start := toolcrib.Event{Time: time.Now(), Body: &journal.RunStarted{
		Format: journal.Format, Agent: task.Agent, Principal: task.Principal, Workspace: task.Workspace, Skills: task.Skills,
		Input: task.History,
	}}
	if err := runs.Append(t.Context(), "run_1", 0, start); err != nil {
		t.Fatal(err)
	}
	tool := skillread.New(skillread.Options{
		Skills:    func(call toolcrib.Call) *skill.Set { return &[]skill.Set{a.skillsOfRun(runs, call.Run).set}[0] },
		Variables: func(call toolcrib.Call) map[string]string { return a.skillsOfRun(runs, call.Run).vars },
	})[0]
	read := func(run toolcrib.RunID, file string) (string, error) {
		arguments, _ := json.Marshal(map[string]string{"name": "house", "file": file})
		out, err := tool.Call(t.Context(), toolcrib.Call{Name: "read_skill", Run: run, Arguments: arguments})
		return string(out.JSON), err
	}
	if text, err := read("run_1", "tone.md"); err != nil || !strings.Contains(text, "quiet") {
		t.Fatal(text, err)
	}
	put("tone.md", "loud")
	put("SKILL.md", "---\nname: house\ndescription: How we do it.\n---\nDo as you like.\n")
	if text, err := read("run_1", "tone.md"); err == nil ||
		!strings.Contains(err.Error(), "has changed since it was approved") {
		t.Fatal(text, err)
	}
	if text, err := read("run_1", "SKILL.md"); err != nil || !strings.Contains(text, "Be kind to ann.") {
		t.Fatal(text, err)
	}
	if text, err := read("run_2", "SKILL.md"); err == nil {
		t.Fatal("a run that nobody knows has skills:", text)
	}

	// The next run has neither the skill nor more tools than before.
	next := agent.Task{Agent: task.Agent, Prompt: "go"}
	if err := a.AddSkills(&next, tell, Paths{}); err != nil {
		t.Fatal(err)
	}
	if next.SkillTools == nil || len(next.SkillTools) != 0 || len(next.Skills) != 0 || len(next.History) != 0 {
		t.Fatalf("%q %+v %+v", next.SkillTools, next.Skills, next.History)
	}
}

// open returns the policy of a data folder.
func open(o env.Options) *Policy {
	e := env.New(o)
	return New(e, mcpset.New(e), people.New(e, nil))
}
