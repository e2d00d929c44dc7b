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
	"github.com/toolcrib/toolcrib/tool/files"
	"github.com/toolcrib/toolcrib/tool/result"
	"github.com/toolcrib/toolcrib/tool/skillread"
	"github.com/toolcrib/toolcrib/tool/system"
	"github.com/toolcrib/toolcrib/tool/verify"
)

// Options for [New]. The zero value gives tools that protect no path but stay in
// the workspace, a verify without a shell, no read_result and no read_skill.
type Options struct {
	// Protected and Hidden tell which files are never written, and which are neither
	// read nor written; see [files.Options].
	Protected func(abs string) bool
	Hidden    func(abs string) bool

	// Version, Started and Data are what get_runtime_info tells; see
	// [system.Options].
	Version string
	Started time.Time
	Data    func(ctx context.Context) map[string]string

	// Shell lets verify run commands by exec_shell, through the gate.
	Shell bool

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
	tools := files.New(files.Options{Protected: options.Protected, Hidden: options.Hidden})
	tools = append(tools, system.New(system.Options{Version: options.Version, Started: options.Started, Data: options.Data})...)
	tools = append(tools, verify.New(verify.Options{Shell: options.Shell})...)
	tools = append(tools, ask.New())
	if options.Results != nil {
		tools = append(tools, result.New(result.Options{Contents: options.Results, Untrusted: options.Untrusted})...)
	}
	if options.Skills != nil {
		tools = append(tools, skillread.New(skillread.Options{Skills: options.Skills, Variables: options.SkillVariables})...)
	}
	return tools
}
