package shell

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

// Names of the tools for what exec_shell runs in the background.
const (
	ReadOutputName  = "read_output"
	StopProcessName = "stop_process"
)

const (
	maxBackground = 4         // that run at a time, for each run
	maxEnded      = 16        // that have ended and are still known, for each run
	maxLasting    = time.Hour // of one of them
	maxTail       = 64 << 10  // bytes of its output that are kept: the last ones
	maxWait       = 30        // seconds that read_output waits
)

// background is what runs behind the calls of runs, for one exec_shell. A run's processes
// are stopped, and forgotten, when its driver releases it.
type background struct {
	mu   sync.Mutex
	jobs map[toolcrib.RunID][]*behind
}

// behind is a command in the background.
type behind struct {
	id    string
	line  string
	stop  context.CancelCauseFunc
	ended chan struct{}

	mu   sync.Mutex
	tail tail
	view processView // as it ended
}

// processView is what a model reads of a command in the background.
type processView struct {
	ID       string `json:"id"`
	Status   string `json:"status"` // running | exited | stopped | failed | gone
	ExitCode *int   `json:"exit_code,omitempty"`
	Message  string `json:"message,omitempty"`
	Bytes    int64  `json:"bytes"`  // that it has written
	Output   string `json:"output"` // the last bytes, errors among it
}

func (v processView) out() (toolcrib.Output, error) {
	out, err := wire.Output(v)
	out.Long, out.LongEnd = []string{"output"}, true
	out.Cut = v.Bytes > int64(len(v.Output))
	return out, err
}

// tail keeps the end of a stream.
type tail struct {
	kept  []byte
	total int64
}

func (t *tail) add(p []byte, most int) {
	t.total += int64(len(p))
	t.kept = append(t.kept, p[max(0, len(p)-most):]...)
	if len(t.kept) > 2*most {
		t.kept = append(t.kept[:0], t.last(most)...)
	}
}

func (t *tail) last(most int) []byte { return t.kept[max(0, len(t.kept)-most):] }

var (
	errStopped = errors.New("stopped by " + StopProcessName)
	errLasting = errors.New("stopped after its time")
)

// look returns what a model reads now.
func (b *behind) look() processView {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.view
	if v.Status == "" {
		v.Status = "running"
	}
	v.ID, v.Bytes = b.id, b.tail.total
	v.Output = strings.ToValidUTF8(string(b.tail.last(maxTail)), "\uFFFD")
	return v
}

func (b *behind) heard(p []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tail.add(p, maxTail)
}

// end writes down how the command ended.
func (b *behind) end(ctx context.Context, res ran, err error) {
	b.mu.Lock()
	v := &b.view
	switch {
	case ctx.Err() != nil:
		v.Status, v.Message = "stopped", context.Cause(ctx).Error()
	case err != nil:
		v.Status, v.Message = "failed", err.Error()
	case res.stopped:
		v.Status, v.Message = "stopped", res.Warning
	default:
		v.Status, v.ExitCode, v.Message = "exited", &res.ExitCode, res.Warning
		if res.Signal != "" {
			v.Message = strings.TrimSpace("killed by signal: " + res.Signal + " " + res.Warning)
		}
	}
	b.mu.Unlock()
	close(b.ended)
}

// wait waits until the command ends, or for that long.
func (b *behind) wait(ctx context.Context, most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-b.ended:
	case <-ctx.Done():
	case <-timer.C:
	}
}

// add takes in a command, unless there are too many.
func (g *background) add(run toolcrib.RunID, b *behind) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	running := 0
	for _, other := range g.jobs[run] {
		if other.look().Status == "running" {
			running++
		}
	}
	if running >= maxBackground {
		return toolcrib.Failf(toolcrib.ExecutionFailed, "%d commands of this run are in the background, and no more may be; "+
			"stop one with %s", running, StopProcessName)
	}
	all := append(g.jobs[run], b)
	for i := 0; len(all) > maxEnded; i++ { // the oldest that has ended goes
		if all[i].look().Status != "running" {
			all = append(all[:i:i], all[i+1:]...)
			i = -1
		}
	}
	g.jobs[run] = all
	return nil
}

func (g *background) find(run toolcrib.RunID, id string) *behind {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, b := range g.jobs[run] {
		if b.id == id {
			return b
		}
	}
	return nil
}

// start starts a plan in the background. It takes over the plan.
func (s *shell) start(ctx context.Context, call toolcrib.Call, p *plan, most time.Duration) (toolcrib.Output, error) {
	stopped, stop := context.WithCancelCause(context.Background())
	b := &behind{id: "proc_" + call.ID, line: p.line, stop: stop, ended: make(chan struct{})}
	work := func(lasting context.Context) {
		defer s.behind.forget(call.Run, b)
		defer p.close()
		timed, cancel := context.WithCancelCause(lasting)
		defer cancel(nil)
		defer context.AfterFunc(stopped, func() { cancel(errStopped) })()
		defer time.AfterFunc(most, func() { cancel(errLasting) }).Stop()
		res, err := s.run(timed, call, p, b.heard, func() {})
		b.end(timed, res, err)
		<-lasting.Done() // so long it can be asked about
	}
	if err := s.behind.add(call.Run, b); err != nil {
		p.close()
		return toolcrib.Output{}, err
	}
	if call.Behind == nil || !call.Behind(work) {
		s.behind.forget(call.Run, b)
		p.close()
		return toolcrib.Output{}, refuse("nothing can run in the background here")
	}
	b.wait(ctx, time.Second) // what fails at once is told at once
	return b.look().out()
}

