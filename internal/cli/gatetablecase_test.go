package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// gateCase is one row of the table in testdata/gate; its README says what the
// fields mean.
type gateCase struct {
	ID    string `yaml:"id"`
	Holds string `yaml:"holds"` // the sentence that the row is there for

	Config   map[string]any            `yaml:"config"`
	ConfigIn string                    `yaml:"config_in"` // path in the workspace; "" = outside of it
	Files    map[string]string         `yaml:"files"`
	Links    map[string]string         `yaml:"links"`
	Skills   map[string]map[string]any `yaml:"skills"` // front matter by name
	Before   []string                  `yaml:"before"` // command lines
	Earlier  []gateRun                 `yaml:"earlier"`
	Only     []string                  `yaml:"only"` // explain | call | run; none = all of them

	Call    string   `yaml:"call"`
	Tainted []string `yaml:"tainted"`
	Gate    string   `yaml:"gate"`
	Main    gateRun  `yaml:",inline"` // the run, if there is no call

	Effect  string            `yaml:"effect"`
	Rule    string            `yaml:"rule"`
	Offered *bool             `yaml:"offered"`
	Explain []string          `yaml:"explains"` // parts of what tools explain says for people
	Exists  []string          `yaml:"exists"`
	Missing []string          `yaml:"missing"`
	Content map[string]string `yaml:"content"` // of files, afterwards
}

// gateRun is a run with a model that plays a script.
type gateRun struct {
	As    string     `yaml:"as"`    // --as; "" = the administrator
	Token string     `yaml:"token"` // flags of tokens create; the run acts by that token
	Flags string     `yaml:"flags"`
	Turns []gateTurn `yaml:"turns"`
	Exit  *int       `yaml:"exit"`
	After []string   `yaml:"after"` // command lines
	Stop  string     `yaml:"stop"`  // stop reason at the end
	Says  string     `yaml:"says"`  // part of the answer at the end
	Tells string     `yaml:"tells"` // part of what standard error says

	Below map[string][]gateTurn `yaml:"below"` // what the agents do that are called, by name
}

// gateTurn is one reply of the model: a list of calls, or a mapping.
type gateTurn struct {
	Calls     []gateCall
	Text      string
	Finish    string
	Meanwhile string // a command line that ends before the reply comes
}

// UnmarshalYAML reads both forms.
func (g *gateTurn) UnmarshalYAML(read func(any) error) error {
	var lines []string
	full := struct {
		Calls     []string `yaml:"calls"`
		Text      string   `yaml:"text"`
		Gate      string   `yaml:"gate"`
		Finish    string   `yaml:"finish"`
		Meanwhile string   `yaml:"meanwhile"`
	}{}
	if err := read(&lines); err == nil {
		full.Calls = lines
	} else if err := read(&full); err != nil {
		return err
	}
	g.Text, g.Finish, g.Meanwhile = full.Text, full.Finish, full.Meanwhile
	for _, line := range full.Calls {
		call, err := readGateCall(line)
		if err != nil {
			return err
		}
		g.Calls = append(g.Calls, call)
	}
	if full.Gate != "" {
		want, err := readGateAnswer(full.Gate)
		if err != nil {
			return err
		}
		g.Calls = append(g.Calls, gateCall{Want: want})
	}
	return nil
}

// gateCall is a call and what the gate must say to it. Without a name it stands in
// the text of the reply.
type gateCall struct {
	Name, ID, Arguments string
	Want                gateAnswer
}

// gateAnswer is a decision, its reason, and a part of what is told.
type gateAnswer struct{ Decision, Reason, Text string }

func (a gateAnswer) String() string { return strings.TrimSpace(a.Decision + " " + a.Reason) }

var (
	callLine   = regexp.MustCompile(`(?s)^([^\s#]+)(?:#(\S+))?\s*(.*)$`)
	answerLine = regexp.MustCompile(`(?s)^(allow|ask|refuse)(?: ([a-z_]+))?(?:: (.+))?$`)
)

