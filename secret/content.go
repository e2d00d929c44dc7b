package secret

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"filippo.io/age"
)

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

func newContent() *content {
	return &content{Format: formatVersion, Secrets: map[string]entry{}}
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
		return &Error{Kind: ErrInvalid, Err: fmt.Errorf("there would be more than %d secrets, or more than %d bytes of them; remove some", MaxSecrets, MaxTotalBytes)}
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
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(plain); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// unseal returns the content of a file; the kind of error says what is wrong.
func unseal(file []byte, identity age.Identity) (*content, error) {
	if !bytes.HasPrefix(file, []byte(ageFirstLine)) {
		if bytes.HasPrefix(file, []byte(ageAnyVersion)) {
			return nil, &Error{Kind: ErrNewer}
		}
		return nil, damaged("it does not begin as such a file does")
	}
	r, err := age.Decrypt(bytes.NewReader(file), identity)
	var other *age.NoIdentityMatchError
	switch {
	case errors.As(err, &other):
		return nil, &Error{Kind: ErrWrongKey}
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
			return nil, &Error{Kind: ErrNewer}
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

func damaged(why string) error { return &Error{Kind: ErrDamaged, Err: errors.New(why)} }
