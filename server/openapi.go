package server

import (
	"encoding/json"
	"maps"
	"net/http"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/bus"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/server/openai"
	"github.com/toolcrib/toolcrib/service/policy"
)

// object is an object of a JSON document.
type object = map[string]any

// asJSON has the schemas of types that marshal themselves, or whose schema is narrower than their kind. No
// schema is empty: the library writes that as true, which most client generators cannot read.
var asJSON = map[reflect.Type]*jsonschema.Schema{
	reflect.TypeFor[json.RawMessage](): anyJSON,
	reflect.TypeFor[any]():             anyJSON,
	reflect.TypeFor[[]byte]():          {Type: "string", Format: "byte"},
	reflect.TypeFor[time.Time]():       {Type: "string", Format: "date-time"},
	reflect.TypeFor[bus.Name]():        {Type: "string"},
	reflect.TypeFor[int64]():           {Type: "integer", Format: "int64"},
	reflect.TypeFor[float64]():         {Type: "number", Format: "double"},
	reflect.TypeFor[api.ToolChoice](): {AnyOf: []*jsonschema.Schema{
		{Type: "string", Enum: []any{toolcrib.ChoiceAuto, toolcrib.ChoiceNone, toolcrib.ChoiceRequired}},
		{
			Type: "object", Properties: map[string]*jsonschema.Schema{"name": {Type: "string"}}, Required: []string{"name"},
			AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
		},
	}},
	reflect.TypeFor[openai.ChatRequest]():      bodyOf(openai.ChatFields, "model", "messages"),
	reflect.TypeFor[openai.ResponsesRequest](): bodyOf(openai.ResponsesFields, "model", "input"),
	reflect.TypeFor[policy.Agent](): {
		Type: "object", Required: []string{"name"}, AdditionalProperties: anyJSON,
		Properties: map[string]*jsonschema.Schema{"name": {Type: "string"}},
	},
}

var anyJSON = &jsonschema.Schema{Description: "any JSON value"}

func schemaOf(t reflect.Type, types map[reflect.Type]*jsonschema.Schema) (*jsonschema.Schema, error) {
	schema, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: types})
	if err != nil {
		return nil, err
	}
	for name, p := range schema.Properties {
		if len(p.AnyOf) > 0 && len(p.Types) > 0 {
			// A pointer, which may be null: the library requires both.
			p = p.CloneSchemas()
			for _, also := range p.Types {
				p.AnyOf = append(p.AnyOf, &jsonschema.Schema{Type: also})
			}
			p.Types, schema.Properties[name] = nil, p
		}
	}
	return schema, nil
}

// maxEntries bounds the lists of a request: some entries cost more than their bytes.
const maxEntries = 10_000

// bound bounds the lists in the schema of a body, and allows null for an optional field.
func bound(s *jsonschema.Schema) {
	if s.Type == "array" || slices.Contains(s.Types, "array") {
		s.MaxItems = jsonschema.Ptr(maxEntries)
	}
	for name, p := range s.Properties {
		if p.Type != "" && !slices.Contains(s.Required, name) {
			p.Type, p.Types = "", []string{"null", p.Type}
		}
		bound(p)
	}
	if s.Items != nil {
		bound(s.Items)
	}
}

// compile makes the schema of the body.
func (r *route) compile() error {
	schema, err := schemaOf(r.body, asJSON)
	if err != nil {
		return err
	}
	bound(schema)
	r.schema, err = schema.Resolve(nil)
	return err
}

// component returns the name of the schema of a type in the document.
func component(t reflect.Type) string {
	name := t.Name()
	return strings.ToUpper(name[:1]) + name[1:]
}

// pathParam is a parameter in a path.
var pathParam = lazyregexp.New(`\{([a-z_]+)\}`)

// inAnswers has the schemas of types in answers: asJSON, and enumerations.
var inAnswers = func() map[reflect.Type]*jsonschema.Schema {
	all := maps.Clone(asJSON)
	enum := func(of reflect.Type, values ...any) { all[of] = &jsonschema.Schema{Type: "string", Enum: values} }
	enum(reflect.TypeFor[toolcrib.Status](), toolcrib.StatusQueued, toolcrib.StatusRunning,
		toolcrib.StatusWaitingForApproval, toolcrib.StatusWaitingForTool, toolcrib.StatusWaitingForInput,
		toolcrib.StatusWaitingForProvider, toolcrib.StatusCompleted, toolcrib.StatusFailed, toolcrib.StatusCancelled)
	enum(reflect.TypeFor[toolcrib.StopReason](), "", toolcrib.StopCompleted, toolcrib.StopMaxIterations,
		toolcrib.StopBudgetExhausted, toolcrib.StopWallTime, toolcrib.StopProviderFailed, toolcrib.StopContextLength,
		toolcrib.StopPolicyDenied, toolcrib.StopApprovalDenied, toolcrib.StopWorkerLost, toolcrib.StopCancelled)
	enum(reflect.TypeFor[toolcrib.ResultStatus](), "", toolcrib.ResultOK, toolcrib.ResultError, toolcrib.ResultRefused,
		toolcrib.ResultTimeout, toolcrib.ResultCancelled, toolcrib.ResultInDoubt)
	codes := []any{toolcrib.CodeInternal}
	for _, code := range slices.Sorted(maps.Keys(statuses)) {
		codes = append(codes, code)
	}
	enum(reflect.TypeFor[toolcrib.Code](), codes...)
	return all
}()

