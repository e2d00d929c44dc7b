package service

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// Anyone on a machine may listen on a port that nobody holds, and would read every
// prompt that is sent there and answer it. So a server of this machine that was found,
// and that nobody configured, is used only after a person has confirmed it, and never
// if it belongs to another person who can log in (contract §4).

// foreignListenerError says that a server belongs to somebody else.
type foreignListenerError struct{ address, owner string }

func (e *foreignListenerError) Error() string {
	return fmt.Sprintf("what listens at %s belongs to %s, another login user of this machine, and is not used "+
		"(to use it all the same, name it as base_url of a provider)", e.address, e.owner)
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
	place := placeOf(address)
	path := s.confirmationOf(address)
	if kept, err := os.ReadFile(path); err == nil && string(kept) == address+"\n" {
		return nil
	}
	if !ask || s.Confirm == nil {
		return fmt.Errorf("an Ollama answers at %s, but nobody has confirmed it on a terminal "+
			"(to use it, start toolcrib once there, or name it: --model ollama/NAME)", place)
	}
	if !s.Confirm(fmt.Sprintf("No model is configured, and an Ollama answers at %s. Send it prompts and results of tools (model %s)?", place, model)) {
		return fmt.Errorf("the Ollama at %s was not confirmed", place)
	}
	if err := s.confirmed(address); err != nil {
		s.Notice(fmt.Sprintf("your answer about %s cannot be stored, so you will be asked again: %v", place, err))
	}
	return nil
}

// confirmationOf is the file that says that an address is confirmed.
func (s *Service) confirmationOf(address string) string {
	sum := sha256.Sum256([]byte(address))
	return filepath.Join(s.DataDir, confirmedFolder, hex.EncodeToString(sum[:16]))
}

// confirmed keeps that a person has confirmed the server at an address.
func (s *Service) confirmed(address string) error {
	path := s.confirmationOf(address)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(address+"\n"), 0o600)
}
