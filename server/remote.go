package server

import (
	"net/http"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/api"
)

// The routes of command lines that use a server instead of a data folder.

// approveOf parses how calls that need an approval are decided.
func approveOf(word string) (agent.Approve, error) {
	switch how := agent.Approve(word); how {
	case "":
		return agent.ApproveNone, nil
	case agent.ApproveNone, agent.ApproveAll, agent.ApproveDeny:
		return how, nil
	}
	return "", bad("approve: must be none, all or deny")
}

func (c *call) transcript(run toolcrib.RunID) (out api.Transcript, err error) {
	out.Messages, err = c.Service.Transcript(c, c.who, string(run))
	return out, err
}

func (c *call) verifyRun(run toolcrib.RunID) (out api.CheckedList, err error) {
	out.Checked, err = c.Service.Verify(c, c.who, string(run), nil)
	return out, err
}

func (c *call) replayRun(run toolcrib.RunID) (out api.CheckedList, err error) {
	out.Checked, err = c.Service.Replay(c, c.who, string(run))
	return out, err
}

// ofRun returns a route of a function about the run in the path.
func ofRun[A any](path, summary string, do func(*call, toolcrib.RunID) (A, error)) route {
	return get(path, summary, func(c *call) (out A, err error) {
		run, err := c.run()
		if err == nil {
			out, err = do(c, run.ID)
		}
		return out, err
	})
}

// exportRun writes a run unchanged. If the last line does not end it, the export is incomplete.
func (c *call) exportRun() (any, error) {
	run, err := c.run()
	if err != nil {
		return nil, err
	}
	c.wrote = true
	c.w.Header().Set("Content-Type", "application/x-ndjson")
	if err := c.Service.ExportRun(c, c.who, string(run.ID), &slowly{c.w, http.NewResponseController(c.w)}); err != nil {
		c.Log.Info("a run was not exported whole", "run", run.ID, "error", err)
		panic(http.ErrAbortHandler) // so that the client sees that it is incomplete
	}
	return nil, nil
}

// slowly extends the write deadline with each write.
type slowly struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (s *slowly) Write(p []byte) (int, error) {
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // if the connection supports it
	return s.w.Write(p)
}

// soFar writes the events that a run has now.
func (c *call) soFar(run string, after toolcrib.Seq) error {
	out := c.stream(c.w)
	c.wrote = true
	if err := out.begin(); err != nil {
		return err
	}
	_ = c.Service.Events(c, c.who, run, after, false, out.frame) // the client may have disconnected
	return nil
}
