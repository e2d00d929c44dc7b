package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/ignore"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/internal/safefile"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
)

// inWorkspace opens the workspace as a root, which no path or symbolic link can leave. hidden reports
// whether a path is hidden from tools. The workspace of a server is on the server: with one, the names
// of files refer to the current folder, and the files are sent as with --attach.
func (c *chat) inWorkspace() (root *os.Root, hidden func(name string) bool, err error) {
	if c.a.remote != nil {
		root, err = os.OpenRoot(".")
		return root, func(string) bool { return false }, err
	}
	protected, err := c.a.service.Policy.Protection(c.workspace, nil)
	if err != nil {
		return nil, nil, err
	}
	rules, err := protected.Rules()
	if err != nil {
		return nil, nil, err
	}
	root, err = os.OpenRoot(c.workspace)
	return root, func(name string) bool {
		path := filepath.Join(c.workspace, name)
		leads, err := filepath.EvalSymlinks(path)
		return rules.NeverTouched(path) || err == nil && rules.NeverTouched(leads)
	}, err
}

// maxAttached bounds the files that a message may name.
const maxAttached = 16

// named reads the files that a message names by @FILE. A name without a file in the workspace is plain
// text.
func (c *chat) named(text string) ([]toolcrib.OutputFile, error) {
	if !strings.Contains(text, "@") {
		return nil, nil
	}
	root, hidden, err := c.inWorkspace()
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // only read
	var files []toolcrib.OutputFile
	var names []string
	for _, word := range strings.Fields(text) {
		name, ok := strings.CutPrefix(word, "@")
		if !ok || name == "" || hidden(name) {
			continue
		}
		info, err := root.Stat(name)
		for err != nil && name != strings.TrimRight(name, ".,;:!?)") { // punctuation at the end of a sentence
			name = name[:len(name)-1]
			info, err = root.Stat(name)
		}
		if err != nil || !info.Mode().IsRegular() || hidden(name) || slices.Contains(names, name) {
			continue
		}
		if len(files) == maxAttached {
			return nil, fmt.Errorf("at most %d files go with a message", maxAttached)
		}
		data, err := safefile.ReadIn(root, name, toolcrib.MaxFileBytes)
		file, err := attached(filepath.ToSlash(name), data, err)
		if err != nil {
			return nil, fmt.Errorf("@%s %w", name, err)
		}
		files, names = append(files, file), append(names, name)
	}
	if len(names) > 0 {
		c.front.Note("with this message: " + strings.Join(names, ", "))
	}
	return files, nil
}

// maxPaths bounds the paths that are offered, and so those that are checked.
const maxPaths = 200

// completeFile returns the completions of a line that ends with the name of a file in the workspace.
// Names that .gitignore excludes are offered only if there are no others.
func (c *chat) completeFile(before, part string) (lines []string) {
	root, hidden, err := c.inWorkspace()
	if err != nil {
		return nil
	}
	defer root.Close() //nolint:errcheck // only read
	dir, base := filepath.Split(part)
	below := filepath.Clean("./" + dir)
	if info, err := root.Stat(below); err != nil || !info.IsDir() { // opening a pipe would block
		return nil
	}
	folder, err := root.OpenRoot(below)
	if err != nil {
		return nil
	}
	defer folder.Close() //nolint:errcheck // only read
	f, err := folder.Open(".")
	if err != nil {
		return nil
	}
	defer f.Close() //nolint:errcheck // only read
	entries, _ := f.ReadDir(20 * maxPaths)
	top, err := filepath.EvalSymlinks(root.Name())
	if err != nil {
		return nil
	}
	abs := filepath.Join(top, below)
	list := ignore.For(root, top, filepath.ToSlash(below)).Enter(folder, abs)
	var ignored []string
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, base) || strings.HasPrefix(name, ".") && base == "" || guard.Visible(name) != name ||
			strings.ContainsAny(name, " \t") || hidden(dir+name) {
			continue
		}
		line := before + "@" + dir + name
		if e.IsDir() {
			line += string(filepath.Separator)
		}
		if list.Ignores(filepath.Join(abs, name), e.IsDir()) {
			ignored = append(ignored, line)
		} else if lines = append(lines, line); len(lines) == maxPaths {
			break
		}
	}
	if len(lines) == 0 {
		lines = ignored[:min(len(ignored), maxPaths)]
	}
	slices.Sort(lines)
	return lines
}

// custom is a command that is defined by the user or by a project: a text that is sent as a message.
// For a prompt of an MCP server, the server makes the text.
type custom struct {
	whose, text string
	args, does  string // for the list of commands
	prompt      *api.MCPPrompt
}

