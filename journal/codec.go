package journal

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/toolcrib/toolcrib"
)

// Encode returns the stored JSON of a body, without HTML escaping. A kind that
// [Decode] would not know is an [*UnknownKindError].
func Encode(body toolcrib.Body) ([]byte, error) {
	if newBody(body.EventKind()) == nil {
		return nil, &UnknownKindError{Kind: body.EventKind()}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(body); err != nil {
		return nil, fmt.Errorf("journal: encode %s: %w", body.EventKind(), err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// UnknownKindError says that an event is of a kind that this version of toolcrib
// does not know: a later one wrote it.
type UnknownKindError struct{ Kind toolcrib.Kind }

func (e *UnknownKindError) Error() string {
	return fmt.Sprintf("journal: unknown event %q: it was written by a later version of toolcrib; use that one", e.Kind)
}

// newBody has an empty body for each kind.
func newBody(kind toolcrib.Kind) toolcrib.Body {
	switch kind {
	case KindRunStarted:
		return new(RunStarted)
	case KindTakenUp:
		return new(TakenUp)
	case KindOffered:
		return new(Offered)
	case KindModelRequest:
		return new(ModelRequest)
	case KindModelFailed:
		return new(ModelFailed)
	case KindMessage:
		return new(Message)
	case KindToolCall:
		return new(ToolCall)
	case KindUsage:
		return new(Usage)
	case KindVerdicts:
		return new(Verdicts)
	case KindConfirmationRequired:
		return new(ConfirmationRequired)
	case KindConfirmationResolved:
		return new(ConfirmationResolved)
	case KindToolStarted:
		return new(ToolStarted)
	case KindReconciled:
		return new(Reconciled)
	case KindToolResult:
		return new(ToolResult)
	case KindNotice:
		return new(Notice)
	case KindStopping:
		return new(Stopping)
	case KindGranted:
		return new(Granted)
	case KindSaid:
		return new(Said)
	case KindPaused:
		return new(Paused)
	case KindDone:
		return new(Done)
	case KindError:
		return new(Error)
	}
	return nil
}

// Decode is the inverse of [Encode]. Fields that this version does not know are
// passed over; a kind that it does not know is an [*UnknownKindError].
func Decode(kind toolcrib.Kind, payload []byte) (toolcrib.Body, error) {
	body := newBody(kind)
	if body == nil {
		return nil, &UnknownKindError{Kind: kind}
	}
	if err := json.Unmarshal(payload, body); err != nil {
		return nil, fmt.Errorf("journal: decode %s: %w", kind, err)
	}
	if m, ok := body.(*Message); ok {
		withoutNull(m.Parts)
	}
	return body, nil
}

// withoutNull gives the calls of a message, which are stored without arguments,
// back as they were: encoding/json writes a raw value that is not there as null.
func withoutNull(parts []toolcrib.Part) {
	for _, p := range parts {
		if p.ToolCall != nil && string(p.ToolCall.Arguments) == "null" {
			p.ToolCall.Arguments = nil
		}
	}
}

// Barrier tells whether an append that holds body must survive power loss before
// it returns: before a write runs, a decision, a pause, the end (design.md §2).
func Barrier(body toolcrib.Body) bool {
	switch b := body.(type) {
	case *ToolStarted:
		return b.Write
	case *ConfirmationRequired, *ConfirmationResolved, *Granted, *Said, *Paused, *Done, *Error:
		return true
	}
	return false
}
