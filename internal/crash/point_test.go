package crash

import (
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
	Label string          // append/3/before, append/AGENT/1/before of a child run, effect/CALL/1/after, keep/1/before, …
	Kinds []toolcrib.Kind // of the events of an append
}

// during reports whether the kill comes some time after the point instead of at it.
func (p Point) during() bool { return strings.HasSuffix(p.Label, "/during") }

// dead is where this process passes its points, and dies at one of them.
type dead struct {
	at    string        // the label to die at; "" = live
	delay time.Duration // from a point of the kind "during" to the death
	trace *os.File      // a line for each point passed

	mu     sync.Mutex
	counts map[string]int // by the beginning of the label
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

// label numbers what begins so, in this process.
func (d *dead) label(begin string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.counts == nil {
		d.counts = make(map[string]int)
	}
	d.counts[begin]++
	return fmt.Sprintf("%s/%d", begin, d.counts[begin])
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
