package modeltest

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

const (
	geminiFields = "contents systemInstruction tools toolConfig generationConfig safetySettings " +
		"cachedContent labels serviceTier"
	geminiConfigFields = "temperature topP topK candidateCount maxOutputTokens stopSequences seed presencePenalty " +
		"frequencyPenalty " +
		"responseLogprobs logprobs responseModalities mediaResolution responseMimeType responseSchema " +
		"responseJsonSchema thinkingConfig"
)

var (
	geminiFunctionName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}$`)
	geminiNamed        = regexp.MustCompile(`^(gemini|gemma)-(\d+)(?:\.(\d+))?`)
)

// geminiModel is what is known of a model by its name; the zero value is a model of which
// nothing is known.
type geminiModel struct {
	gemma      bool
	generation int // 205 = 2.5
	pro, flash bool
}

func geminiModelOf(name string) (m geminiModel) {
	name = name[strings.LastIndexByte(name, '/')+1:]
	m.pro, m.flash = strings.Contains(name, "-pro"), strings.Contains(name, "-flash")
	if strings.HasPrefix(name, "gemini-") && strings.HasSuffix(name, "-latest") {
		m.generation = 305
	} else if parts := geminiNamed.FindStringSubmatch(name); parts != nil {
		major, _ := strconv.Atoi(parts[2])
		minor, _ := strconv.Atoi(parts[3]) // absent is 0
		m.gemma, m.generation = parts[1] == "gemma", major*100+minor
	}
	return m
}

// three reports whether the model asks for thought signatures.
func (m geminiModel) three() bool { return !m.gemma && m.generation >= 300 }

// gemini checks a request of the Generative Language API. It is stricter than the API in
// this: user and model must take turns, schemas hold nothing beyond the documented
// subset, and each turn with calls must be signed for models of generation 3, not only
// the latest.
func (c *checker) gemini(model string, doc object) {
	m := geminiModelOf(model)
	c.names = geminiFunctionName
	c.only("", doc, geminiFields)
	old := m.gemma && m.generation < 400
	c.wrong(old && doc["tools"] != nil, "tools: Function calling is not enabled for this model")
	c.wrong(old && doc["systemInstruction"] != nil,
		"systemInstruction: Developer instruction is not enabled for this model")
	c.geminiTools(doc)
	c.geminiConfig(m, doc["generationConfig"])
	if v, ok := doc["systemInstruction"]; ok {
		parts, _ := c.only("systemInstruction", v, "parts")["parts"].([]any)
		c.wrong(len(parts) != 1 || blank(at(parts[0], "text")), "systemInstruction: must hold one text that is not blank")
	}
	for i, v := range c.list("contents", doc["contents"]) {
		where := fmt.Sprintf("contents[%d]", i)
		turn := c.only(where, v, "role parts")
		c.next(where, text(turn["role"]), "model")
		if turn["role"] == "model" {
			c.say(where)
		}
		signed := !m.three() // by the first call of the turn
		for _, part := range c.list(where+".parts", turn["parts"]) {
			p := c.geminiPart(where, part)
			if turn["role"] == "model" {
				c.geminiSaid(where, p, &signed)
			} else {
				c.geminiAsked(m, where, p)
			}
		}
		if turn["role"] == "user" {
			c.say(where)
		}
	}
	c.last()
}

func (c *checker) geminiTools(doc object) {
	if v, ok := doc["tools"]; ok {
		tools := c.list("tools (N8)", v)
		c.wrong(len(tools) != 1, "tools: must hold one list of functions (N8)")
		for _, tool := range tools {
			for i, v := range c.list("tools[0] (N8)", c.only("tools[0]", tool, "functionDeclarations")["functionDeclarations"]) {
				where := fmt.Sprintf("tools[0].functionDeclarations[%d]", i)
				f := c.only(where, v, "name description parametersJsonSchema")
				c.offer(where, text(f["name"]))
				c.wrong(blank(f["description"]), "%s.description: is missing", where)
				if schema, ok := f["parametersJsonSchema"]; ok {
					properties, _ := at(schema, "properties").(object)
					c.wrong(at(schema, "type") != "object", "%s: the schema must be of type object", where)
					c.wrong(len(properties) == 0, "%s: properties should be non-empty; leave the schema out", where)
					c.geminiSchema(where, schema)
				}
			}
		}
	}
	if v, ok := doc["toolConfig"]; ok {
		c.wrong(len(c.tools) == 0, "toolConfig: only with tools")
		config := c.only("toolConfig", v, "functionCallingConfig")
		f := c.only("toolConfig", config["functionCallingConfig"], "mode allowedFunctionNames")
		c.oneOf("toolConfig.mode", fmt.Sprint(f["mode"]), "AUTO ANY NONE VALIDATED")
		names, _ := f["allowedFunctionNames"].([]any)
		c.wrong(len(names) > 0 && f["mode"] != "ANY", "toolConfig: allowedFunctionNames only with mode ANY")
		for _, name := range names {
			c.chosen(text(name))
		}
	}
}

func (c *checker) geminiConfig(m geminiModel, v any) {
	if v == nil {
		return
	}
	config := c.only("generationConfig", v, geminiConfigFields)
	c.within("temperature", config["temperature"], 0, 2)
	c.within("maxOutputTokens", config["maxOutputTokens"], 1, 1<<31-1)
	c.within("candidateCount", config["candidateCount"], 1, 1)
	schema := config["responseJsonSchema"]
	asJSON := config["responseMimeType"] == "application/json"
	c.wrong(schema != nil && config["responseSchema"] != nil, "responseSchema and responseJsonSchema exclude each other")
	c.wrong(schema != nil && !asJSON, "responseJsonSchema: only with responseMimeType application/json")
	c.wrong(asJSON && len(c.tools) > 0 && !m.three(),
		"tools: Function calling with a response mime type: 'application/json' is unsupported")
	if schema != nil {
		c.geminiSchema("responseJsonSchema", schema)
	}
	if t, ok := config["thinkingConfig"]; ok {
		c.geminiThinking(m, c.only("thinkingConfig", t, "includeThoughts thinkingBudget thinkingLevel"))
	}
}

func (c *checker) geminiThinking(m geminiModel, t object) {
	budget, hasBudget := t["thinkingBudget"].(float64)
	level, hasLevel := t["thinkingLevel"]
	c.wrong(m.gemma || m.generation > 0 && m.generation < 205, "thinkingConfig: the model has no reasoning")
	c.wrong(hasBudget && hasLevel, "thinkingConfig: budget and level exclude each other")
	if hasLevel {
		c.oneOf("thinkingLevel", level, "MINIMAL LOW MEDIUM HIGH")
		c.wrong(!m.three(), "thinkingLevel: only from generation 3 on")
		c.wrong(level == "MINIMAL" && !m.flash || level == "MEDIUM" && m.pro && m.generation == 300,
			"thinkingLevel: %v is not supported by this model", level)
	}
	if hasBudget {
		c.wrong(budget < -1 || budget > 32768 || m.flash && budget > 24576, "thinkingBudget: %v is out of range", budget)
		c.wrong(m.pro && budget >= 0 && budget < 128, "thinkingBudget: this model needs at least 128")
		c.wrong(t["includeThoughts"] == true && budget == 0, "includeThoughts: only with reasoning")
	}
}

// geminiPart checks what holds for the parts of both sides.
func (c *checker) geminiPart(where string, v any) object {
	p := c.only(where, v, "text thought thoughtSignature functionCall functionResponse inlineData fileData "+
		"videoMetadata mediaResolution")
	kinds := 0
	for _, kind := range []string{"text", "functionCall", "functionResponse", "inlineData", "fileData"} {
		if p[kind] != nil {
			kinds++
		}
	}
	c.wrong(kinds != 1, "%s: a part must have exactly one kind of data", where)
	c.wrong(p["text"] != nil && blank(p["text"]) && p["thoughtSignature"] == nil, "%s.text: is blank", where)
	if p["inlineData"] != nil {
		c.geminiFile(where, p["inlineData"])
	}
	return p
}

func (c *checker) geminiFile(where string, v any) {
	f := c.only(where+".inlineData", v, "mimeType data displayName")
	data, err := base64.StdEncoding.DecodeString(text(f["data"]))
	c.wrong(!strings.Contains(text(f["mimeType"]), "/") || len(data) == 0 || err != nil,
		"%s.inlineData: must hold files, with mimeType and data", where)
}

// dummySignature is the documented replacement for a missing signature.
const dummySignature = "skip_thought_signature_validator"

// geminiSaid checks a part of the model; signed reports whether its calls are signed.
func (c *checker) geminiSaid(where string, p object, signed *bool) {
	c.wrong(p["functionResponse"] != nil, "%s: functionResponse in a turn of the model", where)
	if signature, ok := p["thoughtSignature"]; ok {
		s := text(signature)
		plain := strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(s, "="))
		_, err := base64.RawStdEncoding.DecodeString(plain)
		c.wrong(s == dummySignature && p["functionCall"] == nil,
			"%s.thoughtSignature: only a call goes without a real one", where)
		c.wrong(s != dummySignature && (err != nil || s == ""),
			"%s.thoughtSignature: Base64 decoding failed for %q", where, s)
		*signed = *signed || p["functionCall"] != nil
	}
	if v, ok := p["functionCall"]; ok {
		call := c.only(where+".functionCall", v, "id name args")
		c.call(where+".functionCall", text(call["id"]), text(call["name"]), call["args"])
		c.wrong(!*signed, "%s: Function call is missing a thought_signature in functionCall parts", where)
	}
}

// geminiAsked checks a part of the user. What replaces a file may be between results.
func (c *checker) geminiAsked(m geminiModel, where string, p object) {
	c.wrong(p["functionCall"] != nil || p["thought"] != nil || p["thoughtSignature"] != nil,
		"%s: a user neither calls nor reasons", where)
	if said := text(p["text"]); said != "" && !strings.HasPrefix(said, "[file ") {
		c.say(where)
	}
	v, ok := p["functionResponse"]
	if !ok {
		return
	}
	f := c.only(where+".functionResponse", v, "id name response parts")
	c.wrong(text(f["name"]) == "", "%s.functionResponse: has no name", where)
	c.result(where+".functionResponse", text(f["id"]), text(f["name"]))
	_, isObject := f["response"].(object)
	c.wrong(!isObject, "%s.functionResponse.response: must be an object", where)
	c.noReference(where, f["response"])
	parts, _ := f["parts"].([]any)
	c.wrong(len(parts) > 0 && !m.three(), "%s.functionResponse.parts: only from generation 3 on", where)
	for _, part := range parts {
		c.geminiFile(where, c.only(where, part, "inlineData")["inlineData"])
	}
}

// noReference finds a member $ref, which the API takes for a reference to a part.
func (c *checker) noReference(where string, v any) {
	switch v := v.(type) {
	case []any:
		for _, inner := range v {
			c.noReference(where, inner)
		}
	case object:
		for name, inner := range v {
			c.wrong(name == "$ref", "%s: reference to a part that there is not", where)
			c.noReference(where, inner)
		}
	}
}

// geminiSchema holds a schema to the documented subset of JSON Schema.
func (c *checker) geminiSchema(where string, v any) {
	schema := c.only(where+": outside the documented subset", v, "type title description format minItems maxItems "+
		"minimum maximum "+
		"enum required properties items additionalProperties anyOf prefixItems")
	types, ok := schema["type"].([]any)
	if !ok && schema["type"] != nil {
		types = []any{schema["type"]}
	}
	for _, one := range types {
		c.oneOf(where+".type: no type", one, "string number integer boolean object array null")
	}
	for word, value := range schema {
		at := where + "." + word
		switch word {
		case "title", "description", "format":
			_, ok := value.(string)
			c.wrong(!ok, "%s: must be a text", at)
		case "minItems", "maxItems", "minimum", "maximum":
			_, ok := value.(float64)
			c.wrong(!ok, "%s: must be a number", at)
		case "enum":
			for _, one := range c.list(at, value) {
				_, isText := one.(string)
				_, isNumber := one.(float64)
				c.wrong(!isText && !isNumber, "%s: holds strings and numbers only", at)
			}
		case "required":
			known, _ := schema["properties"].(object)
			names, ok := value.([]any)
			c.wrong(!ok, "%s: must be a list", at)
			for _, name := range names {
				c.wrong(known[text(name)] == nil, "%s: %v: property is not defined", at, name)
			}
		case "properties":
			inner, _ := value.(object)
			c.wrong(len(inner) == 0, "%s: should be non-empty", at)
			for name, p := range inner {
				c.geminiSchema(at+"."+name, p)
			}
		case "items", "additionalProperties":
			if _, ok := value.(bool); !ok || word == "items" {
				c.geminiSchema(at, value)
			}
		case "anyOf", "prefixItems":
			for _, p := range c.list(at, value) {
				c.geminiSchema(at, p)
			}
		}
	}
}
