package crash

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/service/env"
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
		db, err := sql.Open("sqlite", "file:"+filepath.Join(data, env.DatabaseName)+"?_pragma=busy_timeout(60000)")
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
		move := func(from, to string, ends ...string) (err error) {
			for _, end := range ends {
				path := filepath.Join(data, env.DatabaseName)
				err = errors.Join(err, os.Rename(path+from+end, path+to+end))
			}
			return err
		}
		// A database without its log is another one: it goes first, and comes back last.
		back := func() error { return move(".away", "", "-wal", "-shm", "") }
		return back, move("", ".away", "", "-wal", "-shm")
	},
}

// TestServe_Trouble has the disk full, the database locked, and its files gone, while two servers
// drive runs, each at another point. Requests are answered with 503 meanwhile. Afterwards
// each run ends as it does without trouble, each effect has happened once, and each stream is whole.
func TestServe_Trouble(t *testing.T) {
	for name, begin := range troubles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			data := filepath.Join(dir, "data")
			if name == "disk full" {
				mountSmall(t, data)
			}
			w := newTownIn(t, dir, 1, townOptions{})
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
			go func() { found <- w.visits(4, 0) }()
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
			for _, q := range []string{"POST /api/runs", "GET /readyz"} {
				status, head, text := w.ask(q, `{"input":"visit-9"}`)
				if status == 200 && name == "disk full" && strings.HasPrefix(q, "POST") {
					continue // there was room in the log of the database: it is stored, and one of the five
				}
				if status != 503 || head.Get("Retry-After") == "" || strings.Contains(text, dir) {
					t.Errorf("%s: %d %v %s", q, status, head, text)
				}
			}
			if status, _, text := w.ask("GET /healthz", ""); status != 200 {
				t.Errorf("%d %s", status, text)
			}
			if err := over(); err != nil {
				t.Fatal(err)
			}
			problems := <-found
			// What was refused is one run, if it is sent again with its key.
			var late api.Run
			for status := 503; status != 200; {
				var text string
				if status, _, text = w.ask("POST /api/runs", `{"input":"visit-9"}`); status != 503 {
					if err := json.Unmarshal([]byte(text), &late); err != nil || status != 200 {
						t.Fatal(status, text)
					}
				}
			}
			w.ask("POST /api/runs/"+string(late.ID)+"/cancel", "")
			var all struct{ Runs []api.Run }
			if _, _, text := w.ask("GET /api/runs?top_level=true", ""); json.Unmarshal([]byte(text), &all) != nil || len(all.Runs) != 5 {
				t.Errorf("not 5 runs: %s", text)
			}
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

// ask sends a request, with a key, to any server.
func (w *town) ask(what, body string) (int, http.Header, string) {
	w.t.Helper()
	method, path, _ := strings.Cut(what, " ")
	q, err := http.NewRequestWithContext(w.patient, method, "http://localhost"+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Idempotency-Key", "once")
	res, err := w.RoundTrip(q)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(text)
}