// loosen turns the schema of a body into that of an answer: later versions may add fields, and optional fields
// and elements are never null.
func loosen(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if more := s.AdditionalProperties; more != nil && more.Not != nil {
		s.AdditionalProperties = nil
	}
	for name, p := range s.Properties {
		switch null := slices.Index(p.Types, "null"); {
		case null < 0:
		case !slices.Contains(s.Required, name):
			notNull(p)
		case p.Ref != "":
			s.Properties[name] = &jsonschema.Schema{
				Description: p.Description, AnyOf: []*jsonschema.Schema{{Ref: p.Ref}, {Type: "null"}},
			}
		}
		loosen(p)
	}
	for _, of := range []*jsonschema.Schema{s.Items, s.AdditionalProperties} {
		if of != nil && of.Ref != "" {
			notNull(of)
		}
		loosen(of)
	}
}

func notNull(s *jsonschema.Schema) {
	s.Types = slices.DeleteFunc(s.Types, func(t string) bool { return t == "null" })
	if len(s.Types) == 1 {
		s.Type = s.Types[0]
	}
	if len(s.Types) < 2 {
		s.Types = nil
	}
}

// manual is an OpenAPI document under construction.
type manual struct {
	names   map[reflect.Type]string // names of the schemas of answers
	schemas map[string]*jsonschema.Schema
	fails   object // error responses by name
}

// body adds the schema of a body.
func (m *manual) body(t reflect.Type) error {
	schema, err := schemaOf(t, asJSON)
	if err == nil {
		bound(schema)
		m.schemas[component(t)] = schema
	}
	return err
}

// content returns a reference to the schema of an answer.
func (m *manual) content(t reflect.Type) (object, error) {
	schema, err := m.refer(t)
	return inJSON(object{"$ref": schema.Ref}), err
}

// refer returns a reference to the schema of an answer, or of a part of one.
func (m *manual) refer(t reflect.Type) (ref jsonschema.Schema, err error) {
	name := m.names[t]
	if name == "" {
		if name = component(t); m.schemas[name] != nil { // the name is taken by a type of another package
			pkg := path.Base(t.PkgPath())
			if t.PkgPath() == reflect.TypeFor[api.Run]().PkgPath() {
				pkg = "server" // its prefix in generated clients
			}
			name = strings.ToUpper(pkg[:1]) + pkg[1:] + name
		}
		m.names[t], m.schemas[name] = name, &jsonschema.Schema{}
		m.schemas[name], err = m.schema(t)
	}
	ref.Ref = schemasPath + name
	return ref, err
}

// schema returns the schema of an answer, which refers to those of its structs.
func (m *manual) schema(t reflect.Type) (*jsonschema.Schema, error) {
	types := maps.Clone(inAnswers)
	for _, f := range reflect.VisibleFields(t) {
		of := f.Type
		for slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Slice, reflect.Map}, of.Kind()) {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct || f.Anonymous || !f.IsExported() || f.Tag.Get("json") == "-" || types[of] != nil {
			continue
		}
		ref, err := m.refer(of)
		if err != nil {
			return nil, err
		}
		types[of] = &ref
	}
	schema, err := schemaOf(t, types)
	loosen(schema)
	return schema, err
}

func inJSON(schema object) object { return object{jsonType: object{"schema": schema}} }

const (
	jsonType   = "application/json"
	streamType = "text/event-stream"

	schemasPath = "#/components/schemas/"
)

