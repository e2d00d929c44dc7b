package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/server"
)

// attachTo adds to a task what goes with its prompt: images, PDF documents and texts, and
// resources of MCP servers, as SERVER:URI. by is how they were asked for.
func (a *app) attachTo(ctx context.Context, who toolcrib.Principal, task *agent.Task, by string,
	paths ...string,
) error {
	for _, path := range paths {
		data, err := readAttached(path)
		if server, uri, ok := strings.Cut(path, ":"); err != nil && ok && a.remote == nil && a.service.HasMCP(server) {
			if err := a.service.AddResource(ctx, who, task, server, uri); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return usagef("%s: %s %v", by, guard.Visible(path), err)
		}
		media := server.MediaType(data)
		if media == "" {
			return usagef("%s: %s is neither an image (PNG, JPEG, GIF, WebP) nor a PDF document nor a text", by,
				guard.Visible(path))
		}
		task.Files = append(task.Files, toolcrib.OutputFile{MediaType: media, Name: filepath.Base(path), Data: data})
	}
	return nil
}

// readAttached reads a regular file of at most toolcrib.MaxFileBytes.
func readAttached(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("does not exist")
	case err != nil:
		return nil, errors.New("cannot be read by this user")
	case !info.Mode().IsRegular():
		return nil, errors.New("is not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, errors.New("cannot be read by this user")
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, toolcrib.MaxFileBytes+1))
	switch {
	case err != nil:
		return nil, errors.New("cannot be read")
	case len(data) == 0:
		return nil, errors.New("is empty")
	case len(data) > toolcrib.MaxFileBytes:
		return nil, fmt.Errorf("has more than %d bytes", toolcrib.MaxFileBytes)
	}
	return data, nil
}
