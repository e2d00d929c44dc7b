package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool"
)

type weather struct {
	City  string   `json:"city" jsonschema:"name of the city"`
	Days  int      `json:"days,omitempty" jsonschema:"how many days ahead"`
	Units []string `json:"units,omitzero"`
}

func run[Out any](t *testing.T, fn func(context.Context, toolcrib.Call, weather) (Out, error), arguments string) (toolcrib.Output, error) {
	t.Helper()
	made, err := tool.Func(toolcrib.Spec{Name: "weather"}, fn)
	if err != nil {
		t.Fatal(err)
	}
	return made.Call(context.Background(), toolcrib.Call{Arguments: json.RawMessage(arguments)})
}

func TestN1_FuncSpec(t *testing.T) {
	made := tool.MustFunc(toolcrib.Spec{Name: "weather", Description: "Tell the weather."},
		func(context.Context, toolcrib.Call, weather) (string, error) { return "", nil })
	spec := made.Spec()
	if !spec.EnabledByDefault || spec.Source != "go" || spec.RequiresAdmin {
		t.Errorf("defaults of a function: %+v", spec)
	}
	if got := spec.Effect.OrStrictest(); got != toolcrib.EffectNonIdempotentWrite {
		t.Errorf("effect %q: a function that states none is a write", got)
	}
	var schema struct {
		Type       string
		Required   []string
		Properties map[string]struct {
			Type        any
			Description string
		}
		AdditionalProperties any
	}
	if err := json.Unmarshal(spec.Parameters, &schema); err != nil {
		t.Fatal(err)
	}
	if schema.Type != "object" || strings.Join(schema.Required, ",") != "city" || len(schema.Properties) != 3 {
		t.Errorf("schema %s", spec.Parameters)
	}
	if schema.Properties["city"].Description != "name of the city" || schema.Properties["days"].Type != "integer" {
		t.Errorf("properties %s", spec.Parameters)
	}
	if closed, ok := schema.AdditionalProperties.(map[string]any); schema.AdditionalProperties != false && (!ok || len(closed) == 0) {
		t.Errorf("unknown fields are let through: %s", spec.Parameters)
	}
}

func TestN1_FuncKeepsGivenSchema(t *testing.T) {
	given := json.RawMessage(`{"type":"object","properties":{"city":{"enum":["Oslo"]}}}`)
	made := tool.MustFunc(toolcrib.Spec{Name: "w", Parameters: given, Source: "client"},
		func(context.Context, toolcrib.Call, weather) (string, error) { return "", nil })
	if spec := made.Spec(); string(spec.Parameters) != string(given) || spec.Source != "client" {
		t.Errorf("got %+v", spec)
	}
}

func TestN1_FuncRefusesBadSpecs(t *testing.T) {
	fn := func(context.Context, toolcrib.Call, weather) (string, error) { return "", nil }
	for name, spec := range map[string]toolcrib.Spec{
		"no name":       {},
		"name":          {Name: "a b"},
		"effect":        {Name: "a", Effect: "harmless"},
		"schema":        {Name: "a", Parameters: json.RawMessage(`{`)},
		"schema type":   {Name: "a", Parameters: json.RawMessage(`{"type":"array"}`)},
		"schema string": {Name: "a", Parameters: json.RawMessage(`"x"`)},
	} {
		if _, err := tool.Func(spec, fn); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := tool.Func[weather, string](toolcrib.Spec{Name: "a"}, nil); err == nil {
		t.Error("nil function: accepted")
	}
	if _, err := tool.Func(toolcrib.Spec{Name: "a"}, func(context.Context, toolcrib.Call, string) (string, error) { return "", nil }); err == nil {
		t.Error("arguments that are no object: accepted")
	}
	if _, err := tool.Func(toolcrib.Spec{Name: "a"}, func(context.Context, toolcrib.Call, struct{ C chan int }) (string, error) { return "", nil }); err == nil {
		t.Error("arguments without a JSON form: accepted")
	}
}

func TestH2_FuncOutputs(t *testing.T) {
	text, err := run(t, func(_ context.Context, _ toolcrib.Call, in weather) (string, error) { return "sun in " + in.City, nil }, `{"city":"Oslo"}`)
	if err != nil || text.Text != "sun in Oslo" || text.JSON != nil {
		t.Errorf("string: %+v %v", text, err)
	}
	object, err := run(t, func(_ context.Context, _ toolcrib.Call, in weather) (weather, error) { return in, nil }, `{"city":"<a> & b"}`)
	if err != nil || string(object.JSON) != `{"city":"<a> & b"}` {
		t.Errorf("object: %s %v", object.JSON, err)
	}
	passed, err := run(t, func(context.Context, toolcrib.Call, weather) (toolcrib.Output, error) {
		return toolcrib.Output{Text: "x", IsError: true, Untrusted: true}, nil
	}, `{}`)
	if err != nil || !passed.IsError || !passed.Untrusted || passed.Text != "x" {
		t.Errorf("output: %+v %v", passed, err)
	}
	if _, err := run(t, func(context.Context, toolcrib.Call, weather) (*toolcrib.Output, error) { return nil, nil }, `{}`); err == nil {
		t.Error("neither output nor error: no fault")
	}
	if _, err := run(t, func(context.Context, toolcrib.Call, weather) (chan int, error) { return nil, nil }, `{}`); err == nil {
		t.Error("a result without a JSON form: no fault")
	}
	if empty, err := run(t, func(_ context.Context, _ toolcrib.Call, in weather) (int, error) { return in.Days, nil }, ``); err != nil || string(empty.JSON) != "0" {
		t.Errorf("no arguments: %+v %v", empty, err)
	}
}

func TestN21_FuncErrors(t *testing.T) {
	secret := errors.New("password=hunter2")
	_, err := run(t, func(context.Context, toolcrib.Call, weather) (string, error) { return "dropped", secret }, `{}`)
	made := (*toolcrib.ToolError)(nil)
	if !errors.Is(err, secret) || errors.As(err, &made) {
		t.Errorf("a plain error stays a fault: %v", err)
	}
	_, err = run(t, func(context.Context, toolcrib.Call, weather) (string, error) { return "", nil }, `{"city":1}`)
	if !errors.As(err, &made) || made.Kind != toolcrib.InvalidArguments {
		t.Errorf("arguments that do not fit: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a panic is not caught here")
		}
	}()
	_, _ = run(t, func(context.Context, toolcrib.Call, weather) (string, error) { panic("oh") }, `{}`)
}
