// Package builtin lists the tools that are part of toolcrib. A new group of tools is added by its own
// New in its package, and in one line here. Tools of a program that embeds toolcrib are not listed
// here, they are passed to the runtime in addition to these.
package builtin

import (
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/ask"
	"github.com/toolcrib/toolcrib/tool/directory"
	"github.com/toolcrib/toolcrib/tool/files"
	"github.com/toolcrib/toolcrib/tool/find"
	"github.com/toolcrib/toolcrib/tool/memory"
	"github.com/toolcrib/toolcrib/tool/message"
	"github.com/toolcrib/toolcrib/tool/plan"
	"github.com/toolcrib/toolcrib/tool/result"
	"github.com/toolcrib/toolcrib/tool/skillread"
	"github.com/toolcrib/toolcrib/tool/spawn"
	"github.com/toolcrib/toolcrib/tool/system"
	"github.com/toolcrib/toolcrib/tool/tables"
	"github.com/toolcrib/toolcrib/tool/verify"
	"github.com/toolcrib/toolcrib/tool/web"
)

// Options are the options of [New]. The zero value gives tools that protect no path but stay in the
// workspace, a verify without a shell, a web_fetch that reaches nothing, no spawn, and none of the
// tools that need a source: read_result, read_skill, fetch_logs, memory, users and databases.
type Options struct {
	Files  files.Options
	System system.Options
	Web    web.Options

	// Directory provides users and groups. If nil, there are no list_users and list_groups.
	Directory directory.Directory
	// Memory contains users' notes. If nil, there are no memory_read and memory_write.
	Memory *memory.Files
	// Databases are the databases of describe_tables. If empty, there is no describe_tables.
	Databases []tables.Database
	// Agents are the agents that spawn can start. If empty, there is no spawn.
	Agents []spawn.Agent
	// Messages are the channels of message. Without any, there is no message.
	Messages message.Options
	// Shell permits verify to run commands by exec_shell, through the gate.
	Shell bool
	// Results provides the results that were cut. Without Contents, there is no read_result.
	Results result.Options
	// Skills configures read_skill. Without Skills, there is no read_skill.
	Skills skillread.Options
}

// New returns the built-in tools, each with Source "builtin".
func New(options Options) []toolcrib.Tool {
	tools := slices.Concat( // a new group is one more line, and changes nothing else (N3)
		files.New(options.Files), system.New(options.System), verify.New(verify.Options{Shell: options.Shell}),
		web.New(options.Web), tables.New(tables.Options{Databases: options.Databases}),
		[]toolcrib.Tool{ask.New(), plan.New(), find.New()})
	if len(options.Agents) > 0 {
		tools = append(tools, spawn.New(options.Agents))
	}
	if options.Results.Contents != nil {
		tools = append(tools, result.New(options.Results)...)
	}
	if options.Skills.Skills != nil {
		tools = append(tools, skillread.New(options.Skills)...)
	}
	if options.Directory != nil {
		tools = append(tools, directory.New(options.Directory)...)
	}
	if len(options.Messages.Channels) > 0 {
		tools = append(tools, message.New(options.Messages)...)
	}
	if options.Memory != nil {
		tools = append(tools, memory.New(options.Memory)...)
	}
	return tools
}

// Aliases maps the tool names in skills written for other programs to ours.
func Aliases() map[string]string {
	return map[string]string{
		"Bash": "exec_shell", "Shell": "exec_shell",
		"Read": "read_file", "Write": "write_file", "Edit": "edit_file", "MultiEdit": "edit_file",
		"Grep": "search_files", "Glob": "search_files", "LS": "list_directory",
		"WebFetch": "web_fetch", "WebSearch": "web_search",
		"Task": "spawn", "Agent": "spawn", "Skill": "read_skill", "AskUserQuestion": "ask_user", "TodoWrite": "update_plan",
	}
}
