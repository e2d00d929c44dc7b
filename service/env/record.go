package env

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/store"
)

// Kinds of audit entries for changes of secrets, and of notes by a person. They have the name and who changed it, never
// the value.
const (
	KindSecretSet     toolcrib.Kind = "secret_set"
	KindSecretRemoved toolcrib.Kind = "secret_removed"
	KindNoteChanged   toolcrib.Kind = "note_changed"
	KindNoteRemoved   toolcrib.Kind = "note_removed"
)

// KindOtherCall is the kind of audit entries for decisions about calls that another agent makes.
const KindOtherCall toolcrib.Kind = "other_call"

// Record appends entries to the audit log about changes outside of the database. Secrets in them are masked.
func (e *Env) Record(ctx context.Context, kind toolcrib.Kind, payloads ...any) error {
	events := make([]store.SystemEvent, len(payloads))
	for i, p := range payloads {
		payload, err := json.Marshal(p)
		if err != nil {
			return err
		}
		if e.LearnSecrets(); e.Mask.SecretIn(p) != "" { // --as, for one, is anything
			payload = e.Mask.MaskJSON(payload)
		}
		events[i] = store.SystemEvent{Kind: kind, Payload: payload}
	}
	return e.Store.AppendSystem(ctx, events...)
}

// RecordChanged appends to the audit log that files changed which steer toolcrib.
func (e *Env) RecordChanged(
	ctx context.Context, who toolcrib.Principal, kind toolcrib.Kind, files ...store.FileChanged,
) error {
	payloads := make([]any, len(files))
	for i, f := range files {
		if f.By == "" {
			f.By = agent.NameOf(who)
		}
		payloads[i] = f
	}
	return e.Record(ctx, kind, payloads...)
}

// TrustStore returns the record of the folders that this user trusts.
func TrustStore() trust.Store { return trust.NewStore(trust.DefaultPath(os.Getenv)) }

// TrustStore returns the record of what is trusted, which all servers of a database have in common, except for what is
// read before it is open.
func (e *Env) TrustStore() trust.Store {
	if e.inFolder() {
		return TrustStore()
	}
	return TrustStore().Shared(e.Files())
}

// Pins returns the folder in the record of what is trusted that stands for the MCP servers of the configuration.
func (e *Env) Pins() string {
	if e.inFolder() {
		return e.DataDir
	}
	return string(filepath.Separator) // exists on every server
}
