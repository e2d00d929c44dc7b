package service

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
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

// KeysName is the key file in the data folder, where the configuration names none.
const KeysName = "keys"

// Resolver fills in references; the secrets among them are masked from then on.
func (s *Service) Resolver() config.Resolver {
	return config.Resolver{Secrets: s, OnSecret: func(known guard.Secret) { s.Mask.Learn(known) }}
}

// Secret is what ${secret:NAME} stands for. It looks at use, so nothing is opened for a
// configuration that has no such reference.
func (s *Service) Secret(name string) (string, error) {
	if _, err := os.Stat(filepath.Join(s.DataDir, secret.FileName)); errors.Is(err, fs.ErrNotExist) {
		return "", toolcrib.ErrNotFound
	}
	kept, err := s.openSecrets()
	if err != nil {
		return "", &config.SecretError{Message: err.Error()}
	}
	text, err := kept.Secret(name)
	if err != nil && !errors.Is(err, toolcrib.ErrNotFound) {
		return "", &config.SecretError{Message: err.Error()}
	}
	return text, err
}

// learnStored masks the secrets that are stored. That they cannot be read is told where
// one is used.
func (s *Service) learnStored() {
	if _, err := os.Stat(filepath.Join(s.DataDir, secret.FileName)); err != nil {
		return
	}
	kept, err := s.openSecrets()
	if err != nil {
		return
	}
	values, err := kept.Values()
	if err != nil {
		return
	}
	for name, value := range values {
		s.Mask.Learn(guard.Secret{Name: name, Value: value})
		s.readSignIn(name, value)
	}
}

// KeysFile is the absolute path of the key file.
func (s *Service) KeysFile() (string, error) {
	path, err := s.Config.Keys.Resolve(config.Resolver{}) // stored secrets need the keys
	if path == "" {
		path = filepath.Join(s.DataDir, KeysName)
	}
	return path, err
}

// Keys are the keys of the data folder, which are made with the database.
func (s *Service) Keys() (*store.Keys, error) {
	path, err := s.KeysFile()
	if err != nil {
		return nil, err
	}
	text, err := config.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the key file of the data folder cannot be read, restore it: %v", err)
	}
	keys, err := store.ParseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("the key file %s was not written by toolcrib, or is damaged; restore it: %v", path, err)
	}
	return keys, nil
}

// sealer seals what is kept for a purpose.
func (s *Service) sealer(purpose string) (cipher.AEAD, error) {
	keys, err := s.Keys()
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(keys.Derive(purpose))
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// openSecrets opens the secrets of the data folder, with the keys that are there.
func (s *Service) openSecrets() (*secret.Store, error) {
	keys, err := s.Keys()
	if err != nil {
		return nil, err
	}
	return secret.Open(filepath.Join(s.DataDir, secret.FileName), keys.Derive(secret.KeyPurpose), secret.Options{})
}

// Secrets returns the names of the stored secrets, never their values, for administrators.
func (s *Service) Secrets(who toolcrib.Principal) ([]secret.Info, error) {
	if _, err := Administrator(who); err != nil {
		return nil, err
	}
	kept, err := s.openSecrets()
	if err != nil {
		return nil, err
	}
	return kept.List()
}

// SetSecret stores a secret instead of the one of that name, for administrators.
func (s *Service) SetSecret(
	ctx context.Context, who toolcrib.Principal, name string, value []byte,
) (secret.Info, error) {
	return s.changeSecret(ctx, who, KindSecretSet, name,
		func(kept *secret.Store) (secret.Info, error) { return kept.Set(name, value) })
}

// RemoveSecret removes a secret, for administrators, and returns what it was.
func (s *Service) RemoveSecret(ctx context.Context, who toolcrib.Principal, name string) (secret.Info, error) {
	return s.changeSecret(ctx, who, KindSecretRemoved, name,
		func(kept *secret.Store) (secret.Info, error) { return kept.Remove(name) })
}

func (s *Service) changeSecret(
	ctx context.Context, who toolcrib.Principal, kind toolcrib.Kind, name string,
	change func(*secret.Store) (secret.Info, error),
) (info secret.Info, err error) {
	by, err := Administrator(who)
	if err != nil {
		return info, err
	}
	kept, err := s.openSecrets()
	if err != nil {
		return info, err
	}
	if info, err = change(kept); err != nil {
		return info, err
	}
	return info, s.record(ctx, kind, map[string]string{"name": name, "by": by})
}

// checkSecrets refuses texts with a secret in them, which are stored and shown as they are.
func (s *Service) checkSecrets(texts ...any) error {
	s.LearnSecrets()
	if name := s.Mask.SecretIn(texts); name != "" {
		return badRequestf("this holds the secret %s; names and descriptions are stored and shown as they are", name)
	}
	return nil
}

// LearnSecrets makes all secrets known that the configuration was given, before anything
// is read or kept: a run may come upon any of them. So are the keys that models have from
// the usual variables, to which no reference leads: a run may start any agent after
// others have read where a key stands. So is what else is stored.
func (s *Service) LearnSecrets() {
	c := s.Config
	c.FindSecrets(s.Resolver())
	s.learnStored()
	s.findingKeys.Do(func() {
		for _, ref := range modelRefs(c, c.ModelNames()...) {
			if r, err := c.ResolveModel(ref); err == nil {
				s.modelKeys = append(s.modelKeys, r.Provider.APIKey)
			}
		}
	})
	for _, key := range s.modelKeys {
		_, _ = key.Resolve(s.Resolver()) // what cannot be filled in is told at use
	}
}
