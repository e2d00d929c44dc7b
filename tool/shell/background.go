package shell

import (
	"bytes"
	"cmp"
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

// Names of the tools for background commands of exec_shell.
const (
	ReadOutputName  = "read_output"
	StopProcessName = "stop_process"
)

const (
	maxBackground = 4         // running commands of one run
	maxEnded      = 16        // commands of one run that are kept, if not all are running
	maxLasting    = time.Hour // duration of a command
	maxTail       = 64 << 10  // bytes at the end of the output that are kept
	maxWait       = 30        // seconds that read_output waits
)

// background has the background commands of all runs, for one exec_shell. Those of a run are
// stopped and removed when its driver releases the run.
type background struct {
	mu   sync.Mutex
	jobs map[toolcrib.RunID][]*process
}

// process is a background command.
type process struct {
	id    string
	line  string
	of    *plan
	stop  context.CancelCauseFunc
	ended chan struct{}

	mu   sync.Mutex
	tail tail
	view processView // set when it ends
}

// processView describes a background command to the model.
type processView struct {
	ID       string `json:"id"`
	Status   string `json:"status"` // running | exited | stopped | failed | gone
	ExitCode *int   `json:"exit_code,omitempty"`
	Message  string `json:"message,omitempty"`
	Bytes    int64  `json:"bytes"`  // length of all output
	Output   string `json:"output"` // last bytes of stdout and stderr, mixed
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

// current returns the view of the command now.
func (b *process) current() processView {
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

func (b *process) output(p []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tail.add(p, maxTail)
}

// end records how the command ended.
func (b *process) end(ctx context.Context, res ran, err error) {
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
		v.Status, v.ExitCode, v.Message = "exited", &res.ExitCode, strings.TrimSpace(res.Warning+" "+res.Hint)
		if res.Signal != "" {
			v.Message = strings.TrimSpace("killed by signal: " + res.Signal + " " + res.Warning)
		}
	}
	b.mu.Unlock()
	close(b.ended)
}

// wait waits until the command or ctx ends, but at most for most.
func (b *process) wait(ctx context.Context, most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-b.ended:
	case <-ctx.Done():
	case <-timer.C:
	}
}

// add adds a command, unless too many are running.
func (g *background) add(run toolcrib.RunID, b *process) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	running := 0
	for _, other := range g.jobs[run] {
		if other.current().Status == "running" {
			running++
		}
	}
	if running >= maxBackground {
		return toolcrib.Failf(toolcrib.ExecutionFailed, "%d commands of this run are in the background, and no more may be; "+
			"stop one with %s", running, StopProcessName)
	}
	all := append(g.jobs[run], b)
	for i := 0; len(all) > maxEnded; i++ { // remove the oldest that has ended
		if all[i].current().Status != "running" {
			all = append(all[:i:i], all[i+1:]...)
			i = -1
		}
	}
	g.jobs[run] = all
	return nil
}

func (g *background) find(run toolcrib.RunID, id string) *process {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, b := range g.jobs[run] {
		if b.id == id {
			return b
		}
	}
	return nil
}

// start starts a plan in the background, and closes the plan when the command ends.
func (s *shell) start(ctx context.Context, call toolcrib.Call, p *plan, most time.Duration) (toolcrib.Output, error) {
	stopped, stop := context.WithCancelCause(context.Background())
	b := &process{id: "proc_" + call.ID, line: p.Command, of: p, stop: stop, ended: make(chan struct{})}
	work := func(lasting context.Context) {
		defer s.background.forget(call.Run, b)
		defer p.w.Close()
		timed, cancel := context.WithCancelCause(lasting)
		defer cancel(nil)
		defer context.AfterFunc(stopped, func() { cancel(errStopped) })()
		defer time.AfterFunc(most, func() { cancel(errLasting) }).Stop()
		res, err := s.run(timed, call, p, b.output, func() {})
		s.connected(call, p, &res)
		b.end(timed, res, err)
		<-lasting.Done() // until then read_output can find it
	}
	if err := s.background.add(call.Run, b); err != nil {
		p.w.Close()
		return toolcrib.Output{}, err
	}
	if call.Behind == nil || !call.Behind(work) {
		s.background.forget(call.Run, b)
		p.w.Close()
		return toolcrib.Output{}, refuse("nothing can run in the background here")
	}
	b.wait(ctx, time.Second) // report a command that fails at once
	out, err := b.current().out()
	if from := p.sources(); p.proxy != nil || from != "" { // what its proxy receives later may reach the run by a file
		out.Untrusted, out.Source = true, cmp.Or(from, Name)
	}
	return out, err
}

