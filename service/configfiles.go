package service

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/service/env"
)

// FileProblems returns the problems of the files that the configuration names, of their content, and of its references.
// A reference that cannot be resolved now may be resolved later.
func (s *Service) FileProblems() (all config.Errors) {
	c := s.Env.Config
	all = c.FindSecrets(s.Env.Resolver())
	look := func(key string, value config.Value, read func(path string) error) {
		path, err := value.Resolve(s.Env.Resolver())
		if err != nil || path == "" {
			return
		}
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = fmt.Errorf("there is no file %s", value)
		case err != nil:
			err = fmt.Errorf("the file %s cannot be read", value)
		case !info.Mode().IsRegular():
			err = fmt.Errorf("%s is not a regular file", value)
		case read != nil:
			err = read(path)
		}
		if err != nil {
			all = append(all, c.ErrorAt(key, err.Error()))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Providers)) {
		at, p := config.JoinKey("providers", name), c.Providers[name]
		opens := func(string) error {
			_, err := s.Models.Adapter(name, p)
			if other := (config.Error{}); errors.As(err, &other) {
				return nil // a missing key only prevents what needs it
			}
			if err != nil { // the error repeats the name
				err = errors.New(strings.TrimPrefix(strings.TrimPrefix(err.Error(), name+": "), "ca_file: "))
			}
			return err
		}
		look(at+".file", p.File, opens)
		look(at+".ca_file", p.CAFile, opens)
	}
	look("bus.credentials", c.Bus.Credentials, nil)
	look("bus.ca_file", c.Bus.CAFile, nil)
	look("bus.tls.cert", c.Bus.TLS.Cert, nil)
	look("bus.tls.key", c.Bus.TLS.Key, nil)
	before := len(all)
	look("server.tls.cert", c.Server.TLS.Cert, nil)
	look("server.tls.key", c.Server.TLS.Key, func(string) error {
		if _, _, err := s.Env.Certificate(); err != nil && len(all) == before {
			return errors.New("it cannot be used with its certificate: " + strings.TrimPrefix(err.Error(), "server.tls: "))
		}
		return nil
	})
	look("team.rubric", c.Team.Rubric, func(path string) error {
		_, err := readRubric(path)
		return err
	})
	return all
}

// PlaceProblems returns the problems of the workspaces, the data folder and the folder of the log. It creates none of
// them.
func (s *Service) PlaceProblems() (all config.Errors) {
	c := s.Env.Config
	add := func(key string, err error, fix string) {
		if err != nil {
			all = append(all, c.ErrorAt(key, strings.TrimPrefix(err.Error(), key+": ")+fix))
		}
	}
	if _, err := c.Workspace.Resolve(s.Env.Resolver()); err == nil {
		_, err = s.Policy.Workspace("", nil)
		add("workspace", err, "")
	}
	if dir, err := c.DataDir.Resolve(config.Resolver{}); err == nil && dir == s.Env.DataDir { // not if --data-dir applies
		add("data_dir", noPlace(dir), "; name a folder that you may write in")
	}
	if file, err := c.Log.File.Resolve(s.Env.Resolver()); err == nil && file != "" {
		add("log.file", noLog(file), "; name a file that you may write")
	}
	return all
}

// noPlace returns an error if a folder can neither be written in nor created.
func noPlace(dir string) error {
	info, err := os.Stat(dir)
	switch up := filepath.Dir(dir); {
	case err != nil && up != dir:
		return noPlace(up)
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder", dir)
	}
	return env.Writable(dir)
}

// noLog returns an error if a file can neither be appended to nor created.
func noLog(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return noPlace(filepath.Dir(file))
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return nil // a device or a pipe
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("%s cannot be written: %w", file, errors.Unwrap(err))
	}
	return f.Close()
}
