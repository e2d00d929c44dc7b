package gemini_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

var named = regexp.MustCompile(`^(gemini|gemma)-(\d+)(?:\.(\d+))?`)

// generation is derived from the name of a model; the zero value is that of an unknown
// model.
type generation struct {
	gemma      bool
	number     int // 205 for 2.5
	pro, flash bool
}

func generationOf(name string) (g generation) {
	name = name[strings.LastIndexByte(name, '/')+1:]
	g.pro, g.flash = strings.Contains(name, "-pro"), strings.Contains(name, "-flash")
	if strings.HasPrefix(name, "gemini-") && strings.HasSuffix(name, "-latest") {
		g.number = 305
	} else if parts := named.FindStringSubmatch(name); parts != nil {
		major, _ := strconv.Atoi(parts[2])
		minor, _ := strconv.Atoi(parts[3]) // absent is 0
		g.gemma, g.number = parts[1] == "gemma", major*100+minor
	}
	return g
}

// three reports whether the model requires thought signatures.
func (g generation) three() bool { return !g.gemma && g.number >= 300 }

type sentRequest struct {
	System *struct{ Parts []sentPart } `json:"systemInstruction"`
	Tools  []struct {
		Functions []struct {
			Name, Description string
			Schema            map[string]any `json:"parametersJsonSchema"`
		} `json:"functionDeclarations"`
	} `json:"tools"`
	ToolConfig struct {
		Calling struct {
			Mode  string   `json:"mode"`
			Names []string `json:"allowedFunctionNames"`
		} `json:"functionCallingConfig"`
	} `json:"toolConfig"`
	Config   sentConfig `json:"generationConfig"`
	Contents []struct {
		Role  string
		Parts []sentPart
	} `json:"contents"`
}

type sentConfig struct {
	Temperature *float64       `json:"temperature"`
	MaxTokens   *int           `json:"maxOutputTokens"`
	Schema      map[string]any `json:"responseJsonSchema"`
	OldSchema   any            `json:"responseSchema"`
	Type        string         `json:"responseMimeType"`
	Thinking    *struct {
		Include bool    `json:"includeThoughts"`
		Budget  *int    `json:"thinkingBudget"`
		Level   *string `json:"thinkingLevel"`
	} `json:"thinkingConfig"`
}

type sentPart struct {
	Text      *string   `json:"text"`
	Thought   bool      `json:"thought"`
	Signature *string   `json:"thoughtSignature"`
	File      *sentFile `json:"inlineData"`
	Call      any       `json:"functionCall"`
	Result    *struct {
		Response any        `json:"response"`
		Parts    []sentPart `json:"parts"`
	} `json:"functionResponse"`
}

type sentFile struct {
	Type string `json:"mimeType"`
	Data []byte `json:"data"`
}

// findings collects errors.
type findings struct{ errs []error }

func (f *findings) wrong(is bool, format string, args ...any) {
	if is {
		f.errs = append(f.errs, fmt.Errorf(format, args...))
	}
}

// refuses returns errors that the API reports although its own types accept the request; nil if none. It
// is stricter than the API: schemas must be in the documented subset, and
// each turn with calls must be signed for models of generation 3, not only the latest.
func refuses(model string, body []byte) error {
	var doc sentRequest
	if err := json.Unmarshal(body, &doc); err != nil {
		return err
	}
	var f findings
	g := generationOf(model)
	f.wrong(g.gemma && g.number < 400 && (doc.Tools != nil || doc.System != nil),
		"Function calling and developer instruction are not enabled for this model")
	f.wrong(doc.System != nil && (len(doc.System.Parts) != 1 || doc.System.Parts[0].blank()),
		"systemInstruction: must hold one text that is not blank")
	for _, list := range doc.Tools {
		for _, fn := range list.Functions {
			f.wrong(strings.TrimSpace(fn.Description) == "", "%s: no description", fn.Name)
			if fn.Schema != nil {
				properties, _ := fn.Schema["properties"].(map[string]any)
				f.wrong(fn.Schema["type"] != "object" || len(properties) == 0,
					"%s: the schema must be of type object, with properties; else leave it out", fn.Name)
				f.schema(fn.Name, fn.Schema)
			}
		}
	}
	calling := doc.ToolConfig.Calling
	f.wrong(!slices.Contains([]string{"", "AUTO", "ANY", "NONE", "VALIDATED"}, calling.Mode), "mode %q", calling.Mode)
	f.wrong(len(calling.Names) > 0 && calling.Mode != "ANY", "allowedFunctionNames: only with mode ANY")
	f.config(g, doc.Config, doc.Tools != nil)
	for i, turn := range doc.Contents {
		signed := !g.three() // by the first call of the turn
		for _, p := range turn.Parts {
			where := fmt.Sprintf("contents[%d]", i)
			f.part(where, p)
			if turn.Role == "model" {
				f.said(where, p, &signed)
			} else {
				f.asked(g, where, p)
			}
		}
	}
	return errors.Join(f.errs...)
}

