package ollama

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Ollama decodes the schema of a tool into types of its own, and refuses the
// whole request if one schema does not fit them. These have the same members.
type (
	parameters struct {
		Type       string               `json:"type"`
		Required   []string             `json:"required"`
		Properties map[string]*property `json:"properties"`
	}
	property struct {
		AnyOf       []property           `json:"anyOf"`
		Type        words                `json:"type"`
		Description string               `json:"description"`
		Enum        []any                `json:"enum"`
		Properties  map[string]*property `json:"properties"`
		Required    []string             `json:"required"`
	}
	words []string
)

func (w *words) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*w = words{one}
		return nil
	}
	var list []string
	if err := json.Unmarshal(data, &list); err != nil {
		return errors.New("type must be a string or a list of strings")
	}
	*w = list
	return nil
}

// decodable reports whether Ollama can decode a schema.
func decodable(schema json.RawMessage) error {
	var p parameters
	if err := json.Unmarshal(schema, &p); err != nil {
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) && kind.Field != "" {
			return fmt.Errorf("its schema has a %s at %s, which Ollama cannot decode", kind.Value, kind.Field)
		}
		return fmt.Errorf("its schema cannot be decoded by Ollama: %w", err)
	}
	return nil
}