// readGateCall reads NAME#ID ARGUMENTS => ANSWER; the ID may be left out.
func readGateCall(line string) (gateCall, error) {
	at := strings.LastIndex(line, " => ")
	if at < 0 {
		return gateCall{}, fmt.Errorf("%q: want CALL => ANSWER", line)
	}
	call, err := splitGateCall(line[:at])
	if err != nil {
		return gateCall{}, err
	}
	call.Want, err = readGateAnswer(line[at+len(" => "):])
	return call, err
}

func splitGateCall(text string) (gateCall, error) {
	m := callLine.FindStringSubmatch(text)
	if m == nil {
		return gateCall{}, fmt.Errorf("%q: want NAME ARGUMENTS", text)
	}
	return gateCall{Name: m[1], ID: m[2], Arguments: m[3]}, nil
}

// readGateAnswer reads allow, ask REASON or refuse REASON, and : TEXT behind it.
func readGateAnswer(text string) (gateAnswer, error) {
	m := answerLine.FindStringSubmatch(text)
	if m == nil || (m[1] == "allow") != (m[2] == "") {
		return gateAnswer{}, fmt.Errorf("%q: want allow, ask REASON or refuse REASON", text)
	}
	return gateAnswer{Decision: m[1], Reason: m[2], Text: m[3]}, nil
}

// script is the model's part of a run, as the provider of type script reads it.
func script(turns []gateTurn) ([]byte, error) {
	type call struct {
		ID        string `json:"id,omitempty"`
		Name      string `json:"name"`
		Arguments string `json:"arguments,omitempty"`
	}
	type reply struct {
		Text   string `json:"text,omitempty"`
		Finish string `json:"finish,omitempty"`
		Calls  []call `json:"tool_calls,omitempty"`
	}
	var replies []reply
	for _, t := range turns {
		one := reply{Text: t.Text, Finish: t.Finish}
		for _, c := range t.Calls {
			if c.Name != "" {
				one.Calls = append(one.Calls, call{c.ID, c.Name, c.Arguments})
			}
		}
		replies = append(replies, one)
	}
	return json.Marshal(append(replies, reply{Text: "the end"}))
}

// calls are all calls of the run.
func (r *gateRun) calls() []gateCall { return callsOf(r.Turns) }

func callsOf(turns []gateTurn) []gateCall {
	var all []gateCall
	for _, t := range turns {
		all = append(all, t.Calls...)
	}
	return all
}

// readGateTable reads the table: the cases by the name of their file.
func readGateTable(t *testing.T) map[string][]gateCase {
	t.Helper()
	files, err := filepath.Glob("testdata/gate/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("there is no table: %v", err)
	}
	table := make(map[string][]gateCase)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var cases []gateCase
		if err := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(&cases); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for i := range cases {
			if err := cases[i].check(); err != nil {
				t.Fatalf("%s: %s: %v", file, cases[i].ID, err)
			}
		}
		table[filepath.Base(file)] = cases
	}
	return table
}

// check refuses rows that would test nothing.
func (c *gateCase) check() error {
	switch {
	case c.ID == "" || c.Holds == "":
		return errors.New("a case has an id and says what holds")
	case (c.Call == "") == (len(c.Main.Turns) == 0 && c.Main.Stop == ""):
		return errors.New("a case has a call or turns, or says why the run stopped")
	case (c.Call == "") != (c.Gate == ""):
		return errors.New("gate belongs to call")
	case c.Call == "" && (c.Effect != "" || c.Rule != "" || c.Offered != nil || len(c.Explain) > 0 || len(c.Only)+len(c.Tainted) > 0):
		return errors.New("effect, rule, offered, explains, only and tainted belong to call")
	case c.Call != "" && (c.Main.Exit != nil || len(c.Main.After) > 0 || c.Main.Stop != ""):
		return errors.New("exit, after and stop belong to turns")
	}
	if c.Gate != "" {
		_, err := readGateAnswer(c.Gate)
		return err
	}
	return nil
}
