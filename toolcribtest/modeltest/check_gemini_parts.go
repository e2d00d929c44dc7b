package modeltest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// data counts the kinds of content of a part: it must have exactly one.
func (p *geminiPart) data() (n int) {
	for _, set := range []bool{p.Text != nil, p.FunctionCall != nil, p.FunctionResponse != nil, p.InlineData != nil, p.FileData != nil} {
		if set {
			n++
		}
	}
	return n
}

func (p *geminiPart) check(where string) error {
	switch {
	case p.data() != 1:
		return fmt.Errorf("%s: must have exactly one kind of data", where)
	case p.Text != nil && blank(*p.Text) && p.ThoughtSignature == nil:
		return fmt.Errorf("%s.text: is blank", where)
	case p.InlineData != nil:
		return p.InlineData.check(where)
	}
	return nil
}

func (b *geminiBlob) check(where string) error {
	if !strings.Contains(b.MIMEType, "/") || len(b.Data) == 0 {
		return fmt.Errorf("%s.inlineData: needs mimeType and data", where)
	}
	return nil
}

// dummySignature is the documented stand-in for a signature that there is not.
const dummySignature = "skip_thought_signature_validator"

func checkSignature(where string, p *geminiPart) error {
	s := *p.ThoughtSignature
	if s == dummySignature {
		if p.FunctionCall == nil {
			return fmt.Errorf("%s.thoughtSignature: only a call goes without a real one", where)
		}
		return nil
	}
	plain := strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(s, "="))
	if _, err := base64.RawStdEncoding.DecodeString(plain); err != nil || s == "" {
		return fmt.Errorf("%s.thoughtSignature: Base64 decoding failed for %q", where, s)
	}
	return nil
}

// checkModel checks a content of the model and opens its calls.
func (r *geminiRequest) checkModel(c *geminiContent) error {
	r.open = nil
	for i := range c.Parts {
		p := &c.Parts[i]
		where := fmt.Sprintf(".parts[%d]", i)
		if err := p.check(where); err != nil {
			return err
		}
		if p.FunctionResponse != nil {
			return fmt.Errorf("%s: functionResponse in a turn of the model", where)
		}
		if p.ThoughtSignature != nil {
			if err := checkSignature(where, p); err != nil {
				return err
			}
		}
		call := p.FunctionCall
		if call == nil {
			continue
		}
		switch {
		case !geminiFunctionName.MatchString(call.Name):
			return fmt.Errorf("%s.functionCall.name: %q does not match %s", where, call.Name, geminiFunctionName)
		case !jsonObject(call.Args):
			return fmt.Errorf("%s.functionCall.args: must be an object (N13)", where)
		case len(r.open) == 0 && p.ThoughtSignature == nil && r.model.three():
			return fmt.Errorf("%s: Function call is missing a thought_signature in functionCall parts", where)
		}
		r.open = append(r.open, *call)
	}
	return nil
}

// checkUser wants the results of all calls of the turn before, in their order,
// before any text.
func (r *geminiRequest) checkUser(c *geminiContent) error {
	text := false
	for i := range c.Parts {
		p := &c.Parts[i]
		where := fmt.Sprintf(".parts[%d]", i)
		if err := p.check(where); err != nil {
			return err
		}
		if p.FunctionCall != nil || p.Thought || p.ThoughtSignature != nil {
			return fmt.Errorf("%s: a user neither calls nor reasons", where)
		}
		if p.FunctionResponse == nil {
			text = text || p.Text != nil && !strings.HasPrefix(*p.Text, "[file ")
			continue
		}
		if text {
			return fmt.Errorf("%s: functionResponse after other content", where)
		}
		if err := r.checkResult(where, p.FunctionResponse); err != nil {
			return err
		}
	}
	if len(r.open) > 0 {
		return fmt.Errorf(": the number of function response parts must be equal to the number of function call parts: %d without (N12)", len(r.open))
	}
	return nil
}

