package store

import (
	"bytes"
	"errors"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// Imported is a run of another store, as it was exported there.
type Imported struct {
	Run      toolcrib.RunID
	By       string           // who imports it
	Events   []toolcrib.Event // with the hashes that they had
	Contents map[string][]byte
}

// SystemRunImported says that a run was not made here. Payload: RunImported.
const SystemRunImported toolcrib.Kind = "run_imported"

// RunImported names a run that was imported, and who did it.
type RunImported struct {
	Run  toolcrib.RunID `json:"run_id"`
	Seq  toolcrib.Seq   `json:"seq"`  // its last event
	Hash string         `json:"hash"` // hex, of its chain
	By   string         `json:"by"`
}

// Check reports why a run cannot be imported; nil = it can. A run that has not ended
// could continue by decisions that nobody made here. One of a run tree is a part of what
// other runs say. Calls of an access token are counted where they were made.
func (in *Imported) Check() error {
	if in.Run == "" || in.By == "" {
		return errors.New("import: a run ID and who imports it are needed")
	}
	rec, claims := RunRecord{ID: in.Run}, []ChildClaim(nil)
	var prev []byte
	for i, e := range in.Events {
		prev = journal.ChainHash(prev, in.Run, e.Seq, e.Body.EventKind(), e.Time, e.PayloadHash)
		switch _, start := e.Body.(*journal.RunStarted); {
		case e.Seq != toolcrib.Seq(i)+1 || start != (i == 0):
			return &ChainError{Run: in.Run, Seq: e.Seq, What: "it does not stand where it should"}
		case !bytes.Equal(prev, e.Hash):
			return &ChainError{Run: in.Run, Seq: e.Seq, What: "it does not follow from the one before"}
		}
		Project(&rec, e)
		claims = ClaimChildren(claims, e)
	}
	code, why := toolcrib.CodeBadRequest, ""
	switch {
	case !rec.Status.Ended():
		code, why = toolcrib.CodeConflict, "it had not ended when it was exported; only a run that has ended can be imported"
	case len(claims) > 0 || rec.Parent != "":
		why = "it belongs to a run tree, and other runs of that are not in the file"
	case rec.Token != "":
		why = "it was started by the access token " + rec.Token + ", whose calls are not counted here"
	default:
		return nil
	}
	return toolcrib.Errorf(code, "run %s cannot be imported: %s", in.Run, why)
}
