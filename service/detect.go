package service

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

// Detect finds a model where none is configured (contract §4). An Ollama that nobody
// has configured is used once a person has confirmed it; ask says that one may be asked
// now, if there is anybody.
func (s *Service) Detect(ask bool) config.Detected {
	more := ""
	set, at, configured := s.ollamaAsked()
	found := s.Env.Config.DetectModel(os.Getenv, at, func() ([]string, error) {
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

// ollamaAsked is where an Ollama is looked for: at its usual address, unless OLLAMA_HOST
// or a configured provider ollama names another, and what is in the notice about it.
func (s *Service) ollamaAsked() (set wire.Options, at string, configured bool) {
	if p, ok := s.Env.Config.Providers[config.TypeOllama]; ok && p.Type == config.TypeOllama && !p.BaseURL.IsEmpty() {
		if set, err := s.wire(config.TypeOllama, p); err == nil {
			return set, "providers.ollama.base_url", true
		}
	}
	address, _ := addressFromEnv(config.TypeOllama)
	address = cmp.Or(address, s.Env.OllamaAt, config.OllamaAddress)
	return wire.Options{BaseURL: address, Proxy: wire.ProxyNone, Admit: admitListener}, env.PlaceOf(address), false
}

// ollamaModels are the models of an Ollama, the best first: the one that was pulled
// last of those that take tools, else of those that can chat at all.
func ollamaModels(set wire.Options) (names []string, why string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), ollamaPatience)
	defer cancel()
	set.ConnectTimeout, set.FirstTokenTimeout = ollamaPatience, ollamaPatience
	m, err := ollama.New(ollama.Options{Options: set})
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

// canChat reports, by its name, whether a model can chat; one that only embeds cannot.
func canChat(name string) bool { return !strings.Contains(strings.ToLower(name), "embed") }

// Anyone on a machine may listen on a port that nobody holds, and would read every
// prompt that is sent there and answer it. So a server of this machine that was found,
// and that nobody configured, is used only after a person has confirmed it, and never
// if it belongs to another person who can log in (contract §4).

// foreignListenerError says that a server belongs to someone else.
type foreignListenerError struct{ address, owner string }

func (e *foreignListenerError) Error() string {
	return fmt.Sprintf("what listens at %s belongs to %s, another login user of this machine, and is not used "+
		"(to use it anyway, name it as base_url of a provider)", e.address, e.owner)
}

// admitListener refuses a connection to a server of this machine that belongs to
// another login user. Where the system does not say whose it is, it passes.
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

// confirmedFolder is the folder of the data folder that holds one file for each
// address that a person has confirmed.
const confirmedFolder = "confirmed"

// confirmServer returns nil if a person has confirmed the server at an address, before
// or, with ask and a terminal, now.
func (s *Service) confirmServer(address, model string, ask bool) error {
	place := env.PlaceOf(address)
	if _, err := os.Stat(s.Env.Marked(confirmedFolder, address)); err == nil {
		return nil
	}
	if !ask || s.Env.Confirm == nil {
		return fmt.Errorf("an Ollama answers at %s, but nobody has confirmed it on a terminal "+
			"(to use it, start toolcrib once there, or name it: --model ollama/NAME)", place)
	}
	if !s.Env.Confirm(fmt.Sprintf("No model is configured, and an Ollama answers at %s. Send it prompts and results of tools (model %s)?", place, model)) {
		return fmt.Errorf("the Ollama at %s was not confirmed", place)
	}
	if _, err := s.Env.Mark(confirmedFolder, address); err != nil {
		s.Env.Notice(fmt.Sprintf("your answer about %s cannot be stored, so you will be asked again: %v", place, err))
	}
	return nil
}
