package client

import (
	"context"
	"net/http"

	"github.com/toolcrib/toolcrib/api"
)

// Start starts a run, calls do for its events (nil = nobody watches), and returns it when it has
// ended or waits for somebody.
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

// Run returns a run by its ID, or the newest as last.
func (c *Client) Run(ctx context.Context, id string) (run api.Run, err error) {
	err = c.Get(ctx, Path("runs", id), nil, &run)
	return run, err
}

// Cancel ends a run.
func (c *Client) Cancel(ctx context.Context, id string) (run api.Run, err error) {
	err = c.Send(ctx, http.MethodPost, Path("runs", id, "cancel"), nil, &run)
	return run, err
}

// Decide decides, once, what a run waits for; approval is the ApprovalID of Run.Pending. The run
// continues by itself, and [Client.Follow] watches it.
func (c *Client) Decide(ctx context.Context, approval string, d api.DecisionRequest) error {
	return c.Send(ctx, http.MethodPost, Path("approvals", approval), d, nil)
}
