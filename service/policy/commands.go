package policy

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/tool/command"
	"github.com/toolcrib/toolcrib/tool/shell"
)

// commands returns the tools of tools.commands.
func (p *Policy) commands(protected gate.Protected) ([]toolcrib.Tool, error) {
	names := slices.Sorted(maps.Keys(p.env.Config.Tools.Commands))
	if len(names) == 0 {
		return nil, nil
	}
	programs, err := p.commandPrograms(protected)
	if err != nil {
		return nil, err
	}
	tools := make([]toolcrib.Tool, len(names))
	for i, name := range names {
		options, err := p.commandOptions(name)
		if err == nil {
			tools[i], err = command.New(programs, options)
		}
		if err != nil {
			return nil, env.BadRequestf("%s: tools.commands.%s: %v", p.env.Config.Position("tools.commands."+name), name, err)
		}
	}
	return tools, nil
}

func (p *Policy) commandPrograms(protected gate.Protected) (*shell.Programs, error) {
	options, err := p.shellOptions(protected, false)
	if err != nil {
		return nil, err
	}
	programs, err := shell.NewPrograms(options)
	if err != nil {
		return nil, env.BadRequestf("tools.%v", err)
	}
	return programs, nil
}

func (p *Policy) commandOptions(name string) (o command.Options, err error) {
	c := p.env.Config.Tools.Commands[name]
	o = command.Options{
		Name: name, Description: c.Description, Parameters: []byte(c.Parameters), Command: c.Words(),
		Program: shell.Program{SHA256: c.SHA256, Network: c.Network, ReadOnly: c.Effect == string(toolcrib.EffectReadOnly)},
		Input:   c.Stdin == "json", Dashes: c.Dashes, Effect: toolcrib.Effect(c.Effect), Untrusted: c.IsUntrusted(),
	}
	if c.Timeout != nil {
		o.Timeout = c.Timeout.Std()
	}
	o.Program.Path, err = p.env.Config.Program(name)
	return o, err
}

// CheckCommand says where the program of tools.commands.NAME is, and how it is confined, or why no call can run in the
// configured workspace, and what to do about it.
func (p *Policy) CheckCommand(name string) (detail, fix string, err error) {
	options, err := p.commandOptions(name)
	if err != nil {
		return "", "", err
	}
	programs, err := p.commandPrograms(gate.Protected{})
	if err != nil {
		return "", "", err
	}
	workspace, err := p.Workspace("", nil)
	if err != nil {
		return "", "", err
	}
	detail, err = programs.Check(options.Program, workspace)
	var refused *toolcrib.ToolError
	if errors.As(err, &refused) {
		fix, err = refused.Hint, errors.New(strings.TrimPrefix(refused.Message, "the "))
	}
	return detail, fix, err
}
