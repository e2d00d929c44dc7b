package modeltest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
)

var (
	toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	blockID  = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
)

// strict decodes one JSON value without unknown fields, duplicate keys or
// anything behind it.
func strict(data []byte, into any) error {
	if err := duplicateKeys(data); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("something follows the JSON value")
	}
	return nil
}

// duplicateKeys finds an object that names a member twice, which encoding/json
// lets pass.
func duplicateKeys(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	return walk(dec, "")
}

func walk(dec *json.Decoder, path string) error {
	t, err := dec.Token()
	if err != nil {
		return fmt.Errorf("%s: no valid JSON: %w", path, err)
	}
	delim, ok := t.(json.Delim)
	if !ok {
		return nil
	}
	seen := map[string]bool{}
	for n := 0; dec.More(); n++ {
		inner := fmt.Sprintf("%s[%d]", path, n)
		if delim == '{' {
			key, err := dec.Token()
			if err != nil {
				return fmt.Errorf("%s: no valid JSON: %w", path, err)
			}
			name := fmt.Sprint(key)
			if seen[name] {
				return fmt.Errorf("%s: member %q twice", path, name)
			}
			seen[name] = true
			inner = path + "." + name
		}
		if err := walk(dec, inner); err != nil {
			return err
		}
	}
	_, err = dec.Token()
	return err
}

// objectSchema checks the schema of a tool's parameters.
func objectSchema(where string, raw json.RawMessage) error {
	var schema map[string]json.RawMessage
	if err := json.Unmarshal(raw, &schema); err != nil || schema == nil {
		return fmt.Errorf("%s: must be a JSON object", where)
	}
	if string(schema["type"]) != `"object"` {
		return fmt.Errorf("%s: type must be \"object\", is %s", where, schema["type"])
	}
	var properties map[string]json.RawMessage
	if err := json.Unmarshal(schema["properties"], &properties); err != nil || properties == nil {
		return fmt.Errorf("%s: properties must be an object", where)
	}
	for _, word := range []string{"oneOf", "anyOf", "allOf", "not", "enum"} {
		if _, ok := schema[word]; ok {
			return fmt.Errorf("%s: %s at the top", where, word)
		}
	}
	for name, p := range properties {
		if err := propertySchema(where+"."+name, p, 0); err != nil {
			return err
		}
	}
	return nil
}

func propertySchema(where string, raw json.RawMessage, depth int) error {
	var schema map[string]json.RawMessage
	if err := json.Unmarshal(raw, &schema); err != nil {
		return fmt.Errorf("%s: a schema must be an object", where)
	}
	if string(schema["type"]) == `"array"` && schema["items"] == nil {
		return fmt.Errorf("%s: array schema missing items", where)
	}
	if p, ok := schema["properties"]; ok {
		var inner map[string]json.RawMessage
		if err := json.Unmarshal(p, &inner); err != nil {
			return fmt.Errorf("%s: properties must be an object", where)
		}
		for name, s := range inner {
			if depth < 32 {
				if err := propertySchema(where+"."+name, s, depth+1); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func jsonObject(raw []byte) bool {
	var o map[string]json.RawMessage
	return json.Unmarshal(raw, &o) == nil && o != nil
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }
