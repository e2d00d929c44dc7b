package service

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
)

const (
	minPart    = 2 // characters of an ID that may stand for it
	partsShown = 5 // IDs that an ambiguous part is said to fit
)

// ids makes IDs of which no two of a process begin with the same ten characters, for these
// are what people read and type. Those characters hold the millisecond and little more.
type ids struct {
	mu    sync.Mutex
	given map[string]bool // short IDs of the last few milliseconds
	at    time.Time       // when the oldest of them was made
}

func (g *ids) next(prefix string) string {
	const kept = time.Second // a clock may be set back by a little
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		id := agent.NewID(prefix)
		if now := time.Now(); g.given == nil || now.Sub(g.at) > kept {
			g.given, g.at = map[string]bool{}, now
		}
		if short := toolcrib.ShortID(id); !g.given[short] {
			g.given[short] = true
			return id
		}
		time.Sleep(time.Millisecond)
	}
}

// byPart returns the one of a list whose ID is part, or the only one whose ID begins with it;
// the prefix of such IDs may be left out.
func byPart[T any](what, prefix, part string, list []T, id func(T) string) (found T, err error) {
	begin := prefix + strings.TrimPrefix(part, prefix)
	var fit []T
	for _, one := range list {
		switch {
		case id(one) == begin:
			return one, nil
		case strings.HasPrefix(id(one), begin):
			fit = append(fit, one)
		}
	}
	switch {
	case len(fit) < 2 && len(begin) < len(prefix)+minPart:
		return found, badRequestf("the %s ID %q is too short; give at least %d characters after %s",
			what, part, minPart, prefix)
	case len(fit) == 1:
		return fit[0], nil
	case len(fit) == 0:
		return found, toolcrib.Errorf(toolcrib.CodeNotFound, "there is no %s %s", what, part)
	}
	return found, ambiguous(what, part, fit, id)
}

// ambiguous is the error of a part of an ID that fits several.
func ambiguous[T any](what, part string, fit []T, id func(T) string) error {
	text := fmt.Sprintf("%s ID %s is ambiguous, give more of it", what, part)
	if what == "run" {
		text += " (its end is enough)"
	}
	text += "; it fits"
	for _, one := range fit[:min(len(fit), partsShown)] {
		text += "\n  " + id(one)
	}
	if more := len(fit) - partsShown; more > 0 {
		text += fmt.Sprintf("\n  and %d more", more)
	}
	return badRequestf("%s", text)
}