// document makes the OpenAPI document of the routes.
func document(routes []route, version string) ([]byte, error) {
	m := manual{names: map[reflect.Type]string{}, schemas: map[string]*jsonschema.Schema{}, fails: object{}}
	for _, r := range routes { // first, so that they get the short names
		if r.body != nil {
			if err := m.body(r.body); err != nil {
				return nil, err
			}
		}
	}
	paths := object{}
	for i := range routes {
		r := &routes[i]
		operation, err := m.operation(r)
		if err != nil {
			return nil, err
		}
		item, _ := paths[r.path].(object)
		if item == nil {
			item = object{}
			paths[r.path] = item
		}
		item[strings.ToLower(r.method)] = operation
	}
	text, err := json.Marshal(object{
		"openapi": "3.1.0", "info": object{
			"title": "toolcrib", "version": version,
			"description": "The runtime between language models and tools. Answers may get more fields, and events more kinds.",
			"license":     object{"name": "Apache License 2.0", "identifier": "Apache-2.0"},
		},
		"paths": paths,
		"components": object{
			"schemas": m.schemas, "responses": m.fails,
			"securitySchemes": object{"token": object{
				"type": "http", "scheme": "bearer", "description": "an access token; toolcrib tokens create makes one",
			}, "session": object{
				"type": "apiKey", "in": "cookie", "name": "__Host-toolcrib",
				"description": "the session of a browser that has signed in; without TLS the cookie is toolcrib_PORT",
			}},
		},
		"security": []object{{"token": []string{}}, {"session": []string{}}},
	})
	return append(text, '\n'), err
}

func (m *manual) operation(r *route) (object, error) {
	answer, about, err := m.answer(r)
	if err != nil {
		return nil, err
	}
	responses := object{}
	statuses := []int{max(r.status, http.StatusOK), r.also}
	if r.also == http.StatusSwitchingProtocols {
		statuses = []int{r.also}
	}
	for _, status := range statuses {
		if status > 0 {
			responses[strconv.Itoa(status)] = object{"description": http.StatusText(status), "content": answer}
		}
	}
	for _, status := range r.fails() {
		if responses[strconv.Itoa(status)] == nil {
			if responses[strconv.Itoa(status)], err = m.failure(status, v1(r.path)); err != nil {
				return nil, err
			}
		}
	}
	operation := object{
		"summary": r.summary, "operationId": operationID(r), "responses": responses, "tags": []string{r.tag()},
	}
	if about != "" {
		operation["description"] = about
	}
	if params := r.parameters(); len(params) > 0 {
		operation["parameters"] = params
	}
	if r.body != nil {
		name := component(r.body)
		operation["requestBody"] = object{
			"content": inJSON(object{"$ref": schemasPath + name}), "required": len(m.schemas[name].Required) > 0,
		}
	} else if r.mcp && r.method == http.MethodPost {
		operation["requestBody"] = object{"content": inJSON(object{"type": "object"}), "required": true}
	}
	if r.open {
		operation["security"] = []object{}
	} else if v1(r.path) || r.mcp {
		operation["security"] = []object{{"token": []string{}}}
	}
	return operation, nil
}

// answer returns the content of a response that is not an error. If it can also be a stream, only the description
// says so: of two media types, generated clients support one, often the first.
func (m *manual) answer(r *route) (content object, about string, err error) {
	answers := r.answer
	if answers != nil && answers.Kind() == reflect.Pointer {
		answers = answers.Elem()
	}
	switch {
	case answers != nil && answers.Kind() == reflect.Struct:
		content, err = m.content(answers)
		if r.events {
			about = "With `Accept: text/event-stream` the answer is a stream of events, as that of GET /api/runs/{id}/events."
		}
		if r.events && v1(r.path) {
			about = "With `stream: true` the answer is a stream of events, as OpenAI's API has it."
		}
		return content, about, err
	case r.also == http.StatusSwitchingProtocols, r.status == http.StatusNoContent:
		return object{}, "", nil
	case r.mcp && r.method == http.MethodPost:
		return inJSON(object{"type": "object"}), "The answer may be a stream of messages.", nil
	case r.mcp:
		return object{streamType: object{"schema": object{"type": "string"}}}, "", nil
	case r.events:
		err := m.events()
		return object{streamType: object{"schema": object{"$ref": schemasPath + "Event"}}}, "", err
	case r.media != "":
		return object{r.media: object{"schema": object{"type": "string"}}}, "", nil
	}
	return inJSON(object{"type": "object"}), "", nil
}

