// Package secret stores secrets encrypted at rest, for ${secret:NAME} in the configuration.
//
// All secrets are in one file, encrypted with age (age-encryption.org/v1) to a key that is derived from
// the key file of toolcrib, so that the same key file opens it on every server. The key in hexadecimal
// is the file's passphrase, so age's own program can open it. The names of the secrets are encrypted like
// their values.
package secret

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"time"
	"unicode/utf8"

	"filippo.io/age"
	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/internal/safefile"
)

// Errors for use with [errors.Is]; [toolcrib.CodeOf] returns their code. Each text says what to do; the
// errors that wrap them name the file and contain no secret.
var (
	ErrWrongKey = toolcrib.Errorf(toolcrib.CodeInternal, "the secrets were encrypted with another key; "+
		"restore the key file that belongs to them, or move the file of the secrets away and set them again")
	ErrDamaged = toolcrib.Errorf(toolcrib.CodeInternal, "the secrets file is damaged, or another version of toolcrib "+
		"wrote it, and it was not used; restore a copy, or move it away and set the secrets again")
	ErrLocked = toolcrib.Errorf(toolcrib.CodeConflict, "another program is changing the secrets; "+
		"try again when it has ended")
	ErrUnusable = toolcrib.Errorf(toolcrib.CodeInternal, "the secrets file cannot be used, and was not changed; "+
		"check the path, the rights and the room on the disk")
	ErrInvalid = toolcrib.Errorf(toolcrib.CodeBadRequest, "this cannot be stored as a secret")
)

// because adds the cause to one of the errors above.
func because(kind error, format string, args ...any) error {
	return fmt.Errorf("%w (%w)", kind, fmt.Errorf(format, args...))
}

// KeyPurpose is the purpose under which the key is derived from the keys of a data
// folder (store.Keys.Derive).
const KeyPurpose = "secrets"

const (
	keyBytes   = 32
	workFactor = 1
)

// FileName is the file of the secrets in a data folder.
const FileName = "secrets.age"

// Bounds of the stored secrets.
const (
	MaxValueBytes = 64 << 10 // bytes of one secret
	MaxSecrets    = 1000
	MaxTotalBytes = 1 << 20 // bytes of all values together
)

// secretName matches valid names in ${secret:NAME}.
var secretName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)

// Store is a file of secrets. It is safe for concurrent use, also by several processes: a reader sees
// the secrets before or after a change. Use [Open] or [New] to create one.
type Store struct {
	files     toolcrib.Files
	name      string // of the file
	place     string // names the file in messages
	identity  *age.ScryptIdentity
	recipient *age.ScryptRecipient
	now       func() time.Time
}

// Options are the options of a store. Fields that are zero have their defaults.
type Options struct {
	Now      func() time.Time // time.Now if nil
	Patience time.Duration    // how long a change of a file on disk waits for another one; 10 s if 0
}

// Open returns the secrets in a file on disk. If the file does not exist, the first [Store.Set] creates it
// and its folder. key is 32 secret bytes (see [KeyPurpose]). Open does not read the file; [Store.List]
// fails if the file cannot be used.
func Open(path string, key []byte, o Options) (*Store, error) {
	if path == "" {
		return nil, because(ErrUnusable, "the path is missing")
	}
	s, err := New(safefile.Folder{Dir: filepath.Dir(path), Patience: o.Patience}, filepath.Base(path), key, o)
	if err == nil {
		s.place = path
	}
	return s, err
}

// New is [Open] for a file with a name among others.
func New(files toolcrib.Files, name string, key []byte, o Options) (*Store, error) {
	if len(key) != keyBytes {
		return nil, because(ErrUnusable, "the key does not have %d bytes", keyBytes)
	}
	identity, err := age.NewScryptIdentity(hex.EncodeToString(key))
	if err != nil {
		return nil, because(ErrUnusable, "%w", err)
	}
	recipient, err := age.NewScryptRecipient(hex.EncodeToString(key))
	if err != nil {
		return nil, because(ErrUnusable, "%w", err)
	}
	// A random key needs no expensive key derivation.
	identity.SetMaxWorkFactor(workFactor)
	recipient.SetWorkFactor(workFactor)
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Store{files: files, name: name, place: name, identity: identity, recipient: recipient, now: o.Now}, nil
}

// Info describes a secret without its value.
type Info struct {
	Name    string    `json:"name"`
	Created time.Time `json:"created_at"`
	Changed time.Time `json:"changed_at"`
}

// CheckName returns an error if the name of a secret is invalid.
func CheckName(name string) error {
	if !secretName.MatchString(name) {
		return because(ErrInvalid, "a name has 1 to 128 letters, digits, . _ or -, and begins with a letter or digit")
	}
	return nil
}

func checkValue(value []byte) error {
	switch {
	case len(value) == 0:
		return because(ErrInvalid, "the value is empty")
	case len(value) > MaxValueBytes:
		return because(ErrInvalid, "the value has more than %d bytes", MaxValueBytes)
	case !utf8.Valid(value) || bytes.IndexByte(value, 0) >= 0:
		return because(ErrInvalid, "the value is not text (UTF-8 without NUL); encode it first, in base64 for example")
	}
	return nil
}

// Set stores a secret and replaces one of the same name. When it returns nil, the secret is durable; if
// it returns an error, nothing has changed.
func (s *Store) Set(name string, value []byte) (info Info, err error) {
	if err := CheckName(name); err != nil {
		return info, err
	}
	if err := checkValue(value); err != nil {
		return info, err
	}
	err = s.update(func(c *content) error {
		at := s.now().UTC().Truncate(time.Second)
		e, ok := c.Secrets[name]
		if !ok {
			e.Created = at
		}
		e.Value, e.Changed = bytes.Clone(value), at
		c.Secrets[name] = e
		info = c.info(name)
		return c.bounds()
	})
	return info, err
}

