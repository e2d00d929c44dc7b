package render

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// spinner shows on the last line of a terminal that something goes on. Whoever
// writes to the same terminal must hold it back first.
type spinner struct {
	out   io.Writer
	style Style
	now   func() time.Time

	mu    sync.Mutex
	text  string
	since time.Time
	shown bool
	held  bool
	frame int

	quit chan struct{}
	done sync.WaitGroup
}

func frames() []rune { return []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏") }

const (
	frameTime = 100 * time.Millisecond
	// spinnerAfter is how long something must take before it is worth a line.
	spinnerAfter = 300 * time.Millisecond
)

func newSpinner(out io.Writer, style Style) *spinner {
	s := &spinner{out: out, style: style, now: time.Now, quit: make(chan struct{})}
	s.done.Add(1)
	go s.spin()
	return s
}

func (s *spinner) spin() {
	defer s.done.Done()
	tick := time.NewTicker(frameTime)
	defer tick.Stop()
	for {
		select {
		case <-s.quit:
			return
		case <-tick.C:
			s.draw()
		}
	}
}

func (s *spinner) draw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	took := s.now().Sub(s.since)
	if s.text == "" || s.held || took < spinnerAfter {
		return
	}
	s.frame++
	all := frames()
	text := line(s.text, s.style.width()-14)
	fmt.Fprintf(s.out, "\r\x1b[K%s %s", s.style.Cyan(string(all[s.frame%len(all)])),
		s.style.Dim(text+" "+Duration(took.Truncate(100*time.Millisecond))))
	s.shown = true
}

// say names what goes on; "" = nothing.
func (s *spinner) say(text string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if text == "" {
		s.clear()
	}
	if s.text != text {
		s.text, s.since = text, s.now()
	}
}

// hold takes the line away until release, so that others can write.
func (s *spinner) hold() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	s.held = true
}

func (s *spinner) release() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = false
}

func (s *spinner) clear() {
	if s.shown {
		fmt.Fprint(s.out, "\r\x1b[K")
		s.shown = false
	}
}

// stop takes the line away and waits for the goroutine.
func (s *spinner) stop() {
	if s == nil {
		return
	}
	close(s.quit)
	s.done.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
}
