package secret

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"filippo.io/age"

	"github.com/toolcrib/toolcrib/internal/safefile"
)

// temporary is what the names of files begin with that are to become the file.
const temporary = ".secrets-"

// read returns what is in the file; nothing if it does not exist.
func (s *Store) read() (*content, error) {
	file, err := safefile.Read(s.path, maxFileBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &content{Format: formatVersion, Secrets: map[string]entry{}}, nil
	case errors.Is(err, safefile.ErrTooLarge):
		return nil, s.failed(damaged("it is too large"))
	case err != nil:
		return nil, s.unusable(err)
	}
	c, err := unseal(file, s.identity)
	if err != nil {
		return nil, s.failed(err)
	}
	return c, nil
}

// view calls look with what is in the file, and wipes it afterwards.
func (s *Store) view(look func(*content) error) error {
	c, err := s.read()
	if err != nil {
		return err
	}
	defer c.wipe()
	return look(c)
}

// failed names the file in an error.
func (s *Store) failed(err error) error { return fmt.Errorf("%s: %w", s.path, err) }

func (s *Store) unusable(err error) error { return s.failed(because(ErrUnusable, "%w", cause(err))) }

// update changes the secrets: under a lock, so that no process undoes what another
// has just set, and by replacing the file, so that none ever reads half of it.
func (s *Store) update(change func(*content) error) error {
	folder := filepath.Dir(s.path)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return s.unusable(err)
	}
	unlock, err := safefile.Lock(s.path+".lock", s.patience)
	if errors.Is(err, safefile.ErrBusy) {
		return s.failed(ErrLocked)
	}
	if err != nil {
		return s.unusable(err)
	}
	defer unlock()
	return s.view(func(c *content) error {
		if err := change(c); err != nil {
			return err
		}
		file, err := seal(c, s.recipient)
		if err != nil {
			return s.unusable(err)
		}
		sweep(folder)
		switch err := safefile.Replace(s.path, temporary, file); {
		case err == nil:
			return nil
		case noRoom(err):
			return s.failed(because(ErrFull, "%w", cause(err)))
		default:
			return s.unusable(err)
		}
	})
}

// sweep removes what a process left that was killed while it wrote. Only the holder of
// the lock writes.
func sweep(folder string) {
	left, _ := fs.Glob(os.DirFS(folder), temporary+"*") // the pattern is a good one
	for _, name := range left {
		_ = os.Remove(filepath.Join(folder, name)) // it only takes room
	}
}

// noRoom reports whether a disk (112 on Windows), a quota or a limit is full.
func noRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) ||
		runtime.GOOS == "windows" && errors.Is(err, syscall.Errno(112))
}

// cause drops the path from an error, which is told once already.
func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

const (
	formatVersion = 1
	ageFirstLine  = "age-encryption.org/v1\n"
	ageAnyVersion = "age-encryption.org/"

	// maxFileBytes is more than the largest file that can be written: values grow by
	// a third in base64, and names and dates come to them.
	maxFileBytes = 2*MaxTotalBytes + 1<<20
)

// content is what is encrypted in the file.
type content struct {
	Format  int              `json:"format"`
	Secrets map[string]entry `json:"secrets"`
}

type entry struct {
	Value   []byte    `json:"value"`
	Created time.Time `json:"created_at"`
	Changed time.Time `json:"changed_at"`
}

// wipe overwrites the values, so that they do not lie in memory longer than needed.
func (c *content) wipe() {
	for _, e := range c.Secrets {
		clear(e.Value)
	}
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

// seal returns the file for a content.
func seal(c *content, to age.Recipient) ([]byte, error) {
	plain, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	defer clear(plain)
	var out bytes.Buffer
	w, err := age.Encrypt(&out, to)
	if err == nil {
		_, err = w.Write(plain)
	}
	if err == nil {
		err = w.Close()
	}
	return out.Bytes(), err
}

// unseal returns the content of a file; the error is one of those above.
func unseal(file []byte, identity age.Identity) (*content, error) {
	if !bytes.HasPrefix(file, []byte(ageFirstLine)) {
		if bytes.HasPrefix(file, []byte(ageAnyVersion)) {
			return nil, ErrNewer
		}
		return nil, damaged("it does not begin as such a file does")
	}
	r, err := age.Decrypt(bytes.NewReader(file), identity)
	var other *age.NoIdentityMatchError
	switch {
	case errors.As(err, &other):
		return nil, ErrWrongKey
	case err != nil:
		return nil, damaged("its header does not hold")
	}
	// Room for all of it from the start: growing would leave copies behind.
	plain := make([]byte, 0, len(file)+1)
	defer func() { clear(plain[:cap(plain)]) }()
	buffer := bytes.NewBuffer(plain)
	if _, err := buffer.ReadFrom(io.LimitReader(r, int64(len(file)))); err != nil {
		return nil, damaged("what is encrypted in it does not hold")
	}
	return decode(buffer.Bytes())
}

func decode(plain []byte) (*content, error) {
	c := new(content)
	d := json.NewDecoder(bytes.NewReader(plain))
	d.DisallowUnknownFields()
	err := d.Decode(c)
	if err == nil {
		_, err = d.Token()
	}
	if !errors.Is(err, io.EOF) || c.Format != formatVersion || c.Secrets == nil {
		c.wipe()
		var head struct {
			Format int `json:"format"`
		}
		if json.Unmarshal(plain, &head) == nil && head.Format > formatVersion {
			return nil, ErrNewer
		}
		return nil, damaged("what is encrypted in it cannot be read")
	}
	for name, e := range c.Secrets {
		if CheckName(name) != nil || checkValue(e.Value) != nil {
			c.wipe()
			return nil, damaged("one of the secrets in it can be none")
		}
	}
	return c, nil
}

func damaged(why string) error { return because(ErrDamaged, "%s", why) }
