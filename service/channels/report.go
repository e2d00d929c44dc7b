package channels

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/channel"
	"github.com/toolcrib/toolcrib/guard"
)

// Report is what a channel has seen, for an administrator.
type Report struct {
	Refused []Unlisted `json:"refused"`           // the last senders who are not listed, newest first
	Total   int64      `json:"total"`             // messages of senders who are not listed
	Dropped int64      `json:"dropped"`           // messages that were too many
	Problem string     `json:"problem,omitempty"` // why nothing is received now
	// Undelivered are runs whose answers may not have arrived. They are not part of the stored report.
	Undelivered []Undelivered `json:"-"`
}

// Unlisted is a sender who is not listed.
type Unlisted struct {
	ID   string    `json:"id"`
	Name string    `json:"name"` // chosen by the sender
	At   time.Time `json:"at"`
}

// Undelivered is a run whose answer may not have arrived.
type Undelivered struct {
	Run toolcrib.RunID
	Why string
	At  time.Time
}

const (
	maxRefused       = 20
	maxUnlistedBytes = 200 // bytes of an ID or a name
	keptFor          = 7 * 24 * time.Hour
	// reportEvery is how often a report is stored at most.
	reportEvery = 5 * time.Second
	logEvery    = time.Minute
)

// refused counts a message of a sender who is not listed. They get no answer.
func (l *line) refused(m *channel.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := guard.Clip(m.Sender, maxUnlistedBytes)
	l.report.Refused = slices.DeleteFunc(l.report.Refused, func(s Unlisted) bool { return s.ID == id })
	l.report.Refused = slices.Insert(l.report.Refused, 0, Unlisted{
		ID: id, Name: guard.Clip(m.Name, maxUnlistedBytes), At: time.Now().UTC().Truncate(time.Second),
	})
	l.report.Refused = l.report.Refused[:min(len(l.report.Refused), maxRefused)]
	l.report.Total++
	l.changed = true
	if time.Since(l.logged) > logEvery {
		l.logged = time.Now()
		l.log.Warn("a message from an unlisted sender is ignored; toolcrib doctor lists the last ones",
			"sender", guard.Visible(id), "total", l.report.Total)
	}
}

// problem keeps why nothing is received, or that it works again.
func (l *line) problem(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := ""
	if err != nil {
		text = guard.Clip(err.Error(), maxError)
	}
	l.changed = l.changed || l.report.Problem != text
	l.report.Problem = text
}

// saveReport stores the report if it has changed, not too often.
func (l *line) saveReport(ctx context.Context) {
	l.mu.Lock()
	if !l.changed || time.Since(l.reported) < reportEvery {
		l.mu.Unlock()
		return
	}
	l.changed, l.reported = false, time.Now()
	data, err := json.Marshal(l.report)
	l.mu.Unlock()
	if err == nil {
		name := l.folder() + "/" + reportFile
		err = l.o.Host.Files().ChangeFile(ctx, name, func([]byte) ([]byte, error) { return data, nil })
	}
	if err != nil && l.ctx.Err() == nil {
		l.log.Warn("the report of the channel cannot be stored", "error", err)
	}
}

// ReadReport returns the report of a channel, as the server that has it has stored it.
func ReadReport(ctx context.Context, files Files, name string) (r Report, err error) {
	records, err := read(ctx, files, name, &state{}, &r)
	for _, one := range records {
		if one.Failed != "" {
			r.Undelivered = append(r.Undelivered, Undelivered{Run: one.Run, Why: one.Failed, At: one.Since})
		}
	}
	slices.SortFunc(r.Undelivered, func(a, b Undelivered) int { return b.At.Compare(a.At) })
	return r, err
}
