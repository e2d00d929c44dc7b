package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/internal/mcpfiles"
	"github.com/toolcrib/toolcrib/internal/safefile"
	"github.com/toolcrib/toolcrib/mcp"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/policy"
)

// mcpAdded is the result for one server in the form of --json.
type mcpAdded struct {
	Name    string   `json:"name"`
	File    string   `json:"file"`
	Added   bool     `json:"added"`
	Secrets []string `json:"secrets"` // names of secrets to set
	Notes   []string `json:"notes"`
}

func (a *app) mcpAddCommand(cmd *cobra.Command) {
	var from string
	var one mcpfiles.Server
	var env, headers []string
	cmd.Flags().Func("from", "", filled(&from))
	cmd.Flags().Func("url", "", filled(&one.Entry.URL))
	cmd.Flags().StringArrayVar(&env, "env", nil, "")
	cmd.Flags().StringArrayVar(&headers, "header", nil, "")
	sse := cmd.Flags().Bool("sse", false, "")
	a.answering(cmd, a.knowing, func(c call) (any, func(), error) {
		names := c.args
		if dash := cmd.ArgsLenAtDash(); dash >= 0 {
			names, one.Entry.Args = c.args[:dash], c.args[dash:]
		}
		if len(one.Entry.Args) > 0 {
			one.Entry.Command, one.Entry.Args = one.Entry.Args[0], one.Entry.Args[1:]
		}
		if *sse {
			one.Entry.Type = "sse"
		}
		given := one.Entry.Command != "" || one.Entry.URL != "" || len(env)+len(headers) > 0 || *sse
		var servers []mcpfiles.Server
		var err error
		switch {
		case from != "" && given:
			err = usagef("--from: the servers are those of the file; give nothing else but names")
		case from != "":
			servers, err = a.serversFrom(from, names)
		case len(names) != 1:
			err = usagef("give one NAME, and a program after -- or an address with --url\nSee: %s --help", cmd.CommandPath())
		case (one.Entry.Command == "") == (one.Entry.URL == ""):
			err = usagef("give either a program after -- or an address with --url\nSee: %s --help", cmd.CommandPath())
		default:
			one.Name = names[0]
			one.Entry.Env, err = pairs("env", "=", env)
			if err == nil {
				one.Entry.Headers, err = pairs("header", ":", headers)
			}
			one.Conceal()
			servers = append(servers, one)
		}
		if err != nil {
			return nil, nil, err
		}
		added, err := a.addServers(c, servers, from != "")
		return added, func() { a.showAdded(added) }, err
	})
}

// pairs parses the values of a flag of the form name, separator, value.
func pairs(flag, sep string, list []string) (map[string]string, error) {
	out := map[string]string{}
	for _, text := range list {
		name, value, ok := strings.Cut(text, sep)
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, usagef("--%s: must be NAME%sVALUE", flag, sep)
		}
		out[name] = strings.TrimSpace(value)
	}
	return out, nil
}

// serversFrom reads the servers of a file, or only those with the given names.
func (a *app) serversFrom(path string, names []string) ([]mcpfiles.Server, error) {
	whole, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	f, err := a.input(path)
	if err != nil {
		return nil, usagef("--from: %v", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, config.MaxBytes+1))
	if err == nil && len(data) > config.MaxBytes {
		err = fmt.Errorf("is larger than %d bytes", config.MaxBytes)
	}
	var servers []mcpfiles.Server
	if err == nil {
		servers, err = mcpfiles.Read(whole, data, os.Getenv)
	}
	if err != nil {
		return nil, usagef("--from: %s: %v", policy.PathText(path), err)
	}
	for _, name := range names {
		if !slices.ContainsFunc(servers, func(s mcpfiles.Server) bool { return s.Name == name }) {
			return nil, usagef("--from: %s has no server %q", policy.PathText(path), name)
		}
	}
	return slices.DeleteFunc(servers, func(s mcpfiles.Server) bool {
		return len(names) > 0 && !slices.Contains(names, s.Name)
	}), nil
}

