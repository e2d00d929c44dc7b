package policy

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/safefile"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/tool/shell"
)

// OtherCall is a call that another agent is about to make.
type OtherCall struct {
	Tool      string          `json:"tool"` // the name that the agent uses, or ours
	Arguments json.RawMessage `json:"arguments"`
	Cwd       string          `json:"cwd"`     // absolute path of the folder of the call
	Session   string          `json:"session"` // session of that agent; what it has read taints later calls
	Workspace string          `json:"-"`       // for file tools, a folder that has Cwd; "" means Cwd
	Agent     string          `json:"-"`       // whose policy applies; "" means the default agent's
}

// otherCallDecided is the payload of an audit entry. It has only the digest of the arguments.
type otherCallDecided struct {
	Tool     string          `json:"tool"` // our name
	As       string          `json:"as"`   // the name that the agent uses
	Digest   string          `json:"digest"`
	Decision string          `json:"decision"`
	Reason   toolcrib.Reason `json:"reason,omitempty"`
	Rule     string          `json:"rule,omitempty"`
	Session  string          `json:"session_id,omitempty"`
	By       string          `json:"by"`
}

// maxOtherName is the most bytes that are kept of a name from another agent.
const maxOtherName = 256

// DecideOther judges a call of another agent like a call of a run, and records the decision. It runs nothing and starts
// no MCP server. After an error the call must not be made.
func (p *Policy) DecideOther(
	ctx context.Context, who toolcrib.Principal, c OtherCall,
) (d api.OtherDecided, err error) {
	o, err := p.otherCall(&c)
	if err != nil {
		return d, err
	}
	who = RunsAs(who, false)
	def, err := p.Agent(c.Agent, Change{})
	if err != nil {
		return d, err
	}
	x := &explaining{who: who}
	if x.scope, err = p.Scope(&def, o.workspace, agent.ApproveNone, nil, p.env.Notice); err != nil {
		return d, err
	}
	x.scope.HasSkills = true // those of the other agent
	people := p.people.Standing()
	people.Renew()
	var judged toolcrib.Spec
	switches := &availability{store: p.env.Store}
	x.gate, err = p.gateOf(o.workspace, switches, people, func(tools []toolcrib.Tool) []toolcrib.Tool {
		tools, judged = o.among(tools)
		return tools
	})
	if err != nil {
		return d, err
	}
	session := p.otherSession(who.User, c.Session)
	x.facts = gate.Facts{
		Session: toolcrib.SessionID(c.Session), Offered: map[string]bool{o.name: true}, DryRun: true, Elsewhere: true,
		Mask: p.env.Mask.Mask,
	}
	if x.facts.Taint, err = session.taint(); err == nil {
		x.facts.Remembered, err = p.remembered(ctx, x)
	}
	if err != nil {
		return d, err
	}
	call := p.GivenCall(o.name, o.arguments)
	v := gate.Verdict{Verdict: journal.Verdict{Reason: toolcrib.ReasonInvalidArguments, Message: o.refused}}
	if o.refused == "" {
		v = x.gate.Judge(ctx, who, x.scope, x.facts, []toolcrib.ToolCall{*call})[0]
	}
	agent.MaskVerdict(p.env.Mask, &v)
	d = api.OtherDecided{
		Decision: api.OtherDeny, Reason: strings.TrimSpace(v.Message + " " + v.OperatorHint), Rule: v.Rule,
	}
	switch {
	case v.Decision == toolcrib.Ask:
		d.Decision = api.OtherAsk
	case !v.Refused():
		d.Decision, d.Reason = api.OtherAllow, cmp.Or(d.Reason, "the policy allows this call")
	}
	if d.Decision != api.OtherDeny && judged.Untrusted {
		source := o.name
		if judged.Group == judged.Source && judged.Group != "" {
			source = judged.Source // an MCP server
		}
		if err := session.add(source, x.facts.Taint); err != nil {
			return api.OtherDecided{}, err
		}
	}
	sum := sha256.Sum256(call.Arguments)
	name := func(text string) string { return p.env.Mask.Clean(guard.Clean(text[:min(len(text), maxOtherName)])) }
	err = p.env.Record(ctx, env.KindOtherCall, otherCallDecided{
		Tool: o.name, As: name(c.Tool), Digest: "sha256:" + hex.EncodeToString(sum[:]), Decision: d.Decision,
		Reason: v.Reason, Rule: v.Rule, Session: name(c.Session), By: agent.NameOf(who),
	})
	if err != nil {
		return api.OtherDecided{}, err
	}
	return d, nil
}

