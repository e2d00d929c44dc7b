package crash

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib/service"
)

// troubles are what keeps servers from their database for a while. Each begins its trouble in a data
// folder, and returns what ends it.
var troubles = map[string]func(t *testing.T, data string) (over func() error, err error){
	"disk full": func(_ *testing.T, data string) (func() error, error) {
		ballast := filepath.Join(data, "ballast")
		f, err := os.Create(ballast)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		for block := make([]byte, 64<<10); len(block) > 0; {
			if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
				block = block[:len(block)/2]
			} else if err != nil {
				return nil, err
			}
		}
		return func() error { return os.Remove(ballast) }, nil
	},
	"database locked": func(t *testing.T, data string) (func() error, error) {
		db, err := sql.Open("sqlite", "file:"+filepath.Join(data, service.DatabaseName)+"?_pragma=busy_timeout(60000)")
		if err != nil {
			return nil, err
		}
		c, err := db.Conn(t.Context())
		if err == nil {
			_, err = c.ExecContext(t.Context(), "BEGIN IMMEDIATE")
		}
		return func() error { return errors.Join(c.Close(), db.Close()) }, err
	},
	"database gone": func(_ *testing.T, data string) (func() error, error) {
		move := func(from, to string) (err error) {
			for _, end := range []string{"", "-wal", "-shm"} {
				path := filepath.Join(data, service.DatabaseName)
				err = errors.Join(err, os.Rename(path+from+end, path+to+end))
			}
			return err
		}
		return func() error { return move(".away", "") }, move("", ".away")
	},
}

// TestServe_Trouble has the disk full, the database locked, and its files gone, while two servers
// drive runs, each at another point. Requests are answered with 503 meanwhile. Afterwards
// each run ends as it does without trouble, each effect has happened once, and each stream is whole.
func TestServe_Trouble(t *testing.T) {
	for name, begin := range troubles {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			data := filepath.Join(dir, "data")
			if name == "disk full" {
				mountSmall(t, data)
			}
			w := newTownIn(t, dir, 1)
			free := make(chan struct{})
			w.hold = func(key string, turn int) <-chan struct{} {
				if key == fmt.Sprint("visit-", turn) {
					return free
				}
				return closed
			}
			w.open()
			w.open()
			found := make(chan []string, 1)
			go func() { found <- w.visits(4) }()
			w.eventually(func() bool {
				n := 0
				for i := range 4 {
					n += min(w.asked[fmt.Sprint("visit-", i, "/", i)], 1)
				}
				return n == 4
			})
			over, err := begin(t, data)
			if err != nil {
				t.Fatal(err)
			}
			close(free)
			for range 3 {
				w.refuses(http.MethodPost, "/api/runs", `{"input":"visit-9"}`)
			}
			w.answers(http.StatusOK, http.MethodGet, "/healthz", "")
			if err := over(); err != nil {
				t.Fatal(err)
			}
			problems := <-found
			w.end()
			problems = append(problems, w.verify()...)
			if len(problems) > 0 {
				t.Errorf("%s", strings.Join(problems, "\n    "))
			}
		})
	}
}

// mountSmall mounts a file system on a folder that a ballast fills quickly.
func mountSmall(t *testing.T, folder string) {
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	err := syscall.Mount("tmpfs", folder, "tmpfs", 0, "size=16m,mode=0700")
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.ENODEV) {
		t.Skipf("SKIP: this process may mount nothing (%v); run it as root", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(folder, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// refuses asks until a server says that its store cannot be used, as contract §9 has it.
func (w *town) refuses(method, path, body string) {
	w.t.Helper()
	status, head, text := w.answers(http.StatusServiceUnavailable, method, path, body)
	if status == 503 && (head.Get("Retry-After") == "" || !bytes.Contains(text, []byte(`"overloaded"`)) ||
		bytes.Contains(text, []byte(w.dir))) {
		w.t.Errorf("%s %s: %v %s", method, path, head, text)
	}
}

// answers asks any server, which answers with a status.
func (w *town) answers(want int, method, path, body string) (int, http.Header, []byte) {
	w.t.Helper()
	q, err := http.NewRequestWithContext(w.patient, method, "http://localhost"+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	began := time.Now()
	res, err := w.RoundTrip(q)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	w.t.Logf("%s %s: %d after %s: %s", method, path, res.StatusCode, time.Since(began).Round(time.Millisecond), text)
	if res.StatusCode != want {
		w.t.Errorf("%s %s: %d, want %d: %s", method, path, res.StatusCode, want, text)
	}
	return res.StatusCode, res.Header, text
}