// addServers writes servers into the configuration: all of them or, if some is set, those that can be
// added.
func (a *app) addServers(c call, servers []mcpfiles.Server, some bool) ([]mcpAdded, error) {
	out := []mcpAdded{}
	err := a.editConfig(c, func(file string, text []byte) ([]byte, error) {
		for _, s := range servers {
			one := mcpAdded{Name: s.Name, File: file, Added: true}
			one.Secrets, one.Notes = append([]string{}, s.Secrets...), append([]string{}, s.Notes...)
			if gets := environmentOf(&s.Entry); some && len(gets) > 0 {
				one.Notes = append(one.Notes, fmt.Sprintf("%s gets %s from the environment", cmp.Or(s.Entry.URL, s.Entry.Command),
					strings.Join(gets, ", ")))
			}
			after := text
			err, name := s.Err, s.Name
			if err == nil {
				name, err = mcp.CleanName(s.Name)
			}
			if err == nil && some {
				err = notStored(c, s.Secrets)
			}
			if err == nil {
				after, err = config.AddMCPServer(file, text, s.Name, s.Entry)
				if some && err != nil && toolcrib.CodeOf(err) != toolcrib.CodeConflict && name != s.Name {
					// Tool names use the same form: names in a configuration have no spaces.
					one.Name = name
					after, err = config.AddMCPServer(file, text, name, s.Entry)
				}
			}
			switch {
			case err == nil:
				text = after
			case !some && toolcrib.CodeOf(err) == toolcrib.CodeConflict:
				return nil, err
			case !some:
				return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "%v", err)
			default:
				one.Added, one.Notes = false, append(one.Notes, err.Error())
			}
			out = append(out, one)
		}
		return text, nil
	})
	return out, err
}

var environmentRef = lazyregexp.New(`\$\{env:(\w+)\}`)

// environmentOf returns the names of the environment variables that a server receives.
func environmentOf(e *config.MCPEntry) (names []string) {
	text, _ := json.Marshal(e) // strings cannot fail to encode
	for _, m := range environmentRef.FindAllSubmatch(text, -1) {
		names = append(names, "$"+string(m[1]))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// notStored returns an error if a secret that a file names is already stored. The file chose the name
// and must not get access to a value stored for another purpose.
func notStored(c call, names []string) error {
	for _, name := range names {
		if _, err := c.Env.Secret(name); !errors.Is(err, toolcrib.ErrNotFound) {
			return fmt.Errorf("it would get the secret %s, which is stored already; if it should, write it into the "+
				"configuration yourself", name)
		}
	}
	return nil
}

func (a *app) showAdded(added []mcpAdded) {
	for _, one := range added {
		if !one.Added {
			a.says(one.Name, "not added: "+one.Notes[len(one.Notes)-1])
			continue
		}
		a.says(one.Name, "added to "+policy.PathText(one.File))
		for _, note := range one.Notes {
			a.notice("%s: %s", guard.Visible(one.Name), guard.Visible(note))
		}
		for _, secret := range one.Secrets {
			a.notice("%s needs a secret: %s secret set %s", guard.Visible(one.Name), a.self(), secret)
		}
	}
	if slices.ContainsFunc(added, func(one mcpAdded) bool { return one.Added }) {
		a.notice("nothing was started; to see what is offered: %s mcp review", a.self())
	}
}

func (a *app) mcpRemoveCommand(cmd *cobra.Command) {
	a.answering(cmd, a.knowing, func(c call) (any, func(), error) {
		removed := map[string]string{"name": c.arg()}
		err := a.editConfig(c, func(file string, text []byte) ([]byte, error) {
			removed["file"] = file
			text, err := config.RemoveMCPServer(file, text, c.arg())
			if err != nil {
				err = toolcrib.Errorf(toolcrib.CodeNotFound, "%v", err)
			}
			return text, err
		})
		return removed, func() { a.says(c.arg(), "removed from "+policy.PathText(removed["file"])) }, err
	})
}

// editConfig changes the configuration in use, or creates one in the user's own folder. If the
// configuration requires trust, it is trusted as with init, because its user has just given its
// content.
func (a *app) editConfig(c call, edit func(file string, text []byte) ([]byte, error)) error {
	if _, err := env.Administrator(c.who); err != nil {
		return err
	}
	file := a.source().Path
	if own := config.UserFolder(os.Getenv); file == "" && own != "" {
		file = filepath.Join(own, config.FileName)
	}
	if file == "" {
		return errors.New("there is no folder for a configuration: $HOME is not set")
	}
	path, mode := file, os.FileMode(0o600)
	if real, err := filepath.EvalSymlinks(file); err == nil {
		path = real
	}
	before, err := safefile.Read(path, config.MaxBytes)
	switch info, statErr := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	case statErr == nil:
		mode = info.Mode().Perm()
	}
	if err != nil {
		return fmt.Errorf("%s %w", policy.PathText(file), err)
	}
	after, err := edit(file, before)
	if err != nil || string(after) == string(before) {
		return err
	}
	if err := safefile.Replace(path, ".toolcrib-", after); err != nil {
		return err
	}
	if err := os.Chmod(path, mode); err != nil {
		return err
	}
	return a.trustWritten(c, file, after)
}
