package secret

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"
	"unicode/utf8"

	"filippo.io/age"

	"github.com/toolcrib/toolcrib"
)

// FileName is the file of the secrets in a data folder.
const FileName = "secrets.age"

// Bounds of what is kept.
const (
	MaxValueBytes = 64 << 10 // of one secret
	MaxSecrets    = 1000
	MaxTotalBytes = 1 << 20 // of all values together
)

// lockPatience is how long a change waits for another one.
const lockPatience = 10 * time.Second

// secretName is what ${secret:NAME} takes.
var secretName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)

// Store is a file of secrets. It is safe for concurrent use, by several processes
// too: who reads sees the secrets before a change or after it. Make it with [Open].
type Store struct {
	path     string
	identity *age.X25519Identity
	now      func() time.Time
	patience time.Duration
}

// Options of a store. Fields that are zero have their defaults.
type Options struct {
	Now      func() time.Time // default [time.Now]
	Patience time.Duration    // how long a change waits for another one; default 10 s
}

// Open returns the secrets in that file, which need not exist yet: it is made, with
// its folder, by the first [Store.Set]. Nothing is read before it is asked for;
// [Store.List] tells whether the file can be used.
func Open(path string, identity *age.X25519Identity, o Options) (*Store, error) {
	if path == "" || identity == nil {
		return nil, &Error{Kind: ErrUnusable, Err: errors.New("there is no path, or no key")}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Patience <= 0 {
		o.Patience = lockPatience
	}
	return &Store{path: path, identity: identity, now: o.Now, patience: o.Patience}, nil
}

// Info is what a list shows of a secret: never its value.
type Info struct {
	Name    string    `json:"name"`
	Created time.Time `json:"created_at"`
	Changed time.Time `json:"changed_at"`
}

// CheckName says what is wrong with the name of a secret.
func CheckName(name string) error {
	if !secretName.MatchString(name) {
		return &Error{Kind: ErrInvalid, Err: errors.New("a name has 1 to 128 letters, digits, . _ or -, and begins with a letter or digit")}
	}
	return nil
}

func checkValue(value []byte) error {
	switch {
	case len(value) == 0:
		return &Error{Kind: ErrInvalid, Err: errors.New("the value is empty")}
	case len(value) > MaxValueBytes:
		return &Error{Kind: ErrInvalid, Err: fmt.Errorf("the value has more than %d bytes", MaxValueBytes)}
	case !utf8.Valid(value) || bytes.IndexByte(value, 0) >= 0:
		return &Error{Kind: ErrInvalid, Err: errors.New("the value is no text (UTF-8 without NUL); encode it first, in base64 for example")}
	}
	return nil
}

// Set stores a secret, in place of the one of that name if there is one. When it
// returns, the secret has reached the disk; after an error, all is as it was.
func (s *Store) Set(name string, value []byte) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if err := checkValue(value); err != nil {
		return err
	}
	return s.update(func(c *content) error {
		at := s.now().UTC().Truncate(time.Second)
		e, ok := c.Secrets[name]
		if !ok {
			e.Created = at
		}
		clear(e.Value)
		e.Value, e.Changed = bytes.Clone(value), at
		c.Secrets[name] = e
		return c.bounds()
	})
}

// Get returns a secret; without one, an error that is [toolcrib.ErrNotFound]. The
// caller may overwrite it after use.
func (s *Store) Get(name string) ([]byte, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	c, err := s.read()
	if err != nil {
		return nil, err
	}
	defer c.wipe()
	e, ok := c.Secrets[name]
	if !ok {
		return nil, notStored(name)
	}
	return bytes.Clone(e.Value), nil
}

// Secret is [Store.Get] for what fills in a configuration.
func (s *Store) Secret(name string) (string, error) {
	value, err := s.Get(name)
	if err != nil {
		return "", err
	}
	defer clear(value)
	return string(value), nil
}

// Values returns all secrets by name, for what must know them to mask them.
func (s *Store) Values() (map[string]string, error) {
	c, err := s.read()
	if err != nil {
		return nil, err
	}
	defer c.wipe()
	values := make(map[string]string, len(c.Secrets))
	for name, e := range c.Secrets {
		values[name] = string(e.Value)
	}
	return values, nil
}

func notStored(name string) error {
	return fmt.Errorf("the secret %s: %w; store it with `toolcrib secret set %s`", name, toolcrib.ErrNotFound, name)
}

// List returns what there is, sorted by name.
func (s *Store) List() ([]Info, error) {
	c, err := s.read()
	if err != nil {
		return nil, err
	}
	defer c.wipe()
	out := make([]Info, 0, len(c.Secrets))
	for _, name := range slices.Sorted(maps.Keys(c.Secrets)) {
		e := c.Secrets[name]
		out = append(out, Info{Name: name, Created: e.Created, Changed: e.Changed})
	}
	return out, nil
}

// Remove removes a secret; without one, the error is [toolcrib.ErrNotFound].
func (s *Store) Remove(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	return s.update(func(c *content) error {
		e, ok := c.Secrets[name]
		if !ok {
			return notStored(name)
		}
		clear(e.Value)
		delete(c.Secrets, name)
		return nil
	})
}
