package env

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/mcp/signin"
	"github.com/toolcrib/toolcrib/secret"
	"github.com/toolcrib/toolcrib/store"
)

// KeysName is the name of the key file in the data folder, used unless the configuration names another file.
const KeysName = "keys"

// Resolver resolves references of the configuration. Secrets among them are masked from then on.
func (e *Env) Resolver() config.Resolver {
	return config.Resolver{Secrets: e, OnSecret: func(known guard.Secret) { e.Mask.Learn(known) }}
}

// Secret resolves ${secret:NAME}. The secrets are opened at each use, so a configuration without such references
// opens nothing.
func (e *Env) Secret(name string) (string, error) {
	kept, err := e.storedSecrets()
	if err != nil {
		return "", &config.SecretError{Message: err.Error()}
	}
	if kept == nil {
		return "", toolcrib.ErrNotFound
	}
	text, err := kept.Secret(name)
	if err != nil && !errors.Is(err, toolcrib.ErrNotFound) {
		return "", &config.SecretError{Message: err.Error()}
	}
	return text, err
}

// learnStored masks the stored secrets. If they cannot be read, the operation that uses one reports it. Those in a
// database that is not open are masked when it is opened.
func (e *Env) learnStored() {
	if e.Store == nil && !e.inFolder() {
		return
	}
	kept, err := e.storedSecrets()
	if err != nil || kept == nil {
		return
	}
	values, err := kept.Values()
	if err != nil {
		return
	}
	for name, value := range values {
		e.Mask.Learn(guard.Secret{Name: name, Value: value})
		e.ReadSignIn(name, value)
	}
}

// storedSecrets returns the stored secrets, or nil if they are in the data folder and there are none, and perhaps no
// keys.
func (e *Env) storedSecrets() (*secret.Store, error) {
	if e.inFolder() {
		if _, err := os.Stat(filepath.Join(e.DataDir, secret.FileName)); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
	}
	return e.SecretStore()
}

// KeysFile returns the absolute path of the key file.
func (e *Env) KeysFile() (string, error) {
	path, err := e.Config.Keys.Resolve(config.Resolver{}) // stored secrets need the keys
	if path == "" {
		path = filepath.Join(e.DataDir, KeysName)
	}
	return path, err
}