// otherTools maps tools of other agents to ours: our name, and the arguments that matter with our names for them.
func otherTools() map[string]string {
	return map[string]string{
		"Bash":         "exec_shell command run_in_background:background",
		"Write":        "write_file file_path:path content",
		"Edit":         "edit_file file_path:path old_string:old_text new_string:new_text",
		"MultiEdit":    "edit_file file_path:path edits",
		"NotebookEdit": "write_file notebook_path:path new_source:content",
		"Read":         "read_file file_path:path", "NotebookRead": "read_file notebook_path:path",
		"Glob": "search_files path pattern:glob", "Grep": "search_files path pattern glob", "LS": "list_directory path",
		"WebFetch": "web_fetch url", "WebSearch": "web_search query",
		"Task": "spawn subagent_type:agent prompt:task", "Agent": "spawn subagent_type:agent prompt:task",
		"Skill": "read_skill skill:name", "AskUserQuestion": "ask_user questions", "ToolSearch": "find_tools query",
		"TodoWrite": "update_plan todos", "TodoRead": "update_plan",
		"TaskCreate": "update_plan", "TaskUpdate": "update_plan",
		"TaskGet": "update_plan", "TaskList": "update_plan",
		"EnterPlanMode": "update_plan", "ExitPlanMode": "update_plan plan",
		"BashOutput": "read_output", "TaskOutput": "read_output", "KillShell": "stop_process", "TaskStop": "stop_process",
		"ListMcpResourcesTool": "list_mcp_resources server", "ReadMcpResourceTool": "read_mcp_resource server uri",
	}
}

// otherJudged is a call of another agent in terms of our tools.
type otherJudged struct {
	name, source string // source is that of an unknown tool
	workspace    string
	arguments    json.RawMessage
	refused      string // reason, if the target cannot be determined
}

// ownFileTools are the names of our file tools.
const ownFileTools = " read_file list_directory search_files write_file edit_file get_tree read_asset_meta "

func (p *Policy) otherCall(c *OtherCall) (o *otherJudged, err error) {
	o = &otherJudged{name: c.Tool, source: "client", arguments: c.Arguments}
	if c.Tool == "" {
		return nil, env.BadRequestf("tool: must name the tool that is called")
	}
	if !filepath.IsAbs(c.Cwd) {
		return nil, env.BadRequestf("cwd must be an absolute path")
	}
	cwd, err := p.Workspace(c.Cwd, nil)
	if err == nil {
		o.workspace, err = p.Workspace(cmp.Or(c.Workspace, cwd), nil)
	}
	if err != nil {
		return nil, err
	}
	if rel, err := filepath.Rel(o.workspace, cwd); err != nil || !filepath.IsLocal(rel) {
		return nil, env.BadRequestf("the call would run outside of the workspace %s", PathText(o.workspace))
	}
	known := strings.Fields(otherTools()[c.Tool])
	server, tool, _ := strings.Cut(strings.TrimPrefix(c.Tool, "mcp__"), "__")
	switch {
	case len(known) > 0:
		o.name = known[0]
		err = o.take(known[1:], cwd, c.Tool == "Glob")
	case c.Tool != "" && strings.Contains(ownFileTools, " "+c.Tool+" "):
		err = o.take(nil, cwd, false)
	case strings.HasPrefix(c.Tool, "mcp__") && server != "" && tool != "":
		o.name, o.source = server+"__"+tool, "mcp:"+server
	}
	const most = 64
	if len(o.name) > most { // the names of other agents may be longer
		sum := sha256.Sum256([]byte(o.name))
		o.name = o.name[:most-9] + "_" + hex.EncodeToString(sum[:4])
	}
	if o.name == shell.Name {
		o.workspace = cwd // its paths are relative to it
	}
	return o, err
}

// take takes the named arguments, or all if names is nil. A path is relative to the folder of the call, and is expanded
// as the other agent may expand it.
func (o *otherJudged) take(names []string, cwd string, glob bool) error {
	canonical, err := guard.Arguments(o.arguments)
	if err != nil {
		return nil // the gate refuses the arguments
	}
	var given map[string]any
	if err := json.Unmarshal(canonical, &given); err != nil {
		return err
	}
	taken := given
	if names != nil {
		taken = map[string]any{}
	}
	for _, name := range names {
		theirs, here, _ := strings.Cut(name, ":")
		if value, ok := given[theirs]; ok {
			taken[cmp.Or(here, theirs)] = value
		}
	}
	if taken["old_text"] == "" {
		delete(taken, "old_text") // makes a new file
	}
	if taken["path"] == nil {
		delete(taken, "path")
	}
	value, isPath := taken["path"]
	where := o.path(value, isPath)
	if glob {
		var any bool
		if any, where = o.glob(taken["glob"], where); any {
			isPath = true
		}
	}
	if isPath && where != "" && !filepath.IsAbs(where) {
		where = filepath.Join(cwd, where)
	}
	if isPath {
		taken["path"] = where
	}
	o.arguments, err = json.Marshal(taken)
	return err
}

// path returns an expanded path.
func (o *otherJudged) path(value any, given bool) string {
	text, ok := value.(string)
	out, known := writtenOut(text)
	if given && (!ok || !known) {
		o.refused = "the path must be text that is written out: without ~user, variables, and addresses of other machines"
	}
	return out
}

