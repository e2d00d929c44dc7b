package cli

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/version"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// exportFormat is the version of the lines below.
const exportFormat = 1

// The lines of an export. The first is a header, then come the events in their
// order, then the kept contents in pieces, then the end.
type (
	exportHeader struct {
		Export  int            `json:"toolcrib_export"`
		Run     toolcrib.RunID `json:"run_id"`
		Version string         `json:"version"` // of the toolcrib that wrote it
	}
	exportEvent struct {
		Seq         toolcrib.Seq    `json:"seq"`
		Time        time.Time       `json:"time"`
		Kind        toolcrib.Kind   `json:"kind"`
		Payload     json.RawMessage `json:"payload"` // byte for byte what PayloadHash is over
		PayloadHash string          `json:"payload_hash"`
		Hash        string          `json:"hash"` // of the chain up to this event
	}
	exportContent struct {
		Ref    string `json:"content"`
		Offset int64  `json:"offset"`
		Size   int64  `json:"size"`
		Data   []byte `json:"data"` // base64
	}
	exportEnd struct {
		End    bool `json:"end"`
		Events int  `json:"events"`
		Refs   int  `json:"contents"`
	}
)

func (a *app) runsExportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "export RUN",
		Short: "Write the whole journal of a run, with hashes and kept contents",
		Long: "Write the whole journal of a run as JSON, one value a line: a header, every event with its hashes, " +
			"the results that were kept whole, and an end. RUN is an ID, the beginning of one, or last.",
		Example: "toolcrib runs export last > run.ndjson",
		Args:    positional,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := a.databaseToRead(cmd.Context())
			if err != nil {
				return err
			}
			rec, err := a.findRun(cmd.Context(), s, args[0])
			if err != nil {
				return err
			}
			return a.export(cmd.Context(), s, rec.ID)
		},
	}
}

func (a *app) export(ctx context.Context, s *sqlite.Store, run toolcrib.RunID) error {
	if err := printJSON(a.out, exportHeader{Export: exportFormat, Run: run, Version: version.Version()}, false); err != nil {
		return err
	}
	var refs []string
	end := exportEnd{End: true}
	for e, err := range s.Read(ctx, run, 0) {
		if err != nil {
			return err
		}
		payload, err := journal.Encode(e.Body)
		if err != nil {
			return err
		}
		if len(e.PayloadHash) > 0 && !bytes.Equal(journal.PayloadHash(payload), e.PayloadHash) {
			return fmt.Errorf("event %d of %s was written by another version of toolcrib and cannot be exported byte for byte; use that one", e.Seq, run)
		}
		if err := printJSON(a.out, exportEvent{
			Seq: e.Seq, Time: e.Time, Kind: e.Body.EventKind(), Payload: payload,
			PayloadHash: hex.EncodeToString(e.PayloadHash), Hash: hex.EncodeToString(e.Hash),
		}, false); err != nil {
			return err
		}
		end.Events++
		if r, ok := e.Body.(*journal.ToolResult); ok && r.Ref != "" {
			refs = append(refs, r.Ref)
		}
	}
	for _, ref := range refs {
		if err := a.exportContent(ctx, s, run, ref); err != nil {
			return err
		}
		end.Refs++
	}
	return printJSON(a.out, end, false)
}

// exportPiece is how much of a kept result stands on one line.
const exportPiece = 256 << 10

func (a *app) exportContent(ctx context.Context, s *sqlite.Store, run toolcrib.RunID, ref string) error {
	for offset := int64(0); ; {
		data, size, err := s.Range(ctx, run, ref, offset, exportPiece)
		if err != nil {
			return err
		}
		if err := printJSON(a.out, exportContent{Ref: ref, Offset: offset, Size: size, Data: data}, false); err != nil {
			return err
		}
		offset += int64(len(data))
		if offset >= size || len(data) == 0 {
			return nil
		}
	}
}
