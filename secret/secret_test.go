package secret_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/secret"
	"github.com/toolcrib/toolcrib/store"
)

// key is that of a key file which never changes.
func key(t testing.TB, digit string) []byte {
	t.Helper()
	keys, err := store.ParseKeys([]byte("toolcrib keys 1\nroot " + strings.Repeat(digit, 64) + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return keys.Derive(secret.KeyPurpose)
}

func clock() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC) }

func open(t testing.TB, path string, digit string) *secret.Store {
	t.Helper()
	s, err := secret.Open(path, key(t, digit), secret.Options{Now: clock, Patience: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newStore(t testing.TB) (*secret.Store, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data", secret.FileName)
	return open(t, path, "a"), path
}

func setIn(s *secret.Store, name string, value []byte) error {
	_, err := s.Set(name, value)
	return err
}

func removeFrom(s *secret.Store, name string) error {
	_, err := s.Remove(name)
	return err
}

func set(t testing.TB, s *secret.Store, name, value string) {
	t.Helper()
	if err := setIn(s, name, []byte(value)); err != nil {
		t.Fatal(err)
	}
}

func get(t testing.TB, s *secret.Store, name, want string) {
	t.Helper()
	if got, err := s.Secret(name); err != nil || got != want {
		t.Errorf("%s is %q, %v; want %q", name, got, err, want)
	}
}

func TestSecret_SetGetListRemove(t *testing.T) {
	s, path := newStore(t)
	if list, err := s.List(); err != nil || len(list) != 0 {
		t.Fatalf("a new store has %v, %v", list, err)
	}
	if values, err := s.Values(); err != nil || len(values) != 0 {
		t.Fatalf("a new store has %v, %v", values, err)
	}
	_, err := s.Secret("anthropic")
	if !errors.Is(err, toolcrib.ErrNotFound) || err.Error() != "there is no secret anthropic" {
		t.Errorf("a secret that is not there: %v", err)
	}
	set(t, s, "openai", "sk-1234567890")
	set(t, s, "anthropic", "first\nline")
	set(t, s, "anthropic", "second")
	get(t, s, "openai", "sk-1234567890")
	get(t, open(t, path, "a"), "anthropic", "second") // another process
	at := clock().Truncate(time.Second)
	list, err := s.List()
	want := []secret.Info{{Name: "anthropic", Created: at, Changed: at}, {Name: "openai", Created: at, Changed: at}}
	if err != nil || fmt.Sprint(list) != fmt.Sprint(want) {
		t.Errorf("list %v, %v; want %v", list, err, want)
	}
	values, err := s.Values()
	if all := fmt.Sprint(values); err != nil || all != "map[anthropic:second openai:sk-1234567890]" {
		t.Errorf("values %s, %v", all, err)
	}
	if err := removeFrom(s, "openai"); err != nil {
		t.Fatal(err)
	}
	if err := removeFrom(s, "openai"); !errors.Is(err, toolcrib.ErrNotFound) {
		t.Errorf("removed twice: %v", err)
	}
	if _, err := s.Secret("openai"); !errors.Is(err, toolcrib.ErrNotFound) {
		t.Errorf("removed, and read: %v", err)
	}
}

func TestSecret_AtRest(t *testing.T) {
	s, path := newStore(t)
	set(t, s, "my-name", "sk-1234567890")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, plain := range []string{"sk-1234567890", "my-name", "c2stMTIzNDU2Nzg5MA"} {
		if bytes.Contains(data, []byte(plain)) {
			t.Errorf("%s is in the file", plain)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode of the folder %v, %v", info.Mode(), err)
	}
	passphrase, err := age.NewScryptIdentity(fmt.Sprintf("%x", key(t, "a")))
	if err != nil {
		t.Fatal(err)
	}
	if r, err := age.Decrypt(bytes.NewReader(data), passphrase); err != nil || r == nil {
		t.Errorf("age itself cannot open it: %v", err)
	}
}

// The file was made before, and is opened with the key of its key file.
func TestSecret_Vector(t *testing.T) {
	file, err := os.ReadFile(filepath.Join("testdata", "vector.age"))
	if err != nil {
		t.Fatal(err)
	}
	_, path := newStore(t)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, file, 0o600)); err != nil {
		t.Fatal(err)
	}
	get(t, open(t, path, "a"), "db", "sk-1234567890")
}

// kind checks the kind of an error, that its text says what to do, and that it names
// the file.
func kind(t *testing.T, err, want error, path string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
		return
	}
	if path != "" && !strings.Contains(err.Error(), path) {
		t.Errorf("error %v does not name the file", err)
	}
}

func TestSecret_WrongKey(t *testing.T) {
	s, path := newStore(t)
	set(t, s, "a", "1")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other := open(t, path, "b")
	_, err = other.Secret("a")
	kind(t, err, secret.ErrWrongKey, path)
	kind(t, setIn(other, "b", []byte("2")), secret.ErrWrongKey, path)
	kind(t, removeFrom(other, "a"), secret.ErrWrongKey, path)
	_, err = other.List()
	kind(t, err, secret.ErrWrongKey, path)
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file was touched, %v", err)
	}
}

