package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// Encode returns the stored JSON of a body, without HTML escaping. A kind that
// [Decode] does not know is an [*UnknownKindError].
func Encode(body toolcrib.Body) ([]byte, error) {
	var b bytes.Buffer
	if err := EncodeTo(&b, body); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// EncodeJSON returns JSON as it is stored: without HTML escaping.
func EncodeJSON(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	err := encodeTo(&b, v)
	return b.Bytes(), err
}

func encodeTo(b *bytes.Buffer, v any) error {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	from := b.Len()
	if err := enc.Encode(v); err != nil {
		b.Truncate(from)
		return fmt.Errorf("encode: %w", err)
	}
	b.Truncate(b.Len() - 1) // the end of the line
	return nil
}

// EncodeTo appends the result of [Encode] to b. On an error b is unchanged.
func EncodeTo(b *bytes.Buffer, body toolcrib.Body) error {
	if bodies[body.EventKind()] == nil {
		return &UnknownKindError{Kind: body.EventKind()}
	}
	from := b.Len()
	if err := encodeTo(b, body); err != nil {
		return fmt.Errorf("journal: %s: %w", body.EventKind(), err)
	}
	// Nothing in a journal may act in the file or terminal that it is written to.
	if raw := b.Bytes()[from:]; len(raw) > 0 {
		if safe := guard.EscapeJSON(raw); len(safe) > len(raw) {
			b.Truncate(from)
			b.Write(safe)
		}
	}
	return nil
}

// Known reports whether this version of toolcrib knows a kind of event.
func Known(kind toolcrib.Kind) bool { return bodies[kind] != nil }

// UnknownKindError reports an event of a kind that a later version of toolcrib wrote.
type UnknownKindError struct{ Kind toolcrib.Kind }

func (e *UnknownKindError) Error() string {
	return fmt.Sprintf("journal: unknown event %q: it was written by a later version of toolcrib; use that one", e.Kind)
}

// bodies are the types of bodies by kind.
var bodies = typesOf(
	new(RunStarted), new(TakenUp), new(Offered), new(ModelRequest), new(ModelFailed), new(Message), new(ToolCall),
	new(Usage), new(Verdicts), new(ConfirmationRequired), new(ConfirmationResolved), new(ToolStarted), new(Forgotten),
	new(Reconciled), new(ToolResult), new(Notice), new(Stopping), new(Granted), new(Said), new(Resumed), new(Condensed),
	new(AnswerChecked), new(ChildStarted), new(ChildParked), new(ChildResumed), new(ChildEnded), new(Paused),
	new(Released), new(Worked), new(ModelChosen), new(Done), new(Error),
)

func typesOf(all ...toolcrib.Body) map[toolcrib.Kind]reflect.Type {
	types := make(map[toolcrib.Kind]reflect.Type, len(all))
	for _, body := range all {
		types[body.EventKind()] = reflect.TypeOf(body).Elem()
	}
	return types
}

// Decode is the inverse of [Encode]. Fields that this version does not know are
// ignored; a kind that it does not know is an [*UnknownKindError].
func Decode(kind toolcrib.Kind, payload []byte) (toolcrib.Body, error) {
	of, ok := bodies[kind]
	if !ok {
		return nil, &UnknownKindError{Kind: kind}
	}
	body := reflect.New(of).Interface().(toolcrib.Body)
	if err := json.Unmarshal(payload, body); err != nil {
		return nil, fmt.Errorf("journal: decode %s: %w", kind, err)
	}
	if m, ok := body.(*Message); ok {
		withoutNull(m.Parts)
	}
	return body, nil
}

// withoutNull restores the calls of a message, which are stored without arguments:
// encoding/json writes an absent raw value as null.
func withoutNull(parts []toolcrib.Part) {
	for _, p := range parts {
		if p.ToolCall != nil && string(p.ToolCall.Arguments) == "null" {
			p.ToolCall.Arguments = nil
		}
	}
}

// Barrier reports whether an append with this body must survive a power failure before
// it returns: before a write runs, a decision, a pause, the end.
func Barrier(body toolcrib.Body) bool {
	switch b := body.(type) {
	case *ToolStarted:
		return b.Write
	case *ToolResult:
		return b.By != "" // the client does not send it again
	case *ConfirmationRequired, *ConfirmationResolved, *Granted, *Said, *Resumed, *ModelChosen, *Paused, *Done,
		*Error:
		return true
	}
	return false
}
