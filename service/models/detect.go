package models

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/provider/ollama"
	"github.com/toolcrib/toolcrib/provider/wire"
	"github.com/toolcrib/toolcrib/service/env"
)

// How long an Ollama is waited for that nobody has configured, and how many of its
// models are asked about. Where nothing listens it takes no time.
const (
	ollamaPatience = time.Second
	ollamaLooked   = 16
)

// Detect returns the model to use where none is configured. An Ollama that is not configured is used only after a
// person has confirmed it. If ask is set, they may be asked now.
func (s *Models) Detect(ask bool) config.Detected {
	more := ""
	set, at, configured := s.ollamaAsked()
	found := s.env.Config.DetectModel(os.Getenv, at, func() ([]string, error) {
		names, why, err := ollamaModels(set)
		var foreign *foreignListenerError
		switch {
		case errors.As(err, &foreign):
			return nil, foreign
		case err != nil || len(names) == 0:
			return nil, nil // nothing answers, or something else does
		case !configured:
			err = s.confirmServer(set.BaseURL, names[0], ask)
		}
		more = why
		return names, err
	})
	if found.Model.Provider.Type == config.TypeOllama {
		found.Why += more
	}
	return found
}

// ollamaAsked returns where to look for an Ollama, the text that names that place in notices, and whether it is
// configured.
func (s *Models) ollamaAsked() (set wire.Options, at string, configured bool) {
	if p, ok := s.env.Config.Providers[config.TypeOllama]; ok && p.Type == config.TypeOllama && !p.BaseURL.IsEmpty() {
		if set, err := s.wire(config.TypeOllama, p); err == nil {
			return set, "providers.ollama.base_url", true
		}
	}
	address, _ := addressFromEnv(config.TypeOllama)
	address = cmp.Or(address, s.env.OllamaAt, config.OllamaAddress)
	return wire.Options{BaseURL: address, Proxy: wire.ProxyNone, Admit: admitListener}, env.PlaceOf(address), false
}

// ollamaModels returns the models of an Ollama, the preferred one first: the newest that supports tools, or else
// the newest that can chat.
func ollamaModels(set wire.Options) (names []string, why string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), ollamaPatience)
	defer cancel()
	set.ConnectTimeout, set.FirstTokenTimeout = ollamaPatience, ollamaPatience
	m, err := ollama.New(set)
	if err != nil {
		return nil, "", err
	}
	defer m.Close()
	names, err = m.ListModels(ctx)
	if err != nil || len(names) == 0 {
		return nil, "", err
	}
	chosen := max(slices.IndexFunc(names, canChat), 0)
	takes := slices.IndexFunc(names[:min(len(names), ollamaLooked)], func(name string) bool {
		info, err := m.Show(ctx, name)
		return err == nil && info.Capabilities && info.Tools
	})
	if takes >= 0 {
		chosen = takes
	}
	first := names[chosen]
	names = append([]string{first}, slices.Delete(slices.Clone(names), chosen, chosen+1)...)
	if len(names) == 1 {
		return names, "", nil
	}
	text := fmt.Sprintf("; it is the newest of its %d models", len(names))
	if takes >= 0 {
		text += " that takes tools"
	}
	return names, text + ", --model ollama/NAME takes another", nil
}

// canChat reports, from its name, whether a model can chat. Embedding models cannot.
func canChat(name string) bool { return !strings.Contains(strings.ToLower(name), "embed") }

// Anyone on a machine may listen on a port that nobody holds, and would read every prompt that is sent there and
// answer it. So a server of this machine that was found, and that nobody configured, is used only after a person
// has confirmed it, and never if it belongs to another person who can log in.

// foreignListenerError says that a server belongs to another user of this machine.
type foreignListenerError struct{ address, owner string }

func (e *foreignListenerError) Error() string {
	return fmt.Sprintf("what listens at %s belongs to %s, another login user of this machine, and is not used "+
		"(to use it anyway, name it as base_url of a provider)", e.address, e.owner)
}

// admitListener returns an error for a connection to a server of this machine that belongs to another login user.
// If the system does not report the owner, the connection is allowed.
func admitListener(conn net.Conn) error {
	remote, ok := conn.RemoteAddr().(*net.TCPAddr)
	local, also := conn.LocalAddr().(*net.TCPAddr)
	if !ok || !also || !remote.IP.IsLoopback() && !remote.IP.Equal(local.IP) {
		return nil // another machine
	}
	if owner, foreign := foreignOwner(remote.AddrPort(), local.AddrPort()); foreign {
		return &foreignListenerError{address: remote.String(), owner: owner}
	}
	return nil
}

// confirmedFolder is the folder with one file for each address that a person has confirmed.
const confirmedFolder = "confirmed"

// confirmServer returns nil if a person has confirmed the server at an address, before or, if ask is set, now.
func (s *Models) confirmServer(address, model string, ask bool) error {
	place := env.PlaceOf(address)
	if _, err := os.Stat(s.env.Marked(confirmedFolder, address)); err == nil {
		return nil
	}
	if !ask || s.env.Confirm == nil {
		return fmt.Errorf("an Ollama answers at %s, but nobody has confirmed it on a terminal "+
			"(to use it, start toolcrib once there, or name it: --model ollama/NAME)", place)
	}
	if !s.env.Confirm(fmt.Sprintf("No model is configured, and an Ollama answers at %s. Send it prompts and results of tools (model %s)?", place, model)) {
		return fmt.Errorf("the Ollama at %s was not confirmed", place)
	}
	if _, err := s.env.Mark(confirmedFolder, address); err != nil {
		s.env.Notice(fmt.Sprintf("your answer about %s cannot be stored, so you will be asked again: %v", place, err))
	}
	return nil
}