// Whatever byte of the file is changed, and wherever it is cut, nothing of it is used
// and nothing is overwritten.
func TestSecret_Damaged(t *testing.T) {
	s, path := newStore(t)
	set(t, s, "a", "sk-1234567890")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	try := func(what string, data []byte) {
		t.Helper()
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := s.Secret("a")
		told := errors.Is(err, secret.ErrDamaged) || errors.Is(err, secret.ErrWrongKey)
		if !told || strings.Contains(err.Error(), "sk-") {
			t.Errorf("%s: %v", what, err)
		}
		if err := setIn(s, "b", []byte("2")); err == nil {
			t.Errorf("%s: it was overwritten", what)
		}
	}
	for i := range whole {
		try(fmt.Sprintf("cut at %d", i), whole[:i])
		changed := bytes.Clone(whole)
		changed[i] ^= 1
		try(fmt.Sprintf("changed at %d", i), changed)
	}
	try("longer", append(bytes.Clone(whole), 0))
	try("twice", append(bytes.Clone(whole), whole...))
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	get(t, s, "a", "sk-1234567890")
}

// sealed writes a file with that content, as whoever has the key could.
func sealed(t *testing.T, path, plain string, work int) {
	t.Helper()
	var out bytes.Buffer
	to, err := age.NewScryptRecipient(fmt.Sprintf("%x", key(t, "a")))
	if err != nil {
		t.Fatal(err)
	}
	to.SetWorkFactor(work)
	w, err := age.Encrypt(&out, to)
	if err == nil {
		_, err = w.Write([]byte(plain))
	}
	if err == nil {
		err = w.Close()
	}
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = os.WriteFile(path, out.Bytes(), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestSecret_OtherFormats(t *testing.T) {
	s, path := newStore(t)
	for plain, want := range map[string]error{
		`{"format":2,"secrets":[]}`:                    secret.ErrDamaged,
		`{"format":1}`:                                 secret.ErrDamaged,
		`{"format":1,"secrets":null}`:                  secret.ErrDamaged,
		`{"format":0,"secrets":{}}`:                    secret.ErrDamaged,
		`{"format":1,"secrets":{"a":{"value":"eA="}}}`: secret.ErrDamaged,
		``:         secret.ErrDamaged,
		`{} {}`:    secret.ErrDamaged,
		`[1,2,3]`:  secret.ErrDamaged,
		"\x00\xff": secret.ErrDamaged,
	} {
		sealed(t, path, plain, 1)
		_, err := s.List()
		kind(t, err, want, path)
		kind(t, setIn(s, "b", []byte("2")), want, path)
	}
	for file, want := range map[string]error{
		"age-encryption.org/v2\nwhatever": secret.ErrDamaged,
		"":                                secret.ErrDamaged,
		"age-encryption.org/v1\n":         secret.ErrDamaged,
		"-----BEGIN AGE ENCRYPTED FILE":   secret.ErrDamaged,
	} {
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := s.List()
		kind(t, err, want, path)
	}
	sealed(t, path, `{"format":1,"secrets":{"a":{"value":"eA==","created_at":"2026-01-02T03:04:05Z","changed_at":"2026-01-02T03:04:05Z"}}}`, 1)
	get(t, s, "a", "x")
	sealed(t, path, `{"format":1,"secrets":{}}`, 2) // nobody makes a reader work
	_, err := s.List()
	kind(t, err, secret.ErrDamaged, path)
}

func TestSecret_Bounds(t *testing.T) {
	s, path := newStore(t)
	for _, name := range []string{"", ".a", "a b", "a/b", "../a", "a\x00", "ä", strings.Repeat("a", 129), "-"} {
		kind(t, setIn(s, name, []byte("x")), secret.ErrInvalid, "")
		_, err := s.Secret(name)
		kind(t, err, secret.ErrInvalid, "")
		kind(t, removeFrom(s, name), secret.ErrInvalid, "")
	}
	for _, value := range []string{"", strings.Repeat("x", secret.MaxValueBytes+1), "a\x00b", "\xff"} {
		err := setIn(s, "a", []byte(value))
		kind(t, err, secret.ErrInvalid, "")
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something was written: %v", err)
	}
	largest := strings.Repeat("x", secret.MaxValueBytes)
	set(t, s, strings.Repeat("a", 128), largest)
	get(t, s, strings.Repeat("a", 128), largest)
	var err error
	n := 1
	for ; n <= secret.MaxTotalBytes/secret.MaxValueBytes && err == nil; n++ {
		err = setIn(s, fmt.Sprint("s", n), []byte(largest))
	}
	if kind(t, err, secret.ErrInvalid, ""); n-1 != secret.MaxTotalBytes/secret.MaxValueBytes {
		t.Errorf("%d secrets of the largest size were stored", n-1)
	}
	if list, err := s.List(); err != nil || len(list) != n-1 {
		t.Errorf("%d secrets, %v; want %d", len(list), err, n-1)
	}
}

func TestSecret_BadPlaces(t *testing.T) {
	if s, err := secret.Open("", key(t, "a"), secret.Options{}); err == nil {
		t.Errorf("no path: %v", s)
	}
	if s, err := secret.Open("x", nil, secret.Options{}); err == nil {
		t.Errorf("no key: %v", s)
	}
	s, path := newStore(t)
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := s.Secret("a")
	kind(t, err, secret.ErrUnusable, path)
	kind(t, setIn(s, "a", []byte("x")), secret.ErrUnusable, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	large, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(large.Truncate(1<<30), large.Close()); err != nil {
		t.Fatal(err)
	}
	_, err = s.Secret("a")
	kind(t, err, secret.ErrDamaged, path)
}

func TestSecret_ManyAtOnce(t *testing.T) {
	_, path := newStore(t)
	var all sync.WaitGroup
	for i := range 8 {
		s := open(t, path, "a")
		all.Go(func() {
			for j := range 5 {
				name := fmt.Sprintf("s%d-%d", i, j)
				if err := setIn(s, name, []byte(name)); err != nil {
					t.Error(err)
				}
				if got, err := s.Secret(name); err != nil || got != name {
					t.Errorf("%s is %q, %v", name, got, err)
				}
			}
		})
	}
	all.Wait()
	if list, err := open(t, path, "a").List(); err != nil || len(list) != 40 {
		t.Errorf("%d secrets, %v", len(list), err)
	}
}

// childEnv makes the test binary store secrets instead of running tests.
const childEnv = "TOOLCRIB_SECRET_TEST_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		os.Exit(child(path))
	}
	os.Exit(m.Run())
}

func child(path string) int {
	s, err := secret.Open(path, bytes.Repeat([]byte{7}, 32), secret.Options{Patience: time.Minute})
	if err != nil {
		return 3
	}
	limitFiles()
	for i := range 10 {
		if err := setIn(s, fmt.Sprintf("p%d-%d", os.Getpid(), i), []byte("x")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return 0
}

func TestSecret_SeveralProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), secret.FileName)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			c := exec.CommandContext(t.Context(), os.Args[0])
			c.Env = append(os.Environ(), childEnv+"="+path)
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	all.Wait()
	s, err := secret.Open(path, bytes.Repeat([]byte{7}, 32), secret.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if list, err := s.List(); err != nil || len(list) != 40 {
		t.Errorf("%d secrets, %v", len(list), err)
	}
}

func FuzzSecret_File(f *testing.F) {
	s, path := newStore(f)
	set(f, s, "a", "x")
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte("age-encryption.org/v1\n-> scrypt \n\n---\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), secret.FileName)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		list, err := open(t, path, "a").List()
		switch {
		case errors.Is(err, secret.ErrDamaged), errors.Is(err, secret.ErrWrongKey):
		case err == nil && len(list) == 1 && list[0].Name == "a": // the file of another process that makes the same seed
			get(t, open(t, path, "a"), "a", "x")
		default:
			t.Errorf("read as %v, %v", list, err)
		}
	})
}

func BenchmarkSecret_Get(b *testing.B) {
	s, _ := newStore(b)
	for i := range 20 {
		set(b, s, fmt.Sprint("s", i), "sk-1234567890")
	}
	for b.Loop() {
		if _, err := s.Secret("s7"); err != nil {
			b.Fatal(err)
		}
	}
}