// samples has an event of each kind.
var samples = []journal.Frame{
	{Event: string(journal.KindRunStarted), Data: journal.StartedView{}},
	{Event: journal.FrameToken, Data: journal.TextView{}},
	{Event: journal.FrameThinking, Data: journal.TextView{}},
	{Event: journal.FrameToolCallDelta, Data: journal.CallDeltaView{}},
	{Event: string(journal.KindMessage), Data: journal.MessageView{}},
	{Event: string(journal.KindToolCall), Data: journal.CallView{}},
	{Event: string(journal.KindConfirmationRequired), Data: journal.ConfirmationView{}},
	{Event: string(journal.KindConfirmationResolved), Data: journal.ResolvedView{}},
	{Event: string(journal.KindToolStarted), Data: journal.CallStartedView{}},
	{Event: journal.FrameToolProgress, Data: journal.ProgressView{}},
	{Event: string(journal.KindToolResult), Data: journal.ResultView{}},
	{Event: string(journal.KindUsage), Data: toolcrib.Usage{}},
	{Event: string(journal.KindNotice), Data: toolcrib.Notice{}},
	{Event: journal.FrameUserMessage, Data: journal.UserMessageView{}},
	{Event: string(journal.KindChildStarted), Data: journal.ChildView{}},
	{Event: string(journal.KindChildResumed), Data: journal.ChildResumed{}},
	{Event: string(journal.KindChildEnded), Data: journal.ChildEnded{}},
	{Event: string(journal.KindPaused), Data: journal.Paused{}},
	{Event: string(journal.KindDone), Data: journal.DoneView{}},
	{Event: string(journal.KindError), Data: journal.ErrorView{}},
	{Event: closedEvent, Data: api.Failure{}},
}

// events adds the schemas of the data of events, by the names of the events.
func (m *manual) events() error {
	all := &jsonschema.Schema{Description: "the data of an event; the title of each schema is the name of its event"}
	for _, e := range samples {
		schema, err := m.schema(reflect.TypeOf(e.Data))
		if err != nil {
			return err
		}
		name := "Event"
		for word := range strings.SplitSeq(e.Event, "_") {
			name += strings.ToUpper(word[:1]) + word[1:]
		}
		schema.Title, m.schemas[name] = e.Event, schema
		all.AnyOf = append(all.AnyOf, &jsonschema.Schema{Ref: schemasPath + name})
	}
	m.schemas["Event"] = all
	return nil
}

// fails returns the error statuses of a route.
func (r *route) fails() []int {
	all := []int{http.StatusBadRequest, http.StatusForbidden, http.StatusInternalServerError}
	if !r.open || r.body != nil {
		all = append(all, http.StatusUnauthorized, http.StatusGone, http.StatusServiceUnavailable)
	}
	// These name something, or can be switched off.
	if strings.Contains(r.path, "{") || len(r.query) > 0 || r.body != nil || r.mcp || r.path == "/metrics" {
		all = append(all, http.StatusNotFound)
	}
	if !r.probe {
		all = append(all, http.StatusTooManyRequests)
	}
	if r.method != http.MethodGet {
		all = append(all, http.StatusConflict)
	}
	if r.body != nil || r.mcp {
		all = append(all, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	if r.mcp {
		all = append(all, http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusConflict)
	}
	if r.body != nil && v1(r.path) {
		all = append(all, http.StatusBadGateway)
	}
	return all
}

// failure returns a reference to an error response.
func (m *manual) failure(status int, openAI bool) (object, error) {
	name, of := strings.ReplaceAll(http.StatusText(status), " ", ""), reflect.TypeFor[api.Failure]()
	if openAI {
		name, of = "V1"+name, reflect.TypeFor[openai.ErrorBody]()
	}
	content, err := m.content(of)
	var codes []string
	for code, is := range statuses {
		if is == status {
			codes = append(codes, string(code))
		}
	}
	slices.Sort(codes)
	about := http.StatusText(status)
	if len(codes) > 0 {
		about += ": " + strings.Join(codes, ", ")
	}
	m.fails[name] = object{"description": about, "content": content}
	return object{"$ref": "#/components/responses/" + name}, err
}

// tag returns the group of a route: the first word of its path.
func (r *route) tag() string {
	word, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(r.path, "/api"), "/"), "/")
	switch word {
	case "v1":
		return "openai"
	case ".well-known":
		return "mcp"
	case "healthz", "readyz", "metrics", "openapi.json":
		return "server"
	}
	return word
}

// operationID returns the name of an operation: its method and the words of its path.
func operationID(r *route) string {
	id := strings.ToLower(r.method)
	for _, word := range regexp.MustCompile(`[A-Za-z0-9]+`).FindAllString(strings.TrimPrefix(r.path, "/api"), -1) {
		id += strings.ToUpper(word[:1]) + word[1:]
	}
	return id
}

// parameters returns those of the path, the query and the header.
func (r *route) parameters() (all []object) {
	for _, found := range pathParam.FindAllStringSubmatch(r.path, -1) {
		all = append(all, object{
			"name": found[1], "in": "path", "required": true, "schema": object{"type": "string"},
		})
	}
	for _, p := range r.query {
		in, schema := "query", object{"type": p.kind}
		switch p.kind {
		case kindCount:
			schema = object{"type": "integer", "minimum": 1}
		case kindTime:
			schema = object{"type": "string", "format": "date-time"}
		case kindHeader, kindOrdinal:
			in, schema = "header", object{"type": "string"}
		}
		all = append(all, object{"name": p.name, "in": in, "description": p.about, "schema": schema})
	}
	return all
}
