package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

func (a *app) runsImportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "import FILE",
		Short: "Import a run that runs export wrote",
		Long: "Import a run that runs export wrote, under the same ID and with the same hashes. It must have ended, must not " +
			"have been here before, and must not belong to a run tree. What it used counts here too. The hashes show that the " +
			"file is whole, not who wrote it: import only what you trust. For administrators.",
		Example: "toolcrib runs import run.ndjson",
		Args:    positional,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.importRun(cmd.Context(), args[0])
		},
	}
}

func (a *app) importRun(ctx context.Context, path string) error {
	by, err := a.administrator(ctx)
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%s: %v", pathText(path), plainCause(err))
	}
	defer func() { _ = f.Close() }() // read only
	in, err := readExport(f)
	if err != nil {
		return fmt.Errorf("%s: %v", pathText(path), err)
	}
	in.By = by
	if err := in.Check(); err != nil {
		return fmt.Errorf("%s: %v", pathText(path), err)
	}
	// What the loop cannot load could not be shown or forked either.
	var kept journal.Memory
	if err := kept.Append(ctx, in.Run, 0, in.Events...); err != nil {
		return err
	}
	if _, err := agent.Load(ctx, &kept, in.Run); err != nil {
		return fmt.Errorf("%s: %v", pathText(path), err)
	}
	s, err := a.database(ctx)
	if err != nil {
		return err
	}
	if err := s.Import(ctx, in); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "%s: %s\n", in.Run, render.Count(len(in.Events), "event"))
	return nil
}

// The bounds of an exported run.
const (
	maxImport     = 1 << 30
	maxImportLine = sqlite.MaxEventBytes + 1<<20
)

// importLine is any line of an export after the first.
type importLine struct {
	exportEvent
	Ref    string `json:"content"`
	Offset int64  `json:"offset"`
	Size   int64  `json:"size"`
	Data   []byte `json:"data"`
	End    bool   `json:"end"`
	Events int    `json:"events"`
	Refs   int    `json:"contents"`
}

// readExport reads an exported run, and checks that it is whole.
func readExport(r io.Reader) (in store.Imported, err error) {
	lines := bufio.NewScanner(io.LimitReader(r, maxImport))
	lines.Buffer(nil, maxImportLine)
	var header exportHeader
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &header) != nil || header.Export < 1 {
		return in, errors.Join(lines.Err(), errors.New("it is not a run that `toolcrib runs export` wrote"))
	}
	if header.Export > exportFormat {
		return in, fmt.Errorf("a later version of toolcrib wrote it (%s); use that version", header.Version)
	}
	in.Run, in.Contents = header.Run, map[string][]byte{}
	for n := 2; lines.Scan(); n++ {
		var line importLine
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return in, fmt.Errorf("line %d is not JSON of an export", n)
		}
		switch {
		case line.End && (line.Events != len(in.Events) || line.Refs != len(in.Contents)):
			return in, fmt.Errorf("line %d: %d events and %d contents were exported, and there are %d and %d", n, line.Events, line.Refs, len(in.Events), len(in.Contents))
		case line.End:
			return in, nil
		case line.Ref != "":
			have := in.Contents[line.Ref]
			if int64(len(have)) != line.Offset || line.Offset+int64(len(line.Data)) > line.Size {
				return in, fmt.Errorf("line %d: a piece of the content %s is missing", n, line.Ref)
			}
			in.Contents[line.Ref] = append(have, line.Data...)
			continue
		}
		e, err := line.event()
		if err != nil {
			return in, fmt.Errorf("line %d: %w", n, err)
		}
		in.Events = append(in.Events, e)
	}
	return in, errors.Join(lines.Err(), errors.New("it ends before its end: it was cut off"))
}

// event is the event of a line, whose content must have its hash.
func (l *importLine) event() (e toolcrib.Event, err error) {
	body, err := journal.Decode(l.Kind, l.Payload)
	if err != nil {
		return e, err
	}
	e = toolcrib.Event{Seq: l.Seq, Time: l.Time, Body: body}
	var err1, err2 error
	e.PayloadHash, err1 = hex.DecodeString(l.PayloadHash)
	e.Hash, err2 = hex.DecodeString(l.Hash)
	if err1 != nil || err2 != nil || !bytes.Equal(journal.PayloadHash(l.Payload), e.PayloadHash) {
		return e, fmt.Errorf("the content of event %d has another hash", l.Seq)
	}
	return e, nil
}
