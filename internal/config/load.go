package config

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
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
}

// NeedsTrust reports whether the file may be used only after the user has trusted its content.
func (s Source) NeedsTrust() bool { return s.Origin == OriginCwd }

// Find returns the first configuration of flag, which is the value of --config, $TOOLCRIB_CONFIG,
// ./toolcrib.yaml, and the file in the user's own folder. A file that is named by flag or the
// variable need not exist, so that a typing error does not select another configuration. If
// getenv is nil, os.Getenv is used.
func Find(flag string, getenv func(string) string) Source {
	if getenv == nil {
		getenv = os.Getenv
	}
	if flag != "" {
		return Source{Path: flag, Origin: OriginFlag}
	}
	if named := getenv(EnvFile); named != "" {
		return Source{Path: named, Origin: OriginEnv}
	}
	own := ""
	if folder := UserFolder(getenv); folder != "" {
		own = filepath.Join(folder, FileName)
	}
	switch {
	case standin.Exists(FileName) && !sameFolder(".", filepath.Dir(own)):
		return Source{Path: FileName, Origin: OriginCwd}
	case own != "" && standin.Exists(own):
		return Source{Path: own, Origin: OriginUser}
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
	data, errs := source.read()
	switch {
	case errs != nil:
		return nil, errs
	case source.NeedsTrust() && trusted == nil:
		return nil, Errors{{File: source.Path, Message: "is not trusted"}}
	case source.NeedsTrust():
		if err := trusted(source.Path, data); err != nil {
			return nil, err
		}
	}
	c, errs := source.parse(data)
	if len(errs) > 0 {
		return nil, errs
	}
	return c, nil
}

// Examine reads a configuration without checking trust, and returns all errors in it, by line. If
// there are errors, the configuration has only the values that could be read and must not be
// used; it is nil if nothing could be read.
func Examine(source Source) (*Config, Errors) {
	data, errs := source.read()
	if errs != nil {
		return nil, errs
	}
	return source.parse(data)
}

// parse is [parse] for a source. A configuration that needs trust cannot set tools.shell.unconfined.
func (s Source) parse(data []byte) (*Config, Errors) {
	c, errs := parse(s.Path, data)
	const key = "tools.shell.unconfined"
	if c != nil && s.NeedsTrust() && c.IsSet(key) {
		errs = append(errs, c.ErrorAt(key, "cannot be set in the configuration of a folder; write it into your own, or name "+
			"this file with --config")).Sorted()
	}
	return c, errs
}

func (s Source) read() ([]byte, Errors) {
	if s.Origin == OriginNone {
		return nil, nil
	}
	data, err := ReadFile(s.Path)
	if err != nil {
		return nil, Errors{{File: s.Path, Message: err.Error()}}
	}
	return data, nil
}

// Default returns the configuration without a file.
func Default() *Config {
	c, errs := parse("", nil)
	if len(errs) > 0 {
		panic(errs) // a mistake in Config's tags, found by every test
	}
	return c
}

// Parse parses a configuration. file is its name in messages; relative paths in it are relative to
// the folder of file. The error is [Errors] with all errors, by line.
func Parse(file string, data []byte) (*Config, error) {
	c, errs := parse(file, data)
	if len(errs) > 0 {
		return nil, errs
	}
	return c, nil
}

// parse parses a configuration as far as possible. file is "" without a file.
func parse(file string, data []byte) (*Config, Errors) {
	base, hash := "", ""
	if file != "" {
		whole, err := filepath.Abs(file)
		if err != nil {
			return nil, Errors{{File: file, Message: "the current folder is unknown"}}
		}
		sum := sha256.Sum256(data)
		base, hash = filepath.Dir(whole), "sha256:"+hex.EncodeToString(sum[:])
	}
	root, errs := yamltree.Parse(data, limits())
	d := newDecoder(file, base)
	d.Add(errs...)
	c := &Config{file: file, base: base, hash: hash, nodes: d.nodes}
	switch {
	case root == nil:
		return nil, Errors(d.Errors).Sorted()
	case root.Kind == yamltree.Null:
		d.Decode(&yamltree.Node{Kind: yamltree.Map, Line: root.Line}, c)
	case root.Kind == yamltree.Map:
		d.index(root)
		d.Decode(root, c)
	default:
		d.Errorf(root, "must be a mapping of keys, not %s", root.Kind)
		return nil, Errors(d.Errors).Sorted()
	}
	d.defaultAgent(c)
	d.check(c)
	c.texts = sync.OnceValue(c.readTexts)
	return c, Errors(d.Errors).Sorted()
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

// File returns the name of the file as the user gave it, or "" without a file.
func (c *Config) File() string { return c.file }

// Hash returns the hash of the content as sha256:…, or "" without a file.
func (c *Config) Hash() string { return c.hash }

// Folder returns the absolute folder of the file, or "" without a file.
func (c *Config) Folder() string { return c.base }

// Position returns where a key is written, as "toolcrib.yaml:31", or "default".
// Key paths are those of error messages: agents.default.tools, rules[0].then,
// models["gpt-5.1"].price. A key that an entry leaves out is "default".
func (c *Config) Position(path string) string {
	if n := c.nodes[path]; n != nil {
		return yamltree.Position(c.file, n.Line)
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
	e := Error{File: c.file, Key: path, Message: message}
	if n := c.nodes[path]; n != nil {
		e.Line, e.Column = n.Line, n.Column
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
