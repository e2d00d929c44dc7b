// Package builtin lists the tools that toolcrib comes with (contract §11). A new
// family of tools is added where it is made, by its own New, and in one line here;
// tools of one's own need no line at all, they are passed to the runtime beside
// these (N3).
package builtin

import (
	"context"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/skill"
	"github.com/toolcrib/toolcrib/tool/ask"
	"github.com/toolcrib/toolcrib/tool/asset"
	"github.com/toolcrib/toolcrib/tool/directory"
	"github.com/toolcrib/toolcrib/tool/files"
	"github.com/toolcrib/toolcrib/tool/find"
	"github.com/toolcrib/toolcrib/tool/memory"
	"github.com/toolcrib/toolcrib/tool/plan"
	"github.com/toolcrib/toolcrib/tool/result"
	"github.com/toolcrib/toolcrib/tool/skillread"
	"github.com/toolcrib/toolcrib/tool/spawn"
	"github.com/toolcrib/toolcrib/tool/system"
	"github.com/toolcrib/toolcrib/tool/tables"
	"github.com/toolcrib/toolcrib/tool/tree"
	"github.com/toolcrib/toolcrib/tool/verify"
	"github.com/toolcrib/toolcrib/tool/web"
)

// Options for [New]. The zero value gives tools that protect no path but stay in
// the workspace, a verify without a shell, a web_fetch that reaches nothing, no spawn, and none of those that need
// something to read from: read_result, read_skill, fetch_logs, memory, users and
// databases.
type Options struct {
	// Protected and Hidden report which files are never written, and which are neither
	// read nor written; see [files.Options].
	Protected func(abs string) bool
	Hidden    func(abs string) bool
	// Own are files of toolcrib itself, OwnExcept what is none below; see [files.Options].
	Own, OwnExcept []string

	// Version, Started and Data are what get_runtime_info tells; see
	// [system.Options].
	Version string
	Started time.Time
	Data    func(ctx context.Context) map[string]string
	// Details, Environ, Logs and Mask are for the other tools about toolcrib itself; see
	// [system.Options]. Without Logs there is no fetch_logs.
	Details func(ctx context.Context) map[string]string
	Environ func() []string
	Logs    system.Logs
	Mask    func(string) string

	// Directory knows users and groups; nil = there is no list_users and list_groups.
	Directory directory.Directory
	// Memory keeps notes of users; nil = there is no memory_read and memory_write.
	Memory memory.Store
	// Databases are what describe_tables shows; none = there is no describe_tables.
	Databases []Database

	// Agents are those that spawn lets work; none = there is no spawn.
	Agents []spawn.Agent

	// Shell lets verify run commands by exec_shell, through the gate.
	Shell bool

	// Web is what web_fetch may reach, and where web_search asks.
	Web web.Options

	// Results holds the results that were cut; nil = there is no read_result.
	Results toolcrib.Contents
	// Untrusted tells the source of such a result; see [result.Options].
	Untrusted func(run toolcrib.RunID, ref string) (source string, untrusted bool)

	// Skills and SkillVariables are what read_skill asks for; see
	// [skillread.Options]. Skills nil = there is no read_skill.
	Skills         func(call toolcrib.Call) *skill.Set
	SkillVariables func(call toolcrib.Call) map[string]string
}

// New returns the built-in tools, each with Source "builtin".
func New(options Options) []toolcrib.Tool {
	tools := files.New(files.Options{
		Protected: options.Protected, Hidden: options.Hidden, Own: options.Own, OwnExcept: options.OwnExcept,
	})
	tools = append(tools, tree.New(tree.Options{Excluded: options.excluded()})...)
	tools = append(tools, asset.New(asset.Options{Hidden: options.Hidden})...)
	tools = append(tools, system.New(system.Options{
		Version: options.Version, Started: options.Started, Data: options.Data,
		Details: options.Details, Environ: options.Environ, Logs: options.Logs, Mask: options.Mask,
	})...)
	tools = append(tools, verify.New(verify.Options{Shell: options.Shell})...)
	tools = append(tools, web.New(options.Web)...)
	tools = append(tools, ask.New(), plan.New(), find.New())
	if len(options.Agents) > 0 {
		tools = append(tools, spawn.New(options.Agents))
	}
	if options.Results != nil {
		tools = append(tools, result.New(result.Options{Contents: options.Results, Untrusted: options.Untrusted})...)
	}
	if options.Skills != nil {
		tools = append(tools, skillread.New(skillread.Options{Skills: options.Skills, Variables: options.SkillVariables})...)
	}
	if options.Directory != nil {
		tools = append(tools, directory.New(directory.Options{Directory: options.Directory})...)
	}
	if options.Memory != nil {
		tools = append(tools, memory.New(memory.Options{Store: options.Memory})...)
	}
	return append(tools, tables.New(tables.Options{Databases: databases(options.Databases)})...)
}

// excluded reports what get_tree leaves out: all that is protected in either way
// (contract §11), for everybody.
func (o Options) excluded() func(toolcrib.Principal, string) bool {
	return func(_ toolcrib.Principal, abs string) bool {
		return o.Protected != nil && o.Protected(abs) || o.Hidden != nil && o.Hidden(abs)
	}
}

// Aliases are the names that skills written for other programs use for tools of these.
func Aliases() map[string]string {
	return map[string]string{
		"Bash": "exec_shell", "Shell": "exec_shell",
		"Read": "read_file", "Write": "write_file", "Edit": "edit_file", "MultiEdit": "edit_file",
		"Grep": "search_files", "Glob": "search_files", "LS": "list_directory",
		"WebFetch": "web_fetch", "WebSearch": "web_search",
		"Task": "spawn", "Agent": "spawn", "Skill": "read_skill", "AskUserQuestion": "ask_user", "TodoWrite": "update_plan",
	}
}
