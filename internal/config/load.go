package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"

	"github.com/toolcrib/toolcrib/internal/safefile"
	"github.com/toolcrib/toolcrib/internal/standin"
	"github.com/toolcrib/toolcrib/internal/yamltree"
)

// FileName is the name of a configuration file.
const FileName = "toolcrib.yaml"

// EnvFile is the environment variable that names a configuration.
const EnvFile = "TOOLCRIB_CONFIG"

// Origin is how a configuration was found, which decides whether it needs trust.
type Origin string

const (
	OriginNone Origin = ""     // no file: every key has its default
	OriginFlag Origin = "flag" // --config
	OriginEnv  Origin = "env"  // $TOOLCRIB_CONFIG
	OriginCwd  Origin = "cwd"  // ./toolcrib.yaml, which is used only if it is trusted
	OriginUser Origin = "user" // the user's own configuration folder
)

// Source is a configuration that was found.
type Source struct {
	Path   string // path for messages, or "" without a file
	Origin Origin
	// Own is the user's own configuration, over which that of a project is laid, or "".
	Own string
	// Folder is the absolute path of the project's folder. If "", it is the current folder.
	Folder string
}

// Files returns the paths of all files, nearest last.
func (s Source) Files() []string {
	return slices.DeleteFunc([]string{s.Own, s.Path}, func(path string) bool { return path == "" })
}

// NeedsTrust reports whether the file may be used only after the user has trusted its content.
func (s Source) NeedsTrust() bool { return s.Origin == OriginCwd }

// Find returns the configuration that flag, which is the value of --config, or $TOOLCRIB_CONFIG
// names, or else ./toolcrib.yaml over the file in the user's own folder. A file that is named by
// flag or the variable need not exist, so that a typing error does not select another
// configuration. If getenv is nil, os.Getenv is used.
func Find(flag string, getenv func(string) string) Source { return FindIn("", flag, getenv) }

// FindIn is [Find] for a project in another folder than the current one.
func FindIn(folder, flag string, getenv func(string) string) Source {
	if getenv == nil {
		getenv = os.Getenv
	}
	if flag != "" {
		return Source{Path: flag, Origin: OriginFlag, Folder: folder}
	}
	if named := getenv(EnvFile); named != "" {
		return Source{Path: named, Origin: OriginEnv, Folder: folder}
	}
	own := Own(getenv)
	own.Folder = folder
	file := filepath.Join(folder, FileName)
	if standin.Exists(file) && !sameFolder(cmp.Or(folder, "."), UserFolder(getenv)) {
		return Source{Path: file, Origin: OriginCwd, Own: own.Path, Folder: folder}
	}
	return own
}

// Own returns the configuration in the user's own folder, or one without a file.
func Own(getenv func(string) string) Source {
	if folder := UserFolder(getenv); folder != "" {
		if file := filepath.Join(folder, FileName); standin.Exists(file) {
			return Source{Path: file, Origin: OriginUser}
		}
	}
	return Source{}
}

// sameFolder reports whether a and b are the same folder: the configuration in the user's own
// folder needs no trust, also if toolcrib is started there.
func sameFolder(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil || !filepath.IsAbs(b) {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// UserFolder returns the user's own configuration folder, or "" if it is unknown. As the XDG
// specification says, $XDG_CONFIG_HOME is ignored unless it is absolute.
func UserFolder(getenv func(string) string) string {
	if folder := getenv("XDG_CONFIG_HOME"); filepath.IsAbs(folder) {
		return filepath.Join(folder, "toolcrib")
	}
	if home := getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".config", "toolcrib")
	}
	return ""
}

// Load reads a configuration. If it needs trust, Load first calls trusted with the exact content
// to be loaded, and returns its error; if trusted is nil, such a configuration is refused. Without
// a file every key has its default. Other errors are [Errors].
func Load(source Source, trusted func(path string, content []byte) error) (*Config, error) {
	layers, errs := source.read()
	switch {
	case errs != nil:
		return nil, errs
	case source.NeedsTrust() && trusted == nil:
		return nil, Errors{{File: source.Path, Message: "is not trusted"}}
	case source.NeedsTrust():
		if err := trusted(source.Path, layers[len(layers)-1].data); err != nil {
			return nil, err
		}
	}
	c, errs := parse(layers)
	if len(errs) > 0 {
		return nil, errs
	}
	return c, nil
}

