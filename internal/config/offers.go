package config

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/yamltree"
)

// Offer makes a tool, a command or an agent a capability that other nodes of the bus may call.
type Offer struct {
	Tool    string `yaml:"tool" default:"" format:"word"`
	Command string `yaml:"command" default:"" format:"word"` // of tools.commands
	Agent   string `yaml:"agent" default:"" format:"word"`

	Description   string   `yaml:"description" default:"" format:"description"`
	Request       JSON     `yaml:"request" null:"true" default:"null" format:"schema"`
	Response      JSON     `yaml:"response" null:"true" default:"null" format:"schema"`
	Stream        JSON     `yaml:"stream" null:"true" default:"null" format:"schema"`
	Params        JSON     `yaml:"params" null:"true" default:"null" format:"object"`
	Trust         string   `yaml:"trust_required" default:"member" enum:"member|trusted|anchor|self"`
	MaxConcurrent int      `yaml:"max_concurrent" default:"16" min:"1" max:"10000"`
	Timeout       Duration `yaml:"timeout" default:"30s" min:"1ms" max:"1h"`
	Idempotent    bool     `yaml:"idempotent" default:"false"`
}

// Target returns the key, tool, command or agent, and the name in it.
func (o Offer) Target() (key, name string) {
	switch {
	case o.Tool != "":
		return "tool", o.Tool
	case o.Command != "":
		return "command", o.Command
	}
	return "agent", o.Agent
}

// ParamValues returns the accepted values of params, by name. A single value is a list of one.
func (o Offer) ParamValues() map[string][]any {
	params, _ := paramValues(o.Params)
	return params
}

func paramValues(text JSON) (params map[string][]any, wrong string) {
	if len(text) == 0 {
		return nil, ""
	}
	read, err := guard.JSONLimits{}.Value([]byte(text))
	all, ok := read.(map[string]any)
	if err != nil || !ok {
		return nil, "must be a mapping of names and values"
	}
	params = map[string][]any{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list, several := all[name].([]any)
		if !several {
			list = []any{all[name]}
		}
		for _, value := range list {
			switch value.(type) {
			case string, bool, json.Number:
			default:
				return nil, yamltree.Quote(name) + ": a value must be a text, a number, true or false, or a list of them"
			}
		}
		params[name] = list
	}
	return params, ""
}

func offerKey(name string) string { return yamltree.JoinKey("bus.offers", name) }

func (d *decoder) checkOffers(c *Config) {
	for _, name := range c.OfferNames() {
		key, o := offerKey(name), c.Bus.Offers[name]
		switch {
		case name == "llm.chat@1.0", name == "llm.chat@2.0":
			if o.Tool+o.Command != "" {
				d.at(key, "an agent serves llm.chat, not a tool or a command")
			}
		case strings.HasPrefix(name, "llm.chat@"):
			d.at(key, "has no such version; valid: llm.chat@1.0, llm.chat@2.0")
		case strings.HasPrefix(name, "llm."), strings.HasPrefix(name, "node."):
			d.at(key, "names that begin with llm. or node. are reserved, except llm.chat@2.0")
		}
		var set []string
		for what, named := range map[string]string{"tool": o.Tool, "command": o.Command, "agent": o.Agent} {
			if named != "" {
				set = append(set, what)
			}
		}
		if slices.Sort(set); len(set) != 1 {
			have := "none is written"
			if len(set) > 1 {
				have = strings.Join(set, " and ") + " are written"
			}
			d.at(key, "needs exactly one of tool, command and agent; %s", have)
		}
		if _, known := c.Tools.Commands[o.Command]; !known && o.Command != "" && !d.Failed("tools.commands") {
			d.at(key+".command", "%s", unknown("command", o.Command, slices.Sorted(maps.Keys(c.Tools.Commands))))
		}
		if _, known := c.Agents[o.Agent]; !known && o.Agent != "" && !d.Failed("agents") {
			d.at(key+".agent", "%s", unknown("agent", o.Agent, c.AgentNames()))
		}
		if _, wrong := paramValues(o.Params); wrong != "" {
			d.at(key+".params", "%s", wrong)
		}
	}
}

// OfferNames returns the names of the offers, sorted.
func (c *Config) OfferNames() []string { return slices.Sorted(maps.Keys(c.Bus.Offers)) }

// OfferError returns an error about a key of an offer, or the whole offer if key is "", with its position.
func (c *Config) OfferError(name, key, message string) Error {
	path := offerKey(name)
	if key != "" {
		path += "." + key
	}
	return c.ErrorAt(path, message)
}
