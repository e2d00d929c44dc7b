package gate

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// A question is put to a person by a tool that a person answers
// ([toolcrib.ByPerson]): its arguments have a question, and may have a schema of
// the answer.

// questionStep refuses a schema that no answer could be checked against.
func (j *judgement) questionStep(arguments json.RawMessage) *refusal {
	if j.entry.spec.AnsweredBy != toolcrib.ByPerson {
		return nil
	}
	_, schema := Question(arguments)
	if len(schema) == 0 {
		return nil
	}
	if _, err := answerSchema(schema); err != nil {
		return broken("/schema: " + err.Error())
	}
	return nil
}

// Question returns what a call of such a tool asks, and the JSON Schema of the
// answer; nil = any text.
func Question(arguments json.RawMessage) (question string, schema json.RawMessage) {
	var args struct {
		Question string          `json:"question"`
		Schema   json.RawMessage `json:"schema"`
	}
	if err := json.Unmarshal(arguments, &args); err != nil {
		return "", nil
	}
	if string(args.Schema) == "null" {
		args.Schema = nil
	}
	return args.Question, args.Schema
}

// answerSchema compiles the schema of an answer: tools' schemas are of objects, so
// the answer becomes the one member of an object.
func answerSchema(raw json.RawMessage) (*schema, error) {
	whole := fmt.Appendf(nil, `{"type":"object","properties":{"answer":%s},"required":["answer"]}`, raw)
	_, compiled, err := compileSchema(whole)
	return compiled, err
}

// CheckAnswer tells what is wrong with a person's answer to a question with this
// schema; nil = nothing.
func CheckAnswer(raw, answer json.RawMessage) error {
	if len(raw) == 0 {
		return nil
	}
	compiled, err := answerSchema(raw)
	if err != nil {
		return err
	}
	canonical, err := guard.Arguments(fmt.Appendf(nil, `{"answer":%s}`, answer))
	if err != nil {
		return errors.New(broken(err.Error()).message)
	}
	if r := compiled.checkArguments(canonical); r != nil {
		return errors.New(r.message)
	}
	return nil
}

// CheckSchema tells why no answer could be held against a JSON Schema; nil = it is
// one.
func CheckSchema(raw json.RawMessage) error {
	_, err := answerSchema(raw)
	return err
}