// Keys returns the keys of the data folder, which are made together with the database.
func (e *Env) Keys() (*store.Keys, error) {
	path, err := e.KeysFile()
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

// Sealer returns a cipher for one purpose, with a key derived from those of the data folder.
func (e *Env) Sealer(purpose string) (cipher.AEAD, error) {
	keys, err := e.Keys()
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(keys.Derive(purpose))
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// SecretStore opens the stored secrets.
func (e *Env) SecretStore() (*secret.Store, error) {
	keys, err := e.Keys()
	if err != nil {
		return nil, err
	}
	key := keys.Derive(secret.KeyPurpose)
	if e.inFolder() {
		return secret.Open(filepath.Join(e.DataDir, secret.FileName), key, secret.Options{})
	}
	return secret.New(e.Files(), secret.FileName, key, secret.Options{})
}

// ReadSecrets returns the number of the stored secrets, or an error if they cannot be read.
func (e *Env) ReadSecrets() (n int, err error) {
	kept, err := e.storedSecrets()
	if err != nil || kept == nil {
		return 0, err
	}
	values, err := kept.Values()
	return len(values), err
}

// Secrets returns the names of the stored secrets, never their values, for administrators.
func (e *Env) Secrets(who toolcrib.Principal) ([]secret.Info, error) {
	if _, err := Administrator(who); err != nil {
		return nil, err
	}
	kept, err := e.SecretStore()
	if err != nil {
		return nil, err
	}
	return kept.List()
}

// SetSecret stores a secret or replaces the one of that name, for administrators.
func (e *Env) SetSecret(
	ctx context.Context, who toolcrib.Principal, name string, value []byte,
) (secret.Info, error) {
	return e.changeSecret(ctx, who, KindSecretSet, name,
		func(kept *secret.Store) (secret.Info, error) { return kept.Set(name, value) })
}

// RemoveSecret removes a secret and returns what is known of it, for administrators.
func (e *Env) RemoveSecret(ctx context.Context, who toolcrib.Principal, name string) (secret.Info, error) {
	return e.changeSecret(ctx, who, KindSecretRemoved, name,
		func(kept *secret.Store) (secret.Info, error) { return kept.Remove(name) })
}

func (e *Env) changeSecret(
	ctx context.Context, who toolcrib.Principal, kind toolcrib.Kind, name string,
	change func(*secret.Store) (secret.Info, error),
) (info secret.Info, err error) {
	by, err := Administrator(who)
	if err != nil {
		return info, err
	}
	kept, err := e.SecretStore()
	if err != nil {
		return info, err
	}
	if info, err = change(kept); err != nil {
		return info, err
	}
	return info, e.Record(ctx, kind, map[string]string{"name": name, "by": by})
}

// CheckSecrets returns an error if texts contain a secret. Such texts are stored and shown unmasked.
func (e *Env) CheckSecrets(texts ...any) error {
	e.LearnSecrets()
	if name := e.Mask.SecretIn(texts); name != "" {
		return BadRequestf("this holds the secret %s; names and descriptions are stored and shown as they are", name)
	}
	return nil
}

// LearnSecrets masks all secrets that a run might come upon: those of the configuration, those that are stored, and
// the API keys that models take from the usual environment variables without a reference.
func (e *Env) LearnSecrets() {
	c := e.Config
	c.FindSecrets(e.Resolver())
	e.learnStored()
	e.findingKeys.Do(func() {
		for _, ref := range ModelRefs(c, c.ModelNames()...) {
			if r, err := c.ResolveModel(ref); err == nil {
				e.modelKeys = append(e.modelKeys, r.Provider.APIKey)
			}
		}
	})
	for _, key := range e.modelKeys {
		_, _ = key.Resolve(e.Resolver()) // an error is reported where it is used
	}
}

// SignInPrefix begins the names of secrets that are sign-ins to MCP servers. The name of the server and a hash of
// its address follow, so a sign-in is never sent to another address.
const SignInPrefix = "mcp."

// ReadSignIn decodes a secret that is a sign-in and masks its tokens. It returns nil if the secret is not a
// sign-in.
func (e *Env) ReadSignIn(name, text string) *signin.Credentials {
	if !strings.HasPrefix(name, SignInPrefix) {
		return nil
	}
	c := new(signin.Credentials)
	if json.Unmarshal([]byte(text), c) != nil || c.URL == "" {
		return nil
	}
	e.LearnSignIn(name, c)
	return c
}

// LearnSignIn masks the tokens of a sign-in.
func (e *Env) LearnSignIn(name string, c *signin.Credentials) {
	for _, secret := range c.Secrets() {
		e.Mask.Learn(guard.Secret{Name: name, Value: secret})
	}
}

// ModelRefs returns refs and the models that agents of the configuration name, each once.
func ModelRefs(c *config.Config, refs ...string) []string {
	for _, name := range c.AgentNames() {
		for _, ref := range append([]string{c.Agents[name].Model}, c.Agents[name].Fallback...) {
			if ref != "" && !slices.Contains(refs, ref) {
				refs = append(refs, ref)
			}
		}
	}
	return refs
}

// PlaceOf returns the scheme and host of a URL. Other parts may contain secrets.
func PlaceOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return "an address that is not a URL"
	}
	return u.Scheme + "://" + u.Host
}

// Certificate returns the files of the server's certificate, or "" if none is configured. It returns an error if the
// certificate cannot be used.
func (e *Env) Certificate() (cert, key string, err error) {
	if cert, err = e.Config.Server.TLS.Cert.Resolve(e.Resolver()); err == nil {
		key, err = e.Config.Server.TLS.Key.Resolve(e.Resolver())
	}
	if err == nil && cert != "" {
		if _, err = tls.LoadX509KeyPair(cert, key); err != nil {
			err = toolcrib.Errorf(toolcrib.CodeBadRequest, "server.tls: %v", err)
		}
	}
	return cert, key, err
}
