package client

import (
	"context"
	"net/http"

	"github.com/toolcrib/toolcrib/api"
)

// Start starts a run, calls do for its events, and returns the run when it has ended or waits for a person. do
// may be nil.
func (c *Client) Start(ctx context.Context, r api.RunRequest, do func(Event) error) (run api.Run, err error) {
	if do == nil {
		do = func(Event) error { return nil }
	}
	id, err := c.Begin(ctx, "/api/runs", r, "", 0, do)
	if err != nil {
		return api.Run{ID: id}, err
	}
	return c.Run(ctx, string(id))
}

// Run returns the run with an ID. The ID last means the newest run.
func (c *Client) Run(ctx context.Context, id string) (run api.Run, err error) {
	err = c.Get(ctx, Path("runs", id), nil, &run)
	return run, err
}

// Cancel cancels a run.
func (c *Client) Cancel(ctx context.Context, id string) (run api.Run, err error) {
	err = c.Send(ctx, http.MethodPost, Path("runs", id, "cancel"), nil, &run)
	return run, err
}

// Decide sends the decision about an approval, the ApprovalID of Run.Pending. The run continues by itself. Use
// [Client.Follow] to follow it.
func (c *Client) Decide(ctx context.Context, approval string, d api.DecisionRequest) error {
	return c.Send(ctx, http.MethodPost, Path("approvals", approval), d, nil)
}
