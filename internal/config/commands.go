package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/argv"
	"github.com/toolcrib/toolcrib/internal/yamltree"
)

// Command makes a tool of a program.
type Command struct {
	Description string    `yaml:"description" default:""`
	Parameters  JSON      `yaml:"parameters" null:"true" default:"null" format:"schema"`
	Command     []Word    `yaml:"command" required:"true" max:"1000" words:"true"`
	SHA256      string    `yaml:"sha256" default:"" format:"sha256"`
	Stdin       string    `yaml:"stdin" default:"none" enum:"none|json"`
	Dashes      bool      `yaml:"dashes" layers:"true|false" default:"false"`
	Effect      string    `yaml:"effect" layers:"read_only|idempotent_write|non_idempotent_write" default:"non_idempotent_write" enum:"read_only|idempotent_write|non_idempotent_write"`
	Network     bool      `yaml:"network" layers:"true|false" default:"false"`
	Timeout     *Duration `yaml:"timeout" min:"1ms" max:"24h"`
	Untrusted   *bool     `yaml:"untrusted" layers:"false|true"`
}

// Word is an argument in a command line.
type Word string

// DecodeYAML decodes a text, or {args.NAME} without quotes, which YAML reads as a mapping.
func (w *Word) DecodeYAML(d *yamltree.Decoder, n *yamltree.Node, f yamltree.Field) {
	switch text := wordOf(n); {
	case text != "":
		*w = Word(text)
	case !d.IsText(n, f):
	case checkWritten(f, n.Text) != "":
		d.Errorf(n, "%s", checkWritten(f, n.Text))
	default:
		*w = Word(n.Text)
	}
}

// wordOf returns {args.NAME} for the mapping that YAML makes of it without quotes, and otherwise "".
func wordOf(n *yamltree.Node) string {
	if n.Kind != yamltree.Map || len(n.Entries) != 1 || n.Entries[0].Value.Kind != yamltree.Null ||
		!strings.HasPrefix(n.Entries[0].Key, "args.") {
		return ""
	}
	return "{" + n.Entries[0].Key + "}"
}

// ran describes a command for the review of a project.
func ran(n *yamltree.Node) string {
	var words []string
	for _, item := range itemsOf(entryOf(n, "command")) {
		text := wordOf(item)
		if text == "" {
			text = quote(item.Text)
		}
		words = append(words, text)
	}
	text := strings.Join(words, " ")
	if network := entryOf(n, "network"); network != nil && network.IsTrue() {
		text += ", with the network"
	}
	return fmt.Sprintf("%s (line %d)", guard.Clip(text, 200), n.Line)
}

func itemsOf(n *yamltree.Node) []*yamltree.Node {
	if n == nil {
		return nil
	}
	return n.Items
}

// Words returns the command line as it is written.
func (c Command) Words() []string {
	words := make([]string, len(c.Command))
	for i, w := range c.Command {
		words[i] = string(w)
	}
	return words
}

// IsUntrusted reports whether the results are untrusted data.
func (c Command) IsUntrusted() bool {
	if c.Untrusted != nil {
		return *c.Untrusted
	}
	return c.Network
}

// Program returns the program of tools.commands.NAME: its name, or an absolute path. A relative path is relative to the
// folder of the file in which it is written.
func (c *Config) Program(name string) (string, error) {
	program, base := string(c.Tools.Commands[name].Command[0]), ""
	if !strings.ContainsRune(program, '/') && !strings.ContainsRune(program, filepath.Separator) {
		return program, nil
	}
	if n := c.nodes[commandKey(name)+".command"]; n != nil {
		for _, l := range c.layers {
			if l.file == n.File {
				base = l.folder
			}
		}
	}
	return absolute(program, base)
}

func commandKey(name string) string { return yamltree.JoinKey("tools.commands", name) }

// BuiltInTool returns the built-in tool that a name differs from at most in letter case, or "". It also knows the names
// of tools that a configuration, a bus or a server has to make available.
func BuiltInTool(name string) string {
	for known := range strings.FieldsSeq(`
		read_file list_directory search_files write_file edit_file exec_shell read_output stop_process spawn
		memory_read memory_write web_fetch web_search message update_plan find_tools collect_result verify read_result
		read_skill ask_user fetch_logs get_env get_runtime_info list_users list_groups read_asset_meta get_env_raw
		get_runtime_info_raw list_users_raw describe_tables get_tree search_corpus list_corpora translate
		list_marketplace find_neighbour describe_image transcribe_audio market_post chat_send list_mcp_resources
		read_mcp_resource`) {
		if strings.EqualFold(name, known) {
			return known
		}
	}
	return ""
}

func (d *decoder) checkCommands(c *Config) {
	names := slices.Sorted(maps.Keys(c.Tools.Commands))
	for i, name := range names {
		key, command := commandKey(name), c.Tools.Commands[name]
		same := func(other string) bool { return strings.EqualFold(name, other) }
		if known := BuiltInTool(name); known != "" {
			d.at(key, "%s is a built-in tool; use another name", known)
		}
		if before := slices.IndexFunc(names[:i], same); before >= 0 {
			d.at(key, "differs from %s only in letter case; use another name", names[before])
		}
		for bound := range c.Tools.Bound {
			if same(bound) {
				d.at(key, "tools.bound has the tool %s already; use another name", bound)
			}
		}
		if command.Network && command.Effect == "read_only" {
			d.at(key+".network", "true is not read_only: what the program sends leaves this machine; write another effect")
		}
		if d.Failed(key+".command") || d.Failed(key+".parameters") {
			continue
		}
		_, problems := argv.Parse(command.Words(), []byte(command.Parameters), command.Stdin == "json")
		for _, p := range problems {
			at := key + ".parameters"
			if p.Word >= 0 && len(command.Command) > 0 {
				at = yamltree.JoinIndex(key+".command", p.Word)
			} else if p.Word >= 0 {
				at = key + ".command"
			}
			d.at(at, "%s", p.Message)
		}
	}
}