func (g *background) forget(run toolcrib.RunID, b *process) {
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

// Companions returns the tools for the background commands of an exec_shell, or nil if tool is not one.
func Companions(tool toolcrib.Tool) []toolcrib.Tool {
	s, ok := tool.(*shell)
	if !ok {
		return nil
	}
	return []toolcrib.Tool{&companion{s.background, false}, &companion{s.background, true}}
}

// companion is read_output or, with stop, stop_process.
type companion struct {
	of   *background
	stop bool
}

// asked are their arguments.
type asked struct {
	ID   string `json:"id"`
	Wait int    `json:"wait"`
}

// Spec describes the tool. Both only read: stop_process ends nothing but what its own run has started.
func (c *companion) Spec() toolcrib.Spec {
	const id = `"id": {"type": "string", "minLength": 1, "maxLength": 200}`
	spec := toolcrib.Spec{
		Effect: toolcrib.EffectReadOnly, Group: Group, Source: Source, EnabledByDefault: true,
		Timeout: (maxWait + 10) * time.Second,
	}
	if c.stop {
		spec.Name = StopProcessName
		spec.Description = "Stop a background command of exec_shell."
		spec.Parameters = json.RawMessage(`{"type": "object", "properties": {` + id +
			`}, "required": ["id"], "additionalProperties": false}`)
		return spec
	}
	spec.Name = ReadOutputName
	spec.Description = "Status and last output of a background command of exec_shell."
	spec.Parameters = json.RawMessage(`{"type": "object", "properties": {` + id +
		fmt.Sprintf(`, "wait": {"type": "integer", "minimum": 0, "maximum": %d, "description": "seconds"}`, maxWait) +
		`}, "required": ["id"], "additionalProperties": false}`)
	return spec
}

// Plan decodes the arguments. The preview shows the command line of the process.
func (c *companion) Plan(_ context.Context, call toolcrib.Call) (*toolcrib.Plan, error) {
	plan, in, err := wire.Plan(call, asked{}, c.do)
	plan.Preview = func(context.Context) (toolcrib.Preview, error) {
		if b := c.of.find(call.Run, in.ID); b != nil {
			return toolcrib.Preview{Kind: "text", Text: b.line}, nil
		}
		return toolcrib.Preview{Kind: "text", Text: "There is no such process."}, nil
	}
	return plan, err
}

// Call plans the call and runs the plan.
func (c *companion) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	return toolcrib.RunPlan(ctx, c, call)
}

// do returns the state and the last output of a command. A command that is not found was
// stopped with the driver that had started it. If the run is tainted, the output is untrusted
// data: the command may print what has tainted the run.
func (c *companion) do(ctx context.Context, call toolcrib.Call, in asked) (toolcrib.Output, error) {
	if in.ID == "" {
		return toolcrib.Output{}, toolcrib.Failf(toolcrib.InvalidArguments, "id is missing")
	}
	view := processView{ID: in.ID, Status: "gone", Message: "There is no such process. " +
		"Commands in the background are stopped when the run is left waiting for a person, is interrupted, or ends; start it again if it is needed."}
	from := ""
	if b := c.of.find(call.Run, in.ID); b != nil {
		most := time.Duration(min(max(in.Wait, 0), maxWait)) * time.Second
		if c.stop {
			b.stop(errStopped)
			most = 5 * time.Second
		}
		b.wait(ctx, most)
		view = b.current()
		from = b.of.sources() // after what they are the sources of
	}
	out, err := view.out()
	if call.Tainted || from != "" {
		out.Untrusted, out.Source = true, cmp.Or(from, Name)
	}
	return out, err
}

const (
	reportEvery = 100 * time.Millisecond
	maxReported = 4 << 10 // bytes at the end of the output in one report
)

// progress reports output as progress of its call, not too often. It reports complete lines, so
// that a secret in a line can be recognized.
type progress struct {
	mu      sync.Mutex
	report  func(message string, fraction float64)
	last    time.Time // time of the last report
	pending []byte
	timer   *time.Timer // for output that came too soon after the last report, or nil
	stopped bool
}

func (t *progress) output(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending = append(t.pending, p[max(0, len(p)-maxReported):]...)
	t.pending = append(t.pending[:0], t.pending[max(0, len(t.pending)-maxReported):]...)
	switch wait := reportEvery - time.Since(t.last); {
	case wait <= 0:
		t.flush()
	case t.timer == nil:
		t.timer = time.AfterFunc(wait, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.timer = nil
			t.flush()
		})
	}
}

// flush reports the complete lines that are pending.
func (t *progress) flush() {
	end := bytes.LastIndexByte(t.pending, '\n')
	if end < 0 || t.stopped {
		return
	}
	text := strings.ToValidUTF8(string(t.pending[:end]), "\uFFFD")
	t.pending = append(t.pending[:0], t.pending[end+1:]...)
	t.last = time.Now()
	t.report(text, -1)
}

// stop ends all reports.
func (t *progress) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped = true; t.timer != nil {
		t.timer.Stop()
	}
}