func (r *geminiRequest) checkResult(where string, f *geminiResponsePart) error {
	if len(r.open) == 0 {
		return fmt.Errorf("%s.functionResponse: more of them than calls in the turn before (N12)", where)
	}
	call := r.open[0]
	r.open = r.open[1:]
	switch {
	case f.Name != call.Name:
		return fmt.Errorf("%s.functionResponse.name: %q, waiting for %q (N12)", where, f.Name, call.Name)
	case f.ID != call.ID:
		return fmt.Errorf("%s.functionResponse.id: %q, waiting for %q", where, f.ID, call.ID)
	case !jsonObject(f.Response):
		return fmt.Errorf("%s.functionResponse.response: must be an object", where)
	case len(f.Parts) > 0 && !r.model.three():
		return fmt.Errorf("%s.functionResponse.parts: only from generation 3 on", where)
	}
	if err := noReference(f.Response); err != nil {
		return fmt.Errorf("%s.functionResponse.response: %w", where, err)
	}
	for _, p := range f.Parts {
		if p.InlineData == nil || p.InlineData.check(where) != nil {
			return fmt.Errorf("%s.functionResponse.parts: must hold files", where)
		}
	}
	return nil
}

// noReference finds a member $ref, which the API takes for a reference to a part.
func noReference(raw json.RawMessage) error {
	var doc map[string]json.RawMessage
	if json.Unmarshal(raw, &doc) == nil {
		for name, inner := range doc {
			if name == "$ref" {
				return errors.New("reference to a part that there is not")
			}
			if err := noReference(inner); err != nil {
				return err
			}
		}
		return nil
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil {
		for _, inner := range list {
			if err := noReference(inner); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkGeminiParameters(raw json.RawMessage) error {
	var top struct {
		Type       string                     `json:"type"`
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(raw, &top); err != nil || top.Type != "object" {
		return errors.New(".type: must be object")
	}
	if len(top.Properties) == 0 {
		return errors.New(".properties: should be non-empty for OBJECT type; leave the schema out")
	}
	return checkGeminiSchema("", raw, 0)
}

// checkGeminiSchema holds a schema to the documented subset of JSON Schema.
func checkGeminiSchema(where string, raw json.RawMessage, depth int) error {
	var schema map[string]json.RawMessage
	if err := json.Unmarshal(raw, &schema); err != nil || schema == nil {
		return fmt.Errorf("%s: a schema must be an object", where)
	}
	if depth > 32 {
		return fmt.Errorf("%s: too deep", where)
	}
	for word, value := range schema {
		var err error
		at := where + "." + word
		switch word {
		case "type":
			err = checkGeminiType(value)
		case "title", "description", "format":
			var s string
			err = json.Unmarshal(value, &s)
		case "minItems", "maxItems", "minimum", "maximum":
			var f float64
			err = json.Unmarshal(value, &f)
		case "enum":
			err = checkGeminiEnum(value)
		case "required":
			err = checkGeminiRequired(value, schema["properties"])
		case "properties":
			var inner map[string]json.RawMessage
			if err = json.Unmarshal(value, &inner); err == nil && len(inner) == 0 {
				err = errors.New("should be non-empty")
			}
			for name, p := range inner {
				if err == nil {
					err = checkGeminiSchema(at+"."+name, p, depth+1)
				}
			}
		case "items":
			err = checkGeminiSchema(at, value, depth+1)
		case "additionalProperties":
			if string(value) != "false" && string(value) != "true" {
				err = checkGeminiSchema(at, value, depth+1)
			}
		case "anyOf", "prefixItems":
			var list []json.RawMessage
			if err = json.Unmarshal(value, &list); err == nil && len(list) == 0 {
				err = errors.New("is empty")
			}
			for _, p := range list {
				if err == nil {
					err = checkGeminiSchema(at, p, depth+1)
				}
			}
		default:
			err = errors.New("is not in the documented subset")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	}
	return nil
}

func checkGeminiType(raw json.RawMessage) error {
	var name string
	var list []string
	if json.Unmarshal(raw, &name) == nil {
		list = []string{name}
	} else if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	for _, one := range list {
		if !slices.Contains([]string{"string", "number", "integer", "boolean", "object", "array", "null"}, one) {
			return fmt.Errorf("%q is no type", one)
		}
	}
	return nil
}

func checkGeminiEnum(raw json.RawMessage) error {
	var list []any
	if err := json.Unmarshal(raw, &list); err != nil || len(list) == 0 {
		return errors.New("must be a list that is not empty")
	}
	for _, v := range list {
		switch v.(type) {
		case string, float64:
		default:
			return errors.New("holds strings and numbers only")
		}
	}
	return nil
}

func checkGeminiRequired(raw, properties json.RawMessage) error {
	var names []string
	if err := json.Unmarshal(raw, &names); err != nil {
		return err
	}
	var known map[string]json.RawMessage
	_ = json.Unmarshal(properties, &known) // absent: none is known
	for _, name := range names {
		if _, ok := known[name]; !ok {
			return fmt.Errorf("%q: property is not defined", name)
		}
	}
	return nil
}
