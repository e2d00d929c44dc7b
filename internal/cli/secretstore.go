package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/secret"
	"github.com/toolcrib/toolcrib/store"
)

// keysName is the key file in the data folder, where the configuration names none.
const keysName = "keys"

// storedSecrets gives what ${secret:NAME} stands for. It looks at use, so nothing
// is opened for a configuration that has no such reference.
type storedSecrets struct{ app *app }

// Secret implements [config.SecretStore].
func (s storedSecrets) Secret(name string) (string, error) {
	data, err := s.app.dataDir()
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(data, secret.FileName)); errors.Is(err, fs.ErrNotExist) {
		return "", toolcrib.ErrNotFound
	}
	kept, err := s.app.openSecrets()
	if err != nil {
		return "", &config.SecretError{Message: err.Error()}
	}
	text, err := kept.Secret(name)
	if err != nil && !errors.Is(err, toolcrib.ErrNotFound) {
		return "", &config.SecretError{Message: err.Error()}
	}
	return text, err
}

// all are the secrets that are stored; none if they cannot be read, which is told where
// one is used.
func (s storedSecrets) all() []guard.Secret {
	data, err := s.app.dataDir()
	if err != nil {
		return nil
	}
	if _, err := os.Stat(filepath.Join(data, secret.FileName)); err != nil {
		return nil
	}
	kept, err := s.app.openSecrets()
	if err != nil {
		return nil
	}
	values, err := kept.Values()
	if err != nil {
		return nil
	}
	all := make([]guard.Secret, 0, len(values))
	for name, value := range values {
		all = append(all, guard.Secret{Name: name, Value: value})
	}
	return all
}

// dataKeys are the keys of the data folder, which are made with the database.
func (a *app) dataKeys() (*store.Keys, error) {
	path, err := a.keysFile()
	if err != nil {
		return nil, err
	}
	if path == "" {
		data, err := a.dataDir()
		if err != nil {
			return nil, err
		}
		path = filepath.Join(data, keysName)
	}
	text, err := config.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the key file of the data folder cannot be read, restore it: %v", err)
	}
	keys, err := store.ParseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("the key file %s is none of toolcrib, restore it: %v", path, err)
	}
	return keys, nil
}

// openSecrets opens the secrets of the data folder, with the keys that are there.
func (a *app) openSecrets() (*secret.Store, error) {
	data, err := a.dataDir()
	if err != nil {
		return nil, err
	}
	keys, err := a.dataKeys()
	if err != nil {
		return nil, err
	}
	return secret.Open(filepath.Join(data, secret.FileName), keys.Derive(secret.KeyPurpose), secret.Options{})
}