// Examine reads a configuration without checking trust, and returns all errors in it, by line. If
// there are errors, the configuration has only the values that could be read and must not be
// used; it is nil if nothing could be read.
func Examine(source Source) (*Config, Errors) {
	layers, errs := source.read()
	if errs != nil {
		return nil, errs
	}
	return parse(layers)
}

// Changes is [Config.Changes] of a project's configuration with this content. It returns nil if one
// of the files has errors.
func Changes(file string, content []byte, own Source) []string {
	layers, errs := own.read()
	if errs != nil || own.Path != "" && sameFolder(filepath.Dir(file), filepath.Dir(own.Path)) {
		return nil
	}
	if own.Path == "" {
		layers = nil
	}
	c, _ := parse(append(layers, layer{file: file, data: content, project: true}))
	if c == nil {
		return nil
	}
	return c.changes
}

// layer is one file of a configuration.
type layer struct {
	file    string // path as the user gave it, or "" without a file
	data    []byte
	project bool   // found in the current folder
	started string // the folder of the project, or "" for the current folder
	folder  string
	hash    string
	root    *yamltree.Node
}

func (s Source) read() (layers []layer, errs Errors) {
	for _, file := range s.Files() {
		data, err := ReadFile(file)
		if err != nil {
			errs = append(errs, Error{File: file, Message: err.Error()})
		}
		layers = append(layers, layer{file: file, data: data, project: file == s.Path && s.NeedsTrust()})
	}
	if layers == nil {
		layers = []layer{{}}
	}
	layers[0].started = s.Folder
	return layers, errs
}

// Default returns the configuration without a file.
func Default() *Config {
	c, errs := parse([]layer{{}})
	if len(errs) > 0 {
		panic(errs) // a mistake in Config's tags, found by every test
	}
	return c
}

// Parse parses a configuration. file is its name in messages; relative paths in it are relative to
// the folder of file. The error is [Errors] with all errors, by line.
func Parse(file string, data []byte) (*Config, error) {
	c, errs := parse([]layer{{file: file, data: data}})
	if len(errs) > 0 {
		return nil, errs
	}
	return c, nil
}

// parse parses a configuration as far as possible. The nearest layer is the last.
func parse(layers []layer) (*Config, Errors) {
	d := newDecoder(layers[len(layers)-1].file)
	for i := range layers {
		if problem := layers[i].parse(d); problem != nil {
			return nil, problem
		}
	}
	nearest := layers[len(layers)-1]
	c, root := &Config{layers: layers, nodes: d.nodes}, nearest.root
	if nearest.project {
		for _, l := range layers {
			l.alone(d)
		}
		if len(d.Errors) == 0 {
			root = c.merge(d)
		}
	}
	known := len(d.Errors)
	d.index(root)
	d.Decode(root, c)
	d.defaultAgent(c)
	if nearest.project && known > 0 {
		d.Errors = d.Errors[:known] // without them, the two files cannot be combined
	} else {
		d.check(c)
	}
	c.texts = sync.OnceValue(c.readTexts)
	return c, Errors(d.Errors).Sorted()
}

// merge combines the files of a project and of its user.
func (c *Config) merge(d *decoder) *yamltree.Node {
	project := c.layers[len(c.layers)-1].root
	user := &yamltree.Node{Kind: yamltree.Map}
	if len(c.layers) > 1 {
		user = c.layers[0].root
	}
	var m merger
	m.floors(user, project)
	root := m.merge(user, project, yamltree.Field{Type: reflect.TypeFor[Config]()})
	root.SetPath("")
	d.Add(m.errs...)
	c.changes = m.changes
	return root
}

// alone adds the errors of the file that do not depend on another.
func (l *layer) alone(d *decoder) {
	part := newDecoder(l.file)
	part.Folders, part.Partial = d.Folders, true
	part.Decode(l.root, &Config{})
	d.Add(part.Errors...)
}

