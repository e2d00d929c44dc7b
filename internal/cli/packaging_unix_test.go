//go:build unix

package cli_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/toolcrib/toolcrib/internal/natstest"
	"github.com/toolcrib/toolcrib/internal/waittest"
)

// packaged returns a file of the folder packaging.
func packaged(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "packaging", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// at returns the value at keys and indexes of a document.
func at(t *testing.T, of any, path ...any) any {
	t.Helper()
	for _, key := range path {
		switch known := of.(type) {
		case map[string]any:
			of = known[key.(string)]
		case []any:
			of = known[key.(int)]
		}
	}
	if of == nil {
		t.Fatalf("there is nothing at %v", path)
	}
	return of
}

func wordsAt(t *testing.T, of any, path ...any) (list []string) {
	t.Helper()
	for _, word := range at(t, of, path...).([]any) {
		list = append(list, word.(string))
	}
	return list
}

func document(t *testing.T, text string) (of map[string]any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), &of); err != nil {
		t.Fatal(err)
	}
	return of
}

// entry returns the words of an instruction of the Containerfile, as JSON.
func entry(t *testing.T, instruction string) (words []string) {
	t.Helper()
	line := regexp.MustCompile(`(?m)^` + instruction + ` (.*)$`).FindStringSubmatch(packaged(t, "Containerfile"))
	if line == nil || json.Unmarshal([]byte(line[1]), &words) != nil {
		t.Fatalf("there is no %s: %q", instruction, line)
	}
	return words
}

// image is a container of the test: a folder in place of the root of the file system.
type image struct {
	t       *testing.T
	root    string
	program string
	env     []string
	moved   *strings.Replacer
}

func (i image) command(args ...string) *exec.Cmd {
	i.t.Helper()
	words := append(entry(i.t, "ENTRYPOINT")[1:], args...)
	for n := range words {
		words[n] = i.moved.Replace(words[n])
	}
	c := exec.CommandContext(i.t.Context(), i.program, words...)
	c.Env = append([]string{"HOME=" + i.root, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}, i.env...)
	return c
}

// serve starts a server, and returns its address.
func (i image) serve(args ...string) (*exec.Cmd, string) {
	i.t.Helper()
	c := i.command(args...)
	log, err := c.StderrPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		i.t.Fatal(err)
	}
	i.t.Cleanup(func() { _ = c.Process.Kill() })
	var said strings.Builder
	for r := bufio.NewReader(log); ; {
		line, err := r.ReadString('\n')
		said.WriteString(line)
		if found := listens.FindStringSubmatch(line); found != nil {
			go io.Copy(io.Discard, r) //nolint:errcheck // until it ends
			return c, strings.TrimRight(found[1], `"}`)
		}
		if err != nil {
			i.t.Fatalf("%v: %s", err, &said)
		}
	}
}

// ready returns the answer to a readiness probe.
func ready(address string) string {
	r, err := http.Get(address + "/readyz")
	if err != nil {
		return err.Error()
	}
	defer r.Body.Close() //nolint:errcheck // it is read
	body, _ := io.ReadAll(r.Body)
	return fmt.Sprint(r.StatusCode, " ", string(body))
}

