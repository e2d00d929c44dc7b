package modeltest

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

type geminiRequest struct {
	Contents          []geminiContent   `json:"contents"`
	SystemInstruction *geminiContent    `json:"systemInstruction"`
	Tools             *[]geminiTool     `json:"tools"`
	ToolConfig        *geminiToolConfig `json:"toolConfig"`
	GenerationConfig  *geminiConfig     `json:"generationConfig"`
	SafetySettings    json.RawMessage   `json:"safetySettings"`
	CachedContent     *string           `json:"cachedContent"`
	Labels            map[string]string `json:"labels"`
	ServiceTier       *string           `json:"serviceTier"`
	names             []string          // of the functions
	model             geminiModel       // as the path names it
	open              []geminiCallPart  // calls that wait for their results
}

type geminiContent struct {
	Role  string       `json:"role"`
	Parts []geminiPart `json:"parts"`
}

type geminiPart struct {
	Text             *string             `json:"text"`
	Thought          bool                `json:"thought"`
	ThoughtSignature *string             `json:"thoughtSignature"`
	FunctionCall     *geminiCallPart     `json:"functionCall"`
	FunctionResponse *geminiResponsePart `json:"functionResponse"`
	InlineData       *geminiBlob         `json:"inlineData"`
	FileData         json.RawMessage     `json:"fileData"`
	VideoMetadata    json.RawMessage     `json:"videoMetadata"`
	MediaResolution  json.RawMessage     `json:"mediaResolution"`
}

type geminiCallPart struct {
	ID   string          `json:"id"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

type geminiResponsePart struct {
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Response json.RawMessage `json:"response"`
	Parts    []struct {
		InlineData *geminiBlob     `json:"inlineData"`
		FileData   json.RawMessage `json:"fileData"`
	} `json:"parts"`
}

type geminiBlob struct {
	MIMEType    string `json:"mimeType"`
	Data        []byte `json:"data"` // base64
	DisplayName string `json:"displayName"`
}

type geminiTool struct {
	FunctionDeclarations []geminiFunction `json:"functionDeclarations"`
}

type geminiFunction struct {
	Name                 string          `json:"name"`
	Description          string          `json:"description"`
	Parameters           json.RawMessage `json:"parameters"`
	ParametersJSONSchema json.RawMessage `json:"parametersJsonSchema"`
}

type geminiToolConfig struct {
	FunctionCallingConfig *struct {
		Mode                 string   `json:"mode"`
		AllowedFunctionNames []string `json:"allowedFunctionNames"`
	} `json:"functionCallingConfig"`
}

type geminiConfig struct {
	Temperature        *float64        `json:"temperature"`
	TopP               *float64        `json:"topP"`
	TopK               *float64        `json:"topK"`
	CandidateCount     *int            `json:"candidateCount"`
	MaxOutputTokens    *int32          `json:"maxOutputTokens"`
	StopSequences      []string        `json:"stopSequences"`
	Seed               *int32          `json:"seed"`
	PresencePenalty    *float64        `json:"presencePenalty"`
	FrequencyPenalty   *float64        `json:"frequencyPenalty"`
	ResponseLogprobs   *bool           `json:"responseLogprobs"`
	Logprobs           *int            `json:"logprobs"`
	ResponseModalities []string        `json:"responseModalities"`
	MediaResolution    *string         `json:"mediaResolution"`
	ResponseMIMEType   *string         `json:"responseMimeType"`
	ResponseSchema     json.RawMessage `json:"responseSchema"`
	ResponseJSONSchema json.RawMessage `json:"responseJsonSchema"`
	ThinkingConfig     *geminiThinking `json:"thinkingConfig"`
}

type geminiThinking struct {
	IncludeThoughts bool    `json:"includeThoughts"`
	ThinkingBudget  *int32  `json:"thinkingBudget"`
	ThinkingLevel   *string `json:"thinkingLevel"`
}

// geminiModel is what a name tells; the zero value is a model of which nothing is
// known.
type geminiModel struct {
	gemma      bool
	generation int // 205 = 2.5
	pro, flash bool
}

var geminiNamed = regexp.MustCompile(`^(gemini|gemma)-(\d+)(?:\.(\d+))?`)

func geminiModelOf(name string) (m geminiModel) {
	name = name[strings.LastIndexByte(name, '/')+1:]
	if strings.HasPrefix(name, "gemini-") && strings.HasSuffix(name, "-latest") {
		return geminiModel{generation: 305, pro: strings.Contains(name, "-pro"), flash: strings.Contains(name, "-flash")}
	}
	parts := geminiNamed.FindStringSubmatch(name)
	if parts == nil {
		return m
	}
	major, _ := strconv.Atoi(parts[2])
	minor, _ := strconv.Atoi(parts[3]) // absent is 0
	return geminiModel{
		gemma: parts[1] == "gemma", generation: major*100 + minor,
		pro: strings.Contains(name, "-pro"), flash: strings.Contains(name, "-flash"),
	}
}

// three tells whether the model asks for thought signatures.
func (m geminiModel) three() bool { return !m.gemma && m.generation >= 300 }

// CheckGeminiRequest tells what the Generative Language API would refuse in a
// request body for a model ("" = any), and what requirements N8, N12 and N13
// forbid; nil = nothing. It is stricter than the API in this: user and model must
// take turns, the results of calls come in their order, schemas hold nothing
// beyond the documented subset, and each turn with calls must be signed for
// models of generation 3, not only the latest.
func CheckGeminiRequest(model string, body []byte) error {
	r := geminiRequest{model: geminiModelOf(model)}
	if err := strict(body, &r); err != nil {
		return err
	}
	for _, check := range []func() error{r.checkTools, r.checkToolConfig, r.checkConfig, r.checkSystem, r.checkContents} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

var geminiFunctionName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}$`)

