package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
)

// Point is a place in the life of one process where it can be killed.
type Point struct {
	Label string          // append/3/before, effect/CALL/1/after, keep/1/before, …
	Kinds []toolcrib.Kind // of the events of an append
}

// during tells whether the kill comes some time after the point instead of at it.
func (p Point) during() bool { return strings.HasSuffix(p.Label, "/during") }

// dead is where this process passes its points, and dies at one of them.
type dead struct {
	at    string        // the label to die at; "" = live
	delay time.Duration // from a point of the kind "during" to the death
	trace *os.File      // a line for each point passed

	mu      sync.Mutex
	appends int
	keeps   int
	calls   map[string]int
}

// pass notes a point, and dies if it is the one.
func (d *dead) pass(label string, events ...toolcrib.Event) {
	kinds := make([]string, len(events))
	for i, e := range events {
		kinds[i] = string(e.Body.EventKind())
	}
	if _, err := fmt.Fprintf(d.trace, "%s %s\n", label, strings.Join(kinds, ",")); err != nil {
		panic(err)
	}
	if label != d.at {
		return
	}
	if !(Point{Label: label}).during() {
		killSelf()
	}
	time.AfterFunc(d.delay, killSelf)
}

// around passes the three points of something that changes the world.
func (d *dead) around(label string, events []toolcrib.Event, do func() error) error {
	d.pass(label+"/before", events...)
	d.pass(label+"/during", events...)
	err := do()
	if err == nil {
		d.pass(label+"/after", events...)
	}
	return err
}

func (d *dead) count(n *int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	*n++
	return *n
}

// call counts the executions of a call by this process.
func (d *dead) call(id string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.calls == nil {
		d.calls = make(map[string]int)
	}
	d.calls[id]++
	return d.calls[id]
}

// deadly is a store whose process dies at an append or at a result that is kept.
type deadly struct {
	Store
	*dead
}

func (j *deadly) Append(ctx context.Context, run toolcrib.RunID, after toolcrib.Seq, events ...toolcrib.Event) error {
	n := j.count(&j.appends)
	return j.around(fmt.Sprintf("append/%d", n), events, func() error {
		return j.Store.Append(ctx, run, after, events...)
	})
}

func (j *deadly) Put(ctx context.Context, run toolcrib.RunID, ref string, data []byte) error {
	n := j.count(&j.keeps)
	return j.around(fmt.Sprintf("keep/%d", n), nil, func() error { return j.Store.Put(ctx, run, ref, data) })
}

// readTrace reads the points that a process has passed.
func readTrace(path string) ([]Point, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var points []Point
	for line := range strings.Lines(string(data)) {
		label, kinds, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		p := Point{Label: label}
		for kind := range strings.SplitSeq(kinds, ",") {
			if kind != "" {
				p.Kinds = append(p.Kinds, toolcrib.Kind(kind))
			}
		}
		points = append(points, p)
	}
	return points, nil
}
