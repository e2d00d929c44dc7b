// Command client asks a server by what oapi-codegen makes of its OpenAPI document.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"log"
	"net/http"
	"os"
	"slices"
	"strings"

	"client/toolcrib"
)

func main() {
	ctx := context.Background()
	signed := func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+os.Args[2])
		return nil
	}
	c, err := toolcrib.NewClientWithResponses(os.Args[1], toolcrib.WithRequestEditorFn(signed))
	check(err)
	input, status := "x", "completed"
	started, err := c.PostRunsWithResponse(ctx, nil, toolcrib.RunRequest{Input: &input})
	check(err)
	var run toolcrib.Run = *started.JSON200
	shown, err := c.GetRunsIdWithResponse(ctx, run.Id)
	check(err)
	list, err := c.GetRunsWithResponse(ctx, &toolcrib.GetRunsParams{Status: &status})
	check(err)
	listed := slices.ContainsFunc(*list.JSON200.Runs, func(r toolcrib.Run) bool { return r.Id == run.Id })
	missing, err := c.GetRunsIdWithResponse(ctx, "run_missing")
	check(err)
	now := "now"
	events, err := c.GetRunsIdEvents(ctx, run.Id, &toolcrib.GetRunsIdEventsParams{Until: &now})
	check(err)
	last := ""
	lines := bufio.NewScanner(events.Body)
	for lines.Scan() {
		if name, is := strings.CutPrefix(lines.Text(), "event: "); is {
			last = name
		}
	}
	check(lines.Err())
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"content": run.Content, "status": shown.JSON200.Status, "listed": listed,
		"missing": missing.JSON404.Error, "last": last,
	}))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