func (f *findings) config(g generation, c sentConfig, tools bool) {
	f.wrong(c.Temperature != nil && (*c.Temperature < 0 || *c.Temperature > 2), "temperature: must be 0 to 2")
	f.wrong(c.MaxTokens != nil && *c.MaxTokens < 1, "maxOutputTokens: must be at least 1")
	asJSON := c.Type == "application/json"
	f.wrong(c.Schema != nil && c.OldSchema != nil, "responseSchema and responseJsonSchema exclude each other")
	f.wrong(c.Schema != nil && !asJSON, "responseJsonSchema: only with responseMimeType application/json")
	f.wrong(asJSON && tools && !g.three(), "Function calling with a response mime type: 'application/json' is unsupported")
	if c.Schema != nil {
		f.schema("responseJsonSchema", c.Schema)
	}
	t := c.Thinking
	if t == nil {
		return
	}
	f.wrong(g.gemma || g.number > 0 && g.number < 205, "thinkingConfig: the model has no reasoning")
	f.wrong(t.Budget != nil && t.Level != nil, "thinkingConfig: budget and level exclude each other")
	if t.Level != nil {
		level := *t.Level
		f.wrong(!slices.Contains([]string{"MINIMAL", "LOW", "MEDIUM", "HIGH"}, level), "thinkingLevel: %s", level)
		f.wrong(!g.three(), "thinkingLevel: only from generation 3 on")
		f.wrong(level == "MINIMAL" && !g.flash || level == "MEDIUM" && g.pro && g.number == 300,
			"thinkingLevel: %s is not supported by this model", level)
	}
	if t.Budget != nil {
		budget := *t.Budget
		f.wrong(budget < -1 || budget > 32768 || g.flash && budget > 24576, "thinkingBudget: %d is out of range", budget)
		f.wrong(g.pro && budget >= 0 && budget < 128, "thinkingBudget: this model needs at least 128")
		f.wrong(t.Include && budget == 0, "includeThoughts: only with reasoning")
	}
}

func (p *sentPart) blank() bool { return p.Text == nil || strings.TrimSpace(*p.Text) == "" }

// part checks rules for the parts of both roles.
func (f *findings) part(where string, p sentPart) {
	kinds := 0
	for _, set := range []bool{p.Text != nil, p.Call != nil, p.Result != nil, p.File != nil} {
		if set {
			kinds++
		}
	}
	f.wrong(kinds != 1, "%s: a part must have exactly one kind of data", where)
	f.wrong(p.Text != nil && p.blank() && p.Signature == nil, "%s: the text is blank", where)
	f.wrong(p.File != nil && (!strings.Contains(p.File.Type, "/") || len(p.File.Data) == 0), "%s: no file", where)
}

// standIn is the documented replacement for a missing signature.
const standIn = "skip_thought_signature_validator"

// said checks a part of the model; signed reports whether its calls are signed.
func (f *findings) said(where string, p sentPart, signed *bool) {
	f.wrong(p.Result != nil, "%s: functionResponse in a turn of the model", where)
	if p.Signature != nil {
		s := *p.Signature
		plain := strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(s, "="))
		_, err := base64.RawStdEncoding.DecodeString(plain)
		f.wrong(s == standIn && p.Call == nil, "%s: only a call goes without a real signature", where)
		f.wrong(s != standIn && (err != nil || s == ""), "%s: Base64 decoding failed for %q", where, s)
		*signed = *signed || p.Call != nil
	}
	f.wrong(p.Call != nil && !*signed, "%s: Function call is missing a thought_signature", where)
}

// asked checks a part of the user.
func (f *findings) asked(g generation, where string, p sentPart) {
	f.wrong(p.Call != nil || p.Thought || p.Signature != nil, "%s: a user neither calls nor reasons", where)
	if p.Result == nil {
		return
	}
	_, isObject := p.Result.Response.(map[string]any)
	f.wrong(!isObject, "%s: the response must be an object", where)
	f.noReference(where, p.Result.Response)
	f.wrong(len(p.Result.Parts) > 0 && !g.three(), "%s: files in results only from generation 3 on", where)
	for _, part := range p.Result.Parts {
		f.part(where, part)
		f.wrong(part.File == nil, "%s: only files beside a response", where)
	}
}

// noReference finds a member $ref, which the API treats as a reference to a part.
func (f *findings) noReference(where string, v any) {
	switch v := v.(type) {
	case []any:
		for _, inner := range v {
			f.noReference(where, inner)
		}
	case map[string]any:
		for name, inner := range v {
			f.wrong(name == "$ref", "%s: reference to a part that there is not", where)
			f.noReference(where, inner)
		}
	}
}