func (r *geminiRequest) checkTools() error {
	if r.Tools == nil {
		return nil
	}
	if len(*r.Tools) != 1 || len((*r.Tools)[0].FunctionDeclarations) == 0 {
		return errors.New("tools: must hold one list of functions that is not empty; leave it out (N8)")
	}
	if r.model.gemma && r.model.generation < 400 {
		return errors.New("tools: Function calling is not enabled for this model")
	}
	for i, f := range (*r.Tools)[0].FunctionDeclarations {
		where := fmt.Sprintf("tools[0].functionDeclarations[%d]", i)
		switch {
		case !geminiFunctionName.MatchString(f.Name):
			return fmt.Errorf("%s.name: %q does not match %s", where, f.Name, geminiFunctionName)
		case slices.Contains(r.names, f.Name):
			return fmt.Errorf("%s.name: %q twice", where, f.Name)
		case blank(f.Description):
			return fmt.Errorf("%s.description: is missing", where)
		case f.Parameters != nil:
			return fmt.Errorf("%s.parameters: parametersJsonSchema is wanted", where)
		}
		if f.ParametersJSONSchema != nil {
			if err := checkGeminiParameters(f.ParametersJSONSchema); err != nil {
				return fmt.Errorf("%s.parametersJsonSchema%w", where, err)
			}
		}
		r.names = append(r.names, f.Name)
	}
	if !slices.IsSorted(r.names) {
		return errors.New("tools: not sorted by name (C5)")
	}
	return nil
}

func (r *geminiRequest) checkToolConfig() error {
	if r.ToolConfig == nil {
		return nil
	}
	c := r.ToolConfig.FunctionCallingConfig
	switch {
	case c == nil:
		return errors.New("toolConfig: is empty")
	case len(r.names) == 0:
		return errors.New("toolConfig: only with tools")
	case c.Mode != "AUTO" && c.Mode != "ANY" && c.Mode != "NONE" && c.Mode != "VALIDATED":
		return fmt.Errorf("toolConfig.functionCallingConfig.mode: %q", c.Mode)
	case len(c.AllowedFunctionNames) > 0 && c.Mode != "ANY":
		return errors.New("toolConfig: allowedFunctionNames only with mode ANY")
	}
	for _, name := range c.AllowedFunctionNames {
		if !slices.Contains(r.names, name) {
			return fmt.Errorf("toolConfig: %q is not in tools", name)
		}
	}
	return nil
}