// Secret returns a secret. If it does not exist, the error is [toolcrib.ErrNotFound].
func (s *Store) Secret(name string) (value string, err error) {
	if err := CheckName(name); err != nil {
		return "", err
	}
	c, err := s.read()
	if err != nil {
		return "", err
	}
	if e, ok := c.Secrets[name]; ok {
		return string(e.Value), nil
	}
	return "", notStored(name)
}

// Values returns all secrets by name, for masking.
func (s *Store) Values() (map[string]string, error) {
	c, err := s.read()
	if err != nil {
		return nil, err
	}
	values := make(map[string]string, len(c.Secrets))
	for name, e := range c.Secrets {
		values[name] = string(e.Value)
	}
	return values, nil
}

func notStored(name string) error {
	return toolcrib.Errorf(toolcrib.CodeNotFound, "there is no secret %s", name)
}

// List returns all secrets without their values, sorted by name.
func (s *Store) List() ([]Info, error) {
	c, err := s.read()
	if err != nil {
		return nil, err
	}
	list := make([]Info, 0, len(c.Secrets))
	for _, name := range slices.Sorted(maps.Keys(c.Secrets)) {
		list = append(list, c.info(name))
	}
	return list, nil
}

func (c *content) info(name string) Info {
	return Info{Name: name, Created: c.Secrets[name].Created, Changed: c.Secrets[name].Changed}
}

// Remove removes a secret and returns its Info. If it does not exist, the error is [toolcrib.ErrNotFound].
func (s *Store) Remove(name string) (info Info, err error) {
	if err := CheckName(name); err != nil {
		return info, err
	}
	err = s.update(func(c *content) error {
		if _, ok := c.Secrets[name]; !ok {
			return notStored(name)
		}
		info = c.info(name)
		delete(c.Secrets, name)
		return nil
	})
	return info, err
}

// read returns the content of the file, which is empty if the file does not exist.
func (s *Store) read() (*content, error) {
	file, err := s.files.File(context.Background(), s.name)
	if err != nil && !errors.Is(err, toolcrib.ErrNotFound) {
		return nil, s.unusable(err)
	}
	return s.unseal(file)
}

// failed adds the name of the file to an error.
func (s *Store) failed(err error) error { return fmt.Errorf("%s: %w", s.place, err) }

// unusable returns an error about the file, with its path once.
func (s *Store) unusable(err error) error {
	switch {
	case errors.Is(err, safefile.ErrTooLarge):
		return s.failed(because(ErrDamaged, "it is too large"))
	case errors.Is(err, toolcrib.ErrConflict):
		return s.failed(ErrLocked)
	}
	if _, onDisk := s.files.(safefile.Folder); !onDisk {
		return s.failed(err)
	}
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	return s.failed(because(ErrUnusable, "%w", err))
}

// update changes the secrets, so that no process overwrites a change by another one.
func (s *Store) update(change func(*content) error) error {
	var refused error
	err := s.files.ChangeFile(context.Background(), s.name, func(before []byte) (after []byte, err error) {
		c, err := s.unseal(before)
		if err == nil {
			err = change(c)
		}
		if refused = err; err != nil {
			return nil, err
		}
		return s.seal(c)
	})
	if refused != nil {
		return refused
	}
	if err != nil {
		return s.unusable(err)
	}
	return nil
}

const formatVersion = 1

// content is the encrypted content of the file.
type content struct {
	Format  int              `json:"format"`
	Secrets map[string]entry `json:"secrets"`
}

type entry struct {
	Value   []byte    `json:"value"`
	Created time.Time `json:"created_at"`
	Changed time.Time `json:"changed_at"`
}

func (c *content) bounds() error {
	total := 0
	for _, e := range c.Secrets {
		total += len(e.Value)
	}
	if len(c.Secrets) > MaxSecrets || total > MaxTotalBytes {
		return because(ErrInvalid, "there would be more than %d secrets, or more than %d bytes of them; remove some",
			MaxSecrets, MaxTotalBytes)
	}
	return nil
}

// seal encrypts a content.
func (s *Store) seal(c *content) ([]byte, error) {
	plain, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w, err := age.Encrypt(&out, s.recipient)
	if err == nil {
		_, err = w.Write(plain)
	}
	if err == nil {
		err = w.Close()
	}
	return out.Bytes(), err
}

// unseal decrypts the content of a file; nil is a file that does not exist. The error is one of those
// above.
func (s *Store) unseal(file []byte) (*content, error) {
	c := &content{Format: formatVersion, Secrets: map[string]entry{}}
	if file == nil {
		return c, nil
	}
	r, err := age.Decrypt(bytes.NewReader(file), s.identity)
	if _, other := errors.AsType[*age.NoIdentityMatchError](err); other {
		return nil, s.failed(ErrWrongKey)
	}
	if err != nil {
		return nil, s.failed(because(ErrDamaged, "its header is not valid"))
	}
	plain, err := io.ReadAll(io.LimitReader(r, int64(len(file))))
	if err != nil {
		return nil, s.failed(because(ErrDamaged, "its encrypted content is not valid"))
	}
	*c = content{} // authenticated, so toolcrib wrote it
	if json.Unmarshal(plain, c) != nil || c.Format != formatVersion || c.Secrets == nil {
		return nil, s.failed(because(ErrDamaged, "its encrypted content cannot be read"))
	}
	return c, nil
}