func (g *background) forget(run toolcrib.RunID, b *behind) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, other := range g.jobs[run] {
		if other == b {
			g.jobs[run] = append(g.jobs[run][:i:i], g.jobs[run][i+1:]...)
		}
	}
	if len(g.jobs[run]) == 0 {
		delete(g.jobs, run)
	}
}

// Companions returns the tools for what an exec_shell runs in the background; none for
// another tool.
func Companions(tool toolcrib.Tool) []toolcrib.Tool {
	s, ok := tool.(*shell)
	if !ok {
		return nil
	}
	return []toolcrib.Tool{&companion{s.behind, false}, &companion{s.behind, true}}
}

// companion is read_output, or stop_process.
type companion struct {
	of   *background
	stop bool
}

// asked is what they are called with.
type asked struct {
	ID   string `json:"id"`
	Wait int    `json:"wait"`
}

// Spec describes the tool.
func (c *companion) Spec() toolcrib.Spec {
	const id = `"id": {"type": "string", "minLength": 1, "maxLength": 200}`
	spec := toolcrib.Spec{Group: Group, Source: Source, EnabledByDefault: true, Timeout: (maxWait + 10) * time.Second}
	if c.stop {
		spec.Name, spec.Effect = StopProcessName, toolcrib.EffectIdempotentWrite
		spec.Description = "Stop a background command of exec_shell."
		spec.Parameters = json.RawMessage(`{"type": "object", "properties": {` + id +
			`}, "required": ["id"], "additionalProperties": false}`)
		return spec
	}
	spec.Name, spec.Effect = ReadOutputName, toolcrib.EffectReadOnly
	spec.Description = "Status and last output of a background command of exec_shell."
	spec.Parameters = json.RawMessage(`{"type": "object", "properties": {` + id +
		fmt.Sprintf(`, "wait": {"type": "integer", "minimum": 0, "maximum": %d, "description": "seconds"}`, maxWait) +
		`}, "required": ["id"], "additionalProperties": false}`)
	return spec
}

// Preview shows which command is meant.
func (c *companion) Preview(_ context.Context, call toolcrib.Call) (toolcrib.Preview, error) {
	var in asked
	if err := wire.Decode(call.Arguments, &in); err != nil {
		return toolcrib.Preview{}, err
	}
	if b := c.of.find(call.Run, in.ID); b != nil {
		return toolcrib.Preview{Kind: "text", Text: b.line}, nil
	}
	return toolcrib.Preview{Kind: "text", Text: "There is no such process."}, nil
}

// Call returns what the command has written. One that is not known has been stopped with the
// driver that had started it. What a command prints may be what has tainted the run, so it
// is untrusted data then.
func (c *companion) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	var in asked
	if err := wire.Decode(call.Arguments, &in); err != nil {
		return toolcrib.Output{}, err
	}
	if err := ctx.Err(); err != nil {
		return toolcrib.Output{}, err
	}
	if in.ID == "" {
		return toolcrib.Output{}, toolcrib.Failf(toolcrib.InvalidArguments, "id is missing")
	}
	view := processView{ID: in.ID, Status: "gone", Message: "There is no such process. " +
		"Commands in the background are stopped when the run waits for a person, is interrupted, or ends; start it again if it is needed."}
	if b := c.of.find(call.Run, in.ID); b != nil {
		most := time.Duration(min(max(in.Wait, 0), maxWait)) * time.Second
		if c.stop {
			b.stop(errStopped)
			most = 5 * time.Second
		}
		b.wait(ctx, most)
		view = b.look()
	}
	out, err := view.out()
	if call.Tainted {
		out.Untrusted, out.Source = true, Name
	}
	return out, err
}

const (
	tellEvery = 100 * time.Millisecond
	maxTold   = 4 << 10 // bytes of output in one piece of progress: the last ones
)

// teller passes output on as progress of its call: whole lines, so that a secret in one can
// be recognized, and not too often.
type teller struct {
	mu   sync.Mutex
	tell func(message string, fraction float64)
	told time.Time
	held []byte
	late *time.Timer // passes on what came too soon after something else; nil = nothing did
	over bool
}

func (t *teller) heard(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held = append(t.held, p[max(0, len(p)-maxTold):]...)
	t.held = append(t.held[:0], t.held[max(0, len(t.held)-maxTold):]...)
	switch wait := tellEvery - time.Since(t.told); {
	case wait <= 0:
		t.pass()
	case t.late == nil:
		t.late = time.AfterFunc(wait, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.late = nil
			t.pass()
		})
	}
}

// pass tells the whole lines that are held.
func (t *teller) pass() {
	end := bytes.LastIndexByte(t.held, '\n')
	if end < 0 || t.over {
		return
	}
	text := strings.ToValidUTF8(string(t.held[:end]), "\uFFFD")
	t.held = append(t.held[:0], t.held[end+1:]...)
	t.told = time.Now()
	t.tell(text, -1)
}

// stop ends it: nothing is told from then on.
func (t *teller) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over = true; t.late != nil {
		t.late.Stop()
	}
}