// schema checks that a schema is in the documented subset of JSON Schema.
func (f *findings) schema(where string, v any) {
	schema, ok := v.(map[string]any)
	f.wrong(!ok, "%s: no object", where)
	for word, value := range schema {
		at := where + "." + word
		list, isList := value.([]any)
		switch word {
		case "type":
			if !isList {
				list = []any{value}
			}
			for _, one := range list {
				f.wrong(!slices.Contains([]any{"string", "number", "integer", "boolean", "object", "array", "null"}, one), "%s: %v", at, one)
			}
		case "title", "description", "format":
			_, ok := value.(string)
			f.wrong(!ok, "%s: must be a text", at)
		case "minItems", "maxItems", "minimum", "maximum":
			_, ok := value.(float64)
			f.wrong(!ok, "%s: must be a number", at)
		case "enum":
			f.wrong(len(list) == 0, "%s: is empty", at)
			for _, one := range list {
				_, isText := one.(string)
				_, isNumber := one.(float64)
				f.wrong(!isText && !isNumber, "%s: holds strings and numbers only", at)
			}
		case "required":
			known, _ := schema["properties"].(map[string]any)
			f.wrong(!isList, "%s: must be a list", at)
			for _, name := range list {
				f.wrong(known[fmt.Sprint(name)] == nil, "%s: %v: property is not defined", at, name)
			}
		case "properties":
			inner, _ := value.(map[string]any)
			f.wrong(len(inner) == 0, "%s: should be non-empty", at)
			for name, p := range inner {
				f.schema(at+"."+name, p)
			}
		case "items", "additionalProperties":
			if _, ok := value.(bool); !ok || word == "items" {
				f.schema(at, value)
			}
		case "anyOf", "prefixItems":
			f.wrong(len(list) == 0, "%s: is empty", at)
			for _, p := range list {
				f.schema(at, p)
			}
		default:
			f.wrong(true, "%s: outside the documented subset", at)
		}
	}
}

// check reports errors that the API would return for a request.
func check(model string, body []byte) error {
	return errors.Join(modeltest.Gemini.Check(body), refuses(model, body))
}

const goodGemini = `{"generationConfig":{"temperature":1,"maxOutputTokens":100,"thinkingConfig":{"thinkingLevel":"LOW","includeThoughts":true}},
"toolConfig":{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["g"]}},
"systemInstruction":{"parts":[{"text":"s"}]},
"tools":[{"functionDeclarations":[{"name":"f","description":"d","parametersJsonSchema":{"type":"object","properties":{"l":{"type":"array","items":{}}},"required":["l"]}},{"name":"g","description":"e"}]}],
"contents":[{"role":"user","parts":[{"text":"q"}]},
{"role":"model","parts":[{"text":"hm","thought":true,"thoughtSignature":"YWJj"},{"functionCall":{"id":"1","name":"f","args":{}},"thoughtSignature":"YWJj"},{"functionCall":{"name":"g","args":{"x":1}}}]},
{"role":"user","parts":[{"functionResponse":{"id":"1","name":"f","response":{"result":"a"}}},{"functionResponse":{"name":"g","response":{"b":[{}]},"parts":[{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]}},{"text":"note"}]}]}`

