package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// process is one whose CPU and memory are measured.
type process struct {
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

// startProcess starts one. What it says is read from its standard error if errors is true, else from
// its standard output.
func startProcess(cmd *exec.Cmd, errors bool) (*process, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	var out io.Reader
	if errors {
		out, err = cmd.StderrPipe()
	} else {
		cmd.Stderr = os.Stderr
		out, err = cmd.StdoutPipe()
	}
	if err != nil {
		return nil, err
	}
	return &process{cmd: cmd, in: in, out: bufio.NewReader(out)}, cmd.Start()
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// clockTick is the unit of times in /proc.
const clockTick = 10 * time.Millisecond

// cpu is what the process has used so far.
func (p *process) cpu() time.Duration {
	_, own, _ := cpuOf(p.cmd.Process.Pid)
	return own
}

// cpuOf returns the parent of a process, what it has used, and what its children have used that have ended.
func cpuOf(pid int) (parent int, own, ended time.Duration) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 15 {
		return 0, 0, 0
	}
	n := func(i int) int { v, _ := strconv.Atoi(fields[i]); return v }
	return n(1), time.Duration(n(11)+n(12)) * clockTick, time.Duration(n(13)+n(14)) * clockTick
}

// costs is the CPU of the process for each of n times.
func (p *process) costs(n int, do func() error) (time.Duration, error) {
	from := p.cpu()
	for range n {
		if err := do(); err != nil {
			return 0, err
		}
	}
	return (p.cpu() - from) / time.Duration(n), nil
}

// resident is the memory of the process that is not swapped out.
func (p *process) resident() int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	found := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(text)
	if found == nil {
		return 0
	}
	n, _ := strconv.ParseInt(string(found[1]), 10, 64)
	return n << 10
}

// server is a server in a process of its own.
type server struct {
	*process
	url, token string
	ready      time.Duration // from its start until it said so
	http       *http.Client
}

const config = `
data_dir: %s
workspace: %s
%s
providers: {mock: {type: openai, api_key: none, base_url: '%s', max_concurrent: 1000}}
agents:
  default: {model: mock/rounds, system: %q, tools: [update_plan]}
  parks: {model: mock/parks, tools: [write_file]}
  waits: {model: mock/waits, tools: []}
  slow: {model: mock/slow, system: %[5]q, tools: [update_plan]}
`

// start starts a server on a folder. With collected its heap is collected so often that what it has in
// use shows.
func (b *bench) start(ctx context.Context, dir string, collected bool) (*server, error) {
	return b.startOn(ctx, dir, "data", "", collected)
}

// startOn starts a server whose data folder has a name in dir, with more configuration.
func (b *bench) startOn(ctx context.Context, dir, name, more string, collected bool) (*server, error) {
	path, data := filepath.Join(dir, name+".yaml"), filepath.Join(dir, name)
	text := fmt.Sprintf(config, data, dir, more, b.model.url, system)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(b.binary, "--config", path, "serve", "--listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir)
	if collected {
		cmd.Env = append(cmd.Env, "GOGC=5")
	}
	began := time.Now()
	p, err := startProcess(cmd, true)
	if err != nil {
		return nil, err
	}
	s := &server{process: p, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}}
	said := ""
	for s.url == "" {
		line, err := p.out.ReadString('\n')
		if err != nil {
			p.kill()
			return nil, fmt.Errorf("the server ends: %s%s", said, line)
		}
		said += line
		if _, url, ok := strings.Cut(line, "listens on "); ok {
			s.url = strings.TrimSpace(url)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, p.out) }()
	token, err := os.ReadFile(filepath.Join(data, "first-token"))
	if err != nil && more == "" {
		return nil, err
	}
	s.token = strings.TrimSpace(string(token))
	for time.Since(began) < time.Minute {
		if s.ask(ctx, "GET", "/readyz", nil, nil) == nil {
			s.ready = time.Since(began)
			return s, nil
		}
		time.Sleep(time.Millisecond)
	}
	return nil, errors.New("the server is not ready")
}

// request sends a request whose answer the caller closes.
func (s *server) request(ctx context.Context, method, path string, body any, accept string) (*http.Response, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	var sent io.Reader
	if body != nil {
		sent = bytes.NewReader(text)
	}
	q, err := http.NewRequestWithContext(ctx, method, s.url+path, sent)
	if err != nil {
		return nil, err
	}
	q.Header.Set("Authorization", "Bearer "+s.token)
	q.Header.Set("Accept", accept)
	if body != nil {
		q.Header.Set("Content-Type", "application/json")
	}
	a, err := s.http.Do(q)
	if err == nil && a.StatusCode/100 != 2 {
		why, _ := io.ReadAll(a.Body)
		_ = a.Body.Close()
		return nil, fmt.Errorf("%s %s: %s %s", method, path, a.Status, why)
	}
	return a, err
}

// ask sends a request and reads the answer.
func (s *server) ask(ctx context.Context, method, path string, body, out any) error {
	a, err := s.request(ctx, method, path, body, "application/json")
	if err != nil {
		return err
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err == nil && out != nil {
		err = json.Unmarshal(text, out)
	}
	return err
}

// run is what is read of a run.
type run struct {
	ID, Status, Content string
	LastSeq             int `json:"last_seq"`
	Pending             *struct {
		ApprovalID string `json:"approval_id"`
		Digest     string
	}
}

// answered starts a run and waits for its end or its pause; out may be nil.
func (b *bench) answered(ctx context.Context, s *server, agent string, out *run) error {
	if out == nil {
		out = &run{}
	}
	name := agent
	if name == "rounds" {
		name = "default"
	}
	err := s.ask(ctx, "POST", "/api/runs", map[string]any{"agent": name, "input": prompt}, out)
	if err == nil && (agent == "parks") == (out.Content == answer) {
		err = fmt.Errorf("the run is %+v", *out)
	}
	return err
}

// live is the heap that a server has in use, after it was collected.
func (s *server) live(ctx context.Context) (least int64, err error) {
	for range 30 {
		a, err := s.request(ctx, "GET", "/metrics", nil, "text/plain")
		if err != nil {
			return 0, err
		}
		text, err := io.ReadAll(a.Body)
		_ = a.Body.Close()
		if err != nil {
			return 0, err
		}
		found := regexp.MustCompile(`(?m)^go_memstats_heap_alloc_bytes (\S+)`).FindSubmatch(text)
		if found == nil {
			return 0, errors.New("no metric says what the heap is")
		}
		n, err := strconv.ParseFloat(string(found[1]), 64)
		if err != nil {
			return 0, err
		}
		if least == 0 || int64(n) < least {
			least = int64(n)
		}
		time.Sleep(100 * time.Millisecond)
	}
	return least, nil
}

// events opens the stream of a run after an event.
func (s *server) events(ctx context.Context, id string, after int) (net.Conn, *bufio.Reader, error) {
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		return nil, nil, err
	}
	fmt.Fprintf(c, "GET /api/runs/%s/events?after=%d HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", id, after, s.token)
	r := bufio.NewReaderSize(c, 1<<10)
	status, err := r.ReadString('\n')
	if err == nil && !strings.Contains(status, " 200 ") {
		err = fmt.Errorf("events: %s", status)
	}
	return c, r, err
}

// event reads the next event of a stream.
func event(r *bufio.Reader) (name, data string, err error) {
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return "", "", err
		}
		line = strings.TrimRight(line, "\r\n")
		if value, ok := strings.CutPrefix(line, "event: "); ok {
			name = value
		} else if value, ok := strings.CutPrefix(line, "data: "); ok {
			return name, value, nil
		}
	}
}