// customs returns the commands of the user and of the project by their names with a slash: Markdown
// files in the folders of [trust.CommandFolders] and in those of the user, which take precedence. If
// anything in a folder of the project has changed since this user trusted it, its commands are ignored.
// unread lists the folders of the user that cannot be read completely, with the reasons.
func (c *chat) customs() (commands map[string]custom, unread []string) {
	commands = map[string]custom{}
	for _, dir := range ownCommands() {
		folder, err := trust.ReadFolder(dir)
		if err == nil {
			addCustoms(commands, "yours", folder.Files)
		} else if _, missing := os.Lstat(dir); missing == nil {
			unread = append(unread, fmt.Sprintf("no command of %s is used: %v", inHome(dir), err))
		}
	}
	prompts, _ := c.a.api.MCPPrompts(c.who) // errors of a server are reported when it is used
	for _, p := range prompts {
		if name := guard.Visible("/" + p.Server + ":" + p.Name); commands[name].whose == "" {
			commands[name] = custom{whose: "MCP", does: cmp.Or(p.Description, p.Title), prompt: &p}
		}
	}
	if folders, err := env.TrustStore().Check(cmp.Or(c.workspace, "."), trust.CommandFolders()...); err == nil {
		for _, folder := range folders {
			if folder.State == trust.Trusted {
				addCustoms(commands, "project", folder.Content)
			}
		}
	}
	return commands, unread
}

// ownCommands returns the folders of the user's commands, for this program and for others.
func ownCommands() (dirs []string) {
	if own := config.UserFolder(os.Getenv); own != "" {
		dirs = append(dirs, filepath.Join(own, "commands"))
	}
	if home, err := os.UserHomeDir(); err == nil {
		dirs = append(dirs, filepath.Join(home, ".claude", "commands"))
	}
	return dirs
}

// addCustoms adds the commands of a folder under names that are not taken. Subfolders are not part of a
// name: of two files with the same name, the less deep one is used.
func addCustoms(commands map[string]custom, whose string, files map[string][]byte) {
	names := slices.SortedFunc(maps.Keys(files), func(a, b string) int {
		return cmp.Or(cmp.Compare(strings.Count(a, "/"), strings.Count(b, "/")), cmp.Compare(a, b))
	})
	for _, file := range names {
		name, ok := strings.CutSuffix(path.Base(file), ".md")
		if _, known := commands["/"+name]; known || !ok || !customName.MatchString(name) {
			continue
		}
		text := strings.ReplaceAll(string(files[file]), "\r\n", "\n")
		head := ""
		if after, ok := strings.CutPrefix(text, "---\n"); ok { // the front matter
			if about, rest, ok := strings.Cut(after, "\n---\n"); ok {
				head, text = about, rest
			}
		}
		if text = strings.TrimSpace(text); text != "" && len(text) <= maxCustom && utf8.ValidString(text) {
			text = guard.Visible(text)
			commands["/"+name] = custom{
				whose: whose, text: text, args: valueOf(head, "argument-hint"), does: cmp.Or(valueOf(head, "description"), text),
			}
		}
	}
}

// valueOf returns the first line of a value in a front matter, which need not be valid YAML.
func valueOf(head, key string) string {
	_, rest, _ := strings.Cut("\n"+head, "\n"+key+":")
	value, below, _ := strings.Cut(rest, "\n")
	value = strings.TrimSpace(value)
	if strings.Trim(value, "|>-+") == "" && strings.HasPrefix(below, " ") { // a block scalar
		value, _, _ = strings.Cut(strings.TrimSpace(below), "\n")
	}
	if n := len(value); n > 1 && strings.ContainsAny(value[:1], `"'`) && value[n-1] == value[0] {
		value = value[1 : n-1]
	}
	return value
}

// prompt sends the text that an MCP server makes from a prompt. @FILE has no meaning in it.
func (c *chat) prompt(ctx context.Context, p api.MCPPrompt, args string) error {
	if err := c.free(ctx); err != nil {
		return err
	}
	read, err := c.a.api.MCPPrompt(ctx, c.who, p, promptArguments(p, args))
	if err != nil {
		return err
	}
	c.front.Note(fmt.Sprintf("MCP server %s: %s", guard.Visible(p.Server), guard.Visible(read.Text)))
	return c.send(ctx, service.StartRequest{Prompt: read.Text, Files: read.Files, Taint: read.Taint})
}

// promptArguments assigns words to the arguments in order; the last one gets the rest of the text.
func promptArguments(p api.MCPPrompt, text string) map[string]string {
	out := map[string]string{}
	for i, a := range p.Arguments {
		word, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
		if i == len(p.Arguments)-1 {
			word = strings.TrimSpace(text)
		}
		if text = rest; word != "" {
			out[a.Name] = word
		}
	}
	return out
}

var customName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9_.:-]*$`)

// maxCustom bounds the text of a command, in bytes.
const maxCustom = 64 << 10

var argumentMark = lazyregexp.New(`\$(ARGUMENTS|[1-9])`)

// withArguments substitutes arguments in the text of a command: all of them for $ARGUMENTS, single
// words for $1 to $9. Nothing in it is executed: lines for a shell stay text.
func withArguments(text, arguments string) string {
	words := strings.Fields(arguments)
	if !argumentMark.MatchString(text) && arguments != "" {
		text += "\n\n$ARGUMENTS"
	}
	return strings.TrimSpace(argumentMark.ReplaceAllStringFunc(text, func(mark string) string {
		switch n := int(mark[1] - '0'); {
		case mark == "$ARGUMENTS":
			return arguments
		case n <= len(words):
			return words[n-1]
		}
		return ""
	}))
}