// parse reads the tree of the file. It returns errors if it cannot be decoded.
func (l *layer) parse(d *decoder) Errors {
	if l.started != "" {
		d.Folders[""] = l.started
	}
	if l.file != "" {
		whole, err := filepath.Abs(l.file)
		if err != nil {
			return Errors{{File: l.file, Message: "the current folder is unknown"}}
		}
		sum := sha256.Sum256(l.data)
		l.folder, l.hash = filepath.Dir(whole), "sha256:"+hex.EncodeToString(sum[:])
		d.Folders[l.file] = l.folder
	}
	root, errs := yamltree.Parse(l.data, limits())
	for i := range errs {
		errs[i].File = l.file
	}
	d.Add(errs...)
	switch {
	case root == nil:
		return Errors(d.Errors).Sorted()
	case root.Kind == yamltree.Null:
		root.Kind = yamltree.Map
	case root.Kind != yamltree.Map:
		root.File = l.file
		d.Errorf(root, "must be a mapping of keys, not %s", root.Kind)
		return Errors(d.Errors).Sorted()
	}
	root.SetFile(l.file)
	l.root = root
	return nil
}

// defaultAgent adds the agent default if it is not written.
func (d *decoder) defaultAgent(c *Config) {
	if _, ok := c.Agents[DefaultAgent]; ok || c.Agents == nil {
		return
	}
	var agent Agent
	d.Absent("agents."+DefaultAgent, &agent)
	c.Agents[DefaultAgent] = agent
}

// File returns the name of the nearest file as the user gave it, or "" without a file.
func (c *Config) File() string { return c.nearest().file }

// nearest returns the layer that is nearest.
func (c *Config) nearest() layer {
	if len(c.layers) == 0 {
		return layer{}
	}
	return c.layers[len(c.layers)-1]
}

// Hash returns the hash of the content as sha256:…, or "" without a file.
func (c *Config) Hash() string {
	if len(c.layers) < 2 {
		return c.nearest().hash
	}
	var all []byte
	for _, l := range c.layers {
		all = append(all, l.hash...)
	}
	sum := sha256.Sum256(all)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Files returns the names of the files as the user gave them, with the hashes of their contents.
func (c *Config) Files() iter.Seq2[string, string] {
	return func(yield func(file, hash string) bool) {
		for _, l := range c.layers {
			if l.file != "" && !yield(l.file, l.hash) {
				return
			}
		}
	}
}

// ProtectedNotes returns the names of the notes of all files: those of the user stay protected.
func (c *Config) ProtectedNotes() []string {
	names := slices.Clone(c.Notes.Files)
	for _, l := range c.layers {
		if files := entryOf(entryOf(l.root, "notes"), "files"); files != nil {
			for _, item := range files.Items {
				names = append(names, item.Text)
			}
		}
	}
	return names
}

// Changes returns how the project's configuration differs from the user's, a text for each key. They
// contain no secrets.
func (c *Config) Changes() []string { return c.changes }

// ProjectSets reports whether the value of a key comes from the configuration of a project.
func (c *Config) ProjectSets(path string) bool {
	n, nearest := c.nodes[path], c.nearest()
	return n != nil && nearest.project && n.File == nearest.file
}

// Position returns where a key is written, as "toolcrib.yaml:31", or "default".
// Key paths are those of error messages: agents.default.tools, rules[0].then,
// models["gpt-5.1"].price. A key that an entry leaves out is "default".
func (c *Config) Position(path string) string {
	if n := c.nodes[path]; n != nil {
		return yamltree.Position(n.File, n.Line)
	}
	return "default"
}

// Place returns the line and column in the file of a character of a key's text, given its line and
// column in the text, or 0 and 0 if they are unknown. All of them start at 1.
func (c *Config) Place(path string, line, column int) (fileLine, fileColumn int) {
	if n := c.nodes[path]; n != nil {
		return n.Place(line, column)
	}
	return 0, 0
}

// ErrorAt returns an error about a key, with its position if it is written in the file.
func (c *Config) ErrorAt(path, message string) Error {
	e := Error{File: c.File(), Key: path, Message: message}
	if n := c.nodes[path]; n != nil {
		e.File, e.Line, e.Column = n.File, n.Line, n.Column
	}
	return e
}

// IsSet reports whether the key is written in the file.
func (c *Config) IsSet(path string) bool { return c.nodes[path] != nil }

// ReadFile reads a regular file of at most [MaxBytes]. It never blocks on a pipe or a device. The
// text of an error is to be written after the name of the file.
func ReadFile(file string) ([]byte, error) { return safefile.Read(file, MaxBytes) }

// JoinKey appends a key to a key path, as [Config.Position] reads it.
func JoinKey(path, key string) string { return yamltree.JoinKey(path, key) }