// glob returns the folder in which a pattern looks, which may be outside of where.
func (o *otherJudged) glob(value any, where string) (given bool, at string) {
	if value == nil {
		return false, where
	}
	pattern := o.path(value, true)
	head := pattern
	if i := strings.IndexAny(pattern, "*?[{"); i >= 0 {
		head = pattern[:i]
	}
	rest := strings.NewReplacer("{", ",", "$", "/", "~", "/", "file:", "/").Replace(strings.ToLower(pattern[len(head):]))
	switch {
	case strings.Contains(rest, "..") || strings.Contains(rest, ",/"):
		return true, "/" // the target cannot be determined
	case path.IsAbs(pattern):
		return true, path.Dir(head)
	}
	return true, path.Join(cmp.Or(where, "."), path.Dir(head))
}

// writtenOut expands the beginning of a path as programs do: the home folder, and the address of a local file. known is
// false if the result cannot be determined.
func writtenOut(name string) (out string, known bool) {
	text := strings.TrimSpace(name)
	scheme, _, _ := strings.Cut(text, ":")
	if strings.EqualFold(scheme, "file") && scheme != text {
		u, err := url.Parse(text)
		known = err == nil && (u.Host == "" || strings.EqualFold(u.Host, "localhost")) && path.IsAbs(u.Path) &&
			!strings.ContainsAny(text, "?#")
		if !known {
			return name, false
		}
		if out = filepath.FromSlash(u.Path); runtime.GOOS == "windows" { // /C:/a
			out = strings.TrimLeft(out, `\`)
		}
		return out, true
	}
	for _, prefix := range []string{"~", "$HOME", "${HOME}"} {
		rest, ok := strings.CutPrefix(text, prefix)
		if ok && (rest == "" || strings.ContainsAny(rest[:1], `/\`)) {
			home, err := os.UserHomeDir()
			return home + rest, err == nil && filepath.IsAbs(home)
		}
	}
	if filepath.IsAbs(text) {
		return text, true
	}
	return name, text == "" || text[0] != '~' && text[0] != '$'
}

// among replaces the built-in tool of that name by the judged one, or adds a write of an unknown tool.
func (o *otherJudged) among(tools []toolcrib.Tool) ([]toolcrib.Tool, toolcrib.Spec) {
	spec := toolcrib.Spec{
		Name: o.name, Source: o.source, Effect: toolcrib.EffectNonIdempotentWrite, EnabledByDefault: true,
		Untrusted: true, Sink: true,
	}
	if strings.HasPrefix(o.source, "mcp:") {
		spec.Group = o.source
	}
	i := slices.IndexFunc(tools, func(t toolcrib.Tool) bool { return t.Spec().Name == o.name })
	if i < 0 {
		i, tools = len(tools), append(tools, otherTool{spec: spec})
	} else {
		spec = tools[i].Spec()
	}
	t := otherTool{tool: tools[i], spec: spec}
	if spec.AnsweredBy != "" {
		t.tool = nil // a person or agent of the other agent answers
	}
	t.spec.AnsweredBy, t.spec.Nested, t.spec.Parameters = "", false, nil
	t.spec.Plans = toolcrib.PlanFacts{Effect: true, Targets: true, Policy: true, Concerns: true}
	tools = slices.Clone(tools)
	tools[i] = t
	return tools, t.spec
}

// otherTool judges calls like one of our tools, and cannot run them.
type otherTool struct {
	spec toolcrib.Spec
	tool toolcrib.Tool
}

// Spec implements [toolcrib.Tool].
func (t otherTool) Spec() toolcrib.Spec { return t.spec }

// Call implements [toolcrib.Tool].
func (otherTool) Call(context.Context, toolcrib.Call) (toolcrib.Output, error) {
	return toolcrib.Output{}, errors.New("another agent runs this call")
}

// Plan returns the facts of the tool's own plan, without its work.
func (t otherTool) Plan(ctx context.Context, call toolcrib.Call) (*toolcrib.Plan, error) {
	plan := &toolcrib.Plan{}
	if p, ok := t.tool.(toolcrib.Planner); ok {
		own, err := p.Plan(ctx, call)
		if err != nil {
			return nil, err
		}
		plan = &toolcrib.Plan{
			Effect: own.Effect, Targets: own.Targets, CommandLine: own.CommandLine, Programs: own.Programs,
			Concerns: own.Concerns,
		}
	}
	plan.Run = t.Call
	return plan, nil
}

// otherSession is the file with the sources of untrusted data that a session of another agent has read, one per line.
type otherSession string

func (p *Policy) otherSession(user, session string) otherSession {
	return otherSession(p.env.Marked("other", user+"\x00"+session))
}

// Bounds of the files of sessions.
const (
	otherSources = 32
	otherBytes   = 64 << 10
	otherKept    = 30 * 24 * time.Hour
)

func (f otherSession) taint() ([]string, error) {
	text, err := safefile.Read(string(f), otherBytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("what the session has read is not known: %s %w", string(f), err)
	}
	return strings.Fields(string(text)), nil
}

// add adds a source. The first source of a session removes the files of old sessions.
func (f otherSession) add(source string, known []string) error {
	if slices.Contains(known, source) || len(known) >= otherSources {
		return nil
	}
	dir := filepath.Dir(string(f))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if len(known) == 0 {
		safefile.RemoveOld(dir, otherKept)
	}
	file, err := os.OpenFile(string(f), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(strings.Join(strings.Fields(source), "_") + "\n")
	return errors.Join(err, file.Close())
}