// Each case breaks one part of a valid request.
func TestRefuses(t *testing.T) {
	if err := refuses("gemini-3.5-flash", []byte(goodGemini)); err != nil {
		t.Fatalf("the good request is refused: %v", err)
	}
	for _, b := range []struct{ name, old, new, want string }{
		{"hot", `"temperature":1`, `"temperature":2.5`, "temperature"},
		{"output", `"maxOutputTokens":100`, `"maxOutputTokens":0`, "maxOutputTokens"},
		{"level", `"LOW"`, `"OFF"`, "thinkingLevel"},
		{"level and budget", `"thinkingLevel":"LOW"`, `"thinkingBudget":1,"thinkingLevel":"LOW"`, "exclude"},
		{"schema without type", `"temperature":1`, `"responseJsonSchema":{"type":"object"}`, "responseMimeType"},
		{"two schemas", `"temperature":1`, `"responseSchema":{},"responseJsonSchema":{}`, "exclude"},
		{"no description", `"description":"d",`, ``, "description"},
		{"schema type", `{"type":"object","properties":{"l"`, `{"type":"string","properties":{"l"`, "object"},
		{"empty schema", `,"parametersJsonSchema":{"type":"object","properties":{"l":{"type":"array","items":{}}},"required":["l"]}`, `,"parametersJsonSchema":{"type":"object","properties":{}}`, "non-empty"},
		{"keyword", `"items":{}`, `"items":{},"uniqueItems":true`, "subset"},
		{"reference", `"items":{}`, `"items":{"$ref":"#"}`, "subset"},
		{"enum", `"items":{}`, `"items":{"enum":[true]}`, "strings and numbers"},
		{"required", `"required":["l"]`, `"required":["m"]`, "not defined"},
		{"type list", `"type":"array"`, `"type":["array","any"]`, "any"},
		{"mode", `"mode":"ANY"`, `"mode":"any"`, "mode"},
		{"names with auto", `"mode":"ANY"`, `"mode":"AUTO"`, "allowedFunctionNames"},
		{"blank system", `{"text":"s"}`, `{"text":" "}`, "systemInstruction"},
		{"blank text", `{"text":"q"}`, `{"text":"\n"}`, "blank"},
		{"nothing in a part", `{"text":"q"}`, `{}`, "one kind"},
		{"two things in a part", `"args":{}}`, `"args":{}},"text":"x"`, "one kind"},
		{"unsigned call", `"args":{}},"thoughtSignature":"YWJj"`, `"args":{}}`, "thought_signature"},
		{"bad signature", `"thought":true,"thoughtSignature":"YWJj"`, `"thought":true,"thoughtSignature":"a|b"`, "Base64"},
		{"stand-in on a thought", `"thought":true,"thoughtSignature":"YWJj"`, `"thought":true,"thoughtSignature":"skip_thought_signature_validator"`, "real"},
		{"user signs", `{"text":"note"}`, `{"text":"note","thoughtSignature":"YWJj"}`, "user"},
		{"response no object", `"response":{"result":"a"}`, `"response":"a"`, "object"},
		{"response with reference", `"response":{"result":"a"}`, `"response":{"a":[{"$ref":"#/x"}]}`, "reference"},
		{"model answers itself", `{"text":"hm","thought":true,"thoughtSignature":"YWJj"}`, `{"functionResponse":{"name":"f","response":{}}}`, "turn of the model"},
		{"user calls", `{"text":"note"}`, `{"functionCall":{"name":"f","args":{}}}`, "user"},
		{"file without type", `"mimeType":"image/png",`, ``, "no file"},
	} {
		if !strings.Contains(goodGemini, b.old) {
			t.Fatalf("%s: the good request does not hold %s", b.name, b.old)
		}
		err := refuses("gemini-3.5-flash", []byte(strings.Replace(goodGemini, b.old, b.new, 1)))
		if err == nil || !strings.Contains(err.Error(), b.want) {
			t.Errorf("%s: error %v, want one with %q", b.name, err, b.want)
		}
	}
}

func TestRefuses_Generations(t *testing.T) {
	body := func(config, parts string) string {
		return `{"generationConfig":` + config + `,"tools":[{"functionDeclarations":[{"name":"f","description":"d"}]}],"contents":[{"role":"user","parts":[{"text":"q"}]},` +
			`{"role":"model","parts":[{"functionCall":{"name":"f","args":{}}}]},{"role":"user","parts":[{"functionResponse":{"name":"f","response":{}` + parts + `}}]}]}`
	}
	const file = `,"parts":[{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]`
	for _, tt := range []struct{ model, body, want string }{
		{"gemini-2.5-pro", body(`{"thinkingConfig":{"thinkingBudget":128}}`, ``), ""},
		{"", body(`{}`, ``), ""},
		{"gemini-2.5-pro", body(`{"thinkingConfig":{"thinkingBudget":0}}`, ``), "at least"},
		{"gemini-2.5-flash", body(`{"thinkingConfig":{"thinkingBudget":32768}}`, ``), "range"},
		{"gemini-2.5-flash", body(`{"thinkingConfig":{"thinkingLevel":"LOW"}}`, ``), "generation 3"},
		{"gemini-2.0-flash", body(`{"thinkingConfig":{"thinkingBudget":1024}}`, ``), "no reasoning"},
		{"gemini-2.5-flash", body(`{"responseMimeType":"application/json"}`, ``), "unsupported"},
		{"gemini-2.5-flash", body(`{}`, file), "generation 3"},
		{"gemini-3-pro-preview", body(`{}`, ``), "thought_signature"},
		{"gemini-flash-latest", body(`{}`, ``), "thought_signature"},
		{"gemini-3-pro-preview", body(`{"thinkingConfig":{"thinkingLevel":"MEDIUM"}}`, ``), "not supported"},
		{"gemini-3.1-pro", body(`{"thinkingConfig":{"thinkingLevel":"MINIMAL"}}`, ``), "not supported"},
		{"gemma-3-27b-it", body(`{}`, ``), "not enabled"},
		{"gemma-3-27b-it", `{"systemInstruction":{"parts":[{"text":"s"}]},"contents":[{"role":"user","parts":[{"text":"q"}]}]}`, "not enabled"},
	} {
		err := refuses(tt.model, []byte(tt.body))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want one with %q", tt.model, err, tt.want)
		}
	}
}