func (r *geminiRequest) checkConfig() error {
	c := r.GenerationConfig
	if c == nil {
		return nil
	}
	switch {
	case c.Temperature != nil && (*c.Temperature < 0 || *c.Temperature > 2):
		return errors.New("temperature: must be 0 to 2")
	case c.MaxOutputTokens != nil && *c.MaxOutputTokens < 1:
		return errors.New("maxOutputTokens: must be positive")
	case c.CandidateCount != nil && *c.CandidateCount != 1:
		return errors.New("candidateCount: must be 1")
	case c.ResponseSchema != nil && c.ResponseJSONSchema != nil:
		return errors.New("responseSchema and responseJsonSchema exclude each other")
	case c.ResponseJSONSchema != nil && (c.ResponseMIMEType == nil || *c.ResponseMIMEType != "application/json"):
		return errors.New("responseJsonSchema: only with responseMimeType application/json")
	case c.ResponseMIMEType != nil && *c.ResponseMIMEType == "application/json" && len(r.names) > 0 && !r.model.three():
		return errors.New("tools: Function calling with a response mime type: 'application/json' is unsupported")
	}
	if c.ResponseJSONSchema != nil {
		if err := checkGeminiSchema("", c.ResponseJSONSchema, 0); err != nil {
			return fmt.Errorf("responseJsonSchema%w", err)
		}
	}
	return r.checkThinking(c.ThinkingConfig)
}

func (r *geminiRequest) checkThinking(t *geminiThinking) error {
	m := r.model
	switch {
	case t == nil:
		return nil
	case m.gemma || m.generation > 0 && m.generation < 205:
		return errors.New("thinkingConfig: the model has no reasoning")
	case t.ThinkingBudget != nil && t.ThinkingLevel != nil:
		return errors.New("thinkingConfig: budget and level exclude each other")
	case t.ThinkingBudget == nil && t.ThinkingLevel == nil:
		return nil
	}
	if t.ThinkingLevel != nil {
		level := *t.ThinkingLevel
		switch {
		case !slices.Contains([]string{"MINIMAL", "LOW", "MEDIUM", "HIGH"}, level):
			return fmt.Errorf("thinkingLevel: %q", level)
		case !m.three():
			return errors.New("thinkingLevel: only from generation 3 on")
		case level == "MINIMAL" && !m.flash, level == "MEDIUM" && m.pro && m.generation == 300:
			return fmt.Errorf("thinkingLevel: %s is not supported by this model", level)
		}
		return nil
	}
	b := *t.ThinkingBudget
	switch {
	case b < -1 || b > 32768 || m.flash && b > 24576:
		return fmt.Errorf("thinkingBudget: %d is out of range", b)
	case m.pro && b >= 0 && b < 128:
		return errors.New("thinkingBudget: this model needs at least 128")
	case t.IncludeThoughts && b == 0:
		return errors.New("includeThoughts: only with reasoning")
	}
	return nil
}

func (r *geminiRequest) checkSystem() error {
	s := r.SystemInstruction
	switch {
	case s == nil:
		return nil
	case r.model.gemma && r.model.generation < 400:
		return errors.New("systemInstruction: Developer instruction is not enabled for this model")
	case s.Role != "" || len(s.Parts) != 1 || s.Parts[0].Text == nil || blank(*s.Parts[0].Text):
		return errors.New("systemInstruction: must hold one text that is not blank")
	}
	return nil
}

func (r *geminiRequest) checkContents() error {
	if len(r.Contents) == 0 {
		return errors.New("contents: must not be empty")
	}
	role := "model"
	for i := range r.Contents {
		c := &r.Contents[i]
		where := fmt.Sprintf("contents[%d]", i)
		switch {
		case c.Role != "user" && c.Role != "model":
			return fmt.Errorf("%s.role: %q; must be user or model", where, c.Role)
		case c.Role == role:
			return fmt.Errorf("%s.role: two turns of the %s in a row, or no user at the start", where, role)
		case len(c.Parts) == 0:
			return fmt.Errorf("%s.parts: must not be empty", where)
		}
		role = c.Role
		var err error
		if role == "model" {
			err = r.checkModel(c)
		} else {
			err = r.checkUser(c)
		}
		if err != nil {
			return fmt.Errorf("%s%w", where, err)
		}
	}
	if role != "user" {
		return errors.New("contents: the last must be the user's")
	}
	return nil
}