// The examples for Kubernetes and Compose work, with PostgreSQL and a NATS cluster of the test: the tables are made as
// they say, the configuration is accepted, three servers become ready, and one ends on SIGTERM while the others stay.
func TestPackaging_Servers(t *testing.T) {
	t.Parallel()
	var objects []map[string]any
	for text := range strings.SplitSeq(packaged(t, "kubernetes.yaml"), "\n---\n") {
		objects = append(objects, document(t, text))
	}
	compose := document(t, packaged(t, "compose.yaml"))
	pods := func(n int) any { return at(t, objects[n], "spec", "template", "spec", "containers", 0) }
	content := func(name string) string {
		return strings.ReplaceAll(at(t, compose, "configs", name, "content").(string), "$$", "$")
	}
	server := startPostgreSQL(t)
	admin := server.URL("postgres").String()
	execute(t, admin, "CREATE ROLE crib_owner LOGIN SUPERUSER PASSWORD 'change-me'")
	execute(t, admin, content("roles"))
	bus := natstest.Start(t, 3, nil)
	for _, c := range []struct {
		name, config   string
		migrate, serve []string
		database       string
	}{
		{
			"kubernetes", at(t, objects[0], "data", "toolcrib.yaml").(string), wordsAt(t, pods(2), "args"), wordsAt(t, pods(3), "args"),
			regexp.MustCompile(`--from-literal=database=(\S+)`).FindStringSubmatch(packaged(t, "kubernetes.yaml"))[1],
		},
		{
			"compose", content("toolcrib"), wordsAt(t, compose, "services", "migrate", "command"), entry(t, "CMD"),
			at(t, compose, "x-toolcrib", "environment", "TOOLCRIB_DATABASE").(string),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			execute(t, admin, "CREATE DATABASE "+c.name+" OWNER crib_owner TEMPLATE template0 ENCODING UTF8")
			there := server.URL(c.name)
			i := image{t: t, root: t.TempDir(), program: programHere(t)}
			i.moved = strings.NewReplacer("@postgres.example/crib", "@/"+c.name+"?"+there.RawQuery,
				"@postgres/crib", "@/"+c.name+"?"+there.RawQuery, "/etc/", i.root+"/etc/", "/var/lib/", i.root+"/lib/")
			database := i.moved.Replace(c.database)
			if u, err := url.Parse(database); err != nil || u.User.Username() != "crib" || database == c.database {
				t.Fatalf("%s %v", database, err)
			}
			i.env = []string{"TOOLCRIB_DATABASE=" + database, "PGPASSWORD=change-me", "OPENAI_API_KEY=sk-of-the-test"}
			text := regexp.MustCompile(`nats:[^"]*`).ReplaceAllString(i.moved.Replace(c.config), bus.URL())
			text = strings.Replace(text, "listen: 0.0.0.0:8420\n", "listen: 127.0.0.1:0\n", 1)
			for name, text := range map[string]string{"etc/toolcrib/toolcrib.yaml": text, "etc/toolcrib-keys/x": "", "lib/toolcrib/x": ""} {
				path := filepath.Join(i.root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for _, args := range [][]string{{"config", "check"}, c.migrate, c.migrate} {
				if out, err := i.command(args...).CombinedOutput(); err != nil {
					t.Fatalf("%q: %v\n%s", args, err, out)
				}
			}
			first, _ := i.serve(c.serve...)
			var others []string
			for range 2 {
				_, address := i.serve(c.serve...)
				others = append(others, address)
			}
			all := func() bool {
				for _, address := range others {
					if got := ready(address); !strings.HasPrefix(got, "200 ") || strings.Contains(got, "degraded") {
						return false
					}
				}
				return true
			}
			waittest.Until(t, "the servers are ready, and have the bus", all)
			if err := first.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := first.Wait(); err != nil {
				t.Errorf("after SIGTERM: %v", err)
			}
			waittest.Until(t, "the others are ready", all)
		})
	}
}

// programHere returns the path of toolcrib.
func programHere(t *testing.T) string {
	t.Helper()
	own, err := exec.LookPath("toolcrib")
	if plain := plainBinary(t); plain != "" && testing.Short() {
		own, err = filepath.Join(plain, "toolcrib"), nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return own
}

// The steps of the Containerfile work: the program is built from the copied files, and starts as in the image.
func TestContainerfile(t *testing.T) {
	t.Parallel()
	text := strings.ReplaceAll(packaged(t, "Containerfile"), "\\\n", " ")
	build, _, _ := strings.Cut(text, "\nFROM docker.io/library/debian")
	i := image{t: t, root: t.TempDir()}
	i.program = filepath.Join(i.root, "toolcrib")
	i.moved = strings.NewReplacer("/etc/", i.root+"/etc/", "/var/lib/toolcrib", i.root)
	steps := 0
	for _, step := range regexp.MustCompile(`(?m)^RUN (.*)$`).FindAllStringSubmatch(build, -1) {
		if step[1] == "go mod download" {
			continue // the modules are here, for the tests
		}
		steps++
		// Only paths in the program depend on -trimpath; without it what the other tests have compiled is used.
		line := strings.NewReplacer("-o /toolcrib", "-o "+i.program, "-trimpath ", "").Replace(step[1])
		c := exec.CommandContext(t.Context(), "sh", "-ec", line)
		c.Dir, c.Env = filepath.Join("..", ".."), append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -buildvcs=false")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", step[1], err, out)
		}
	}
	if steps != 1 || !strings.Contains(text, "\nCOPY --from=build /toolcrib /usr/local/bin/toolcrib\n") {
		t.Errorf("%d steps build the program", steps)
	}
	config := filepath.Join(i.root, "etc", "toolcrib", "toolcrib.yaml")
	if err := os.MkdirAll(filepath.Dir(config), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, []byte("listen: 127.0.0.1:0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	server, address := i.serve(entry(t, "CMD")...)
	if got := ready(address); !strings.HasPrefix(got, "200 ") {
		t.Error(got)
	}
	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := server.Wait(); err != nil || !strings.Contains(text, "\nSTOPSIGNAL SIGTERM\n") {
		t.Errorf("after SIGTERM: %v", err)
	}
}
