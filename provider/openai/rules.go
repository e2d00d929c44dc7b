package openai

import (
	"slices"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// rules are the differences between servers. They depend only on
// the host, or on the name of a model if all hosts of it behave alike.
type rules struct {
	vendor          bool   // OpenAI itself or Azure, which have limits of their own
	azure           bool   // Azure has its own header for the key
	api             string // APIChat, APIResponses, or "" to decide by the model's name
	replayReasoning bool   // always send reasoning back as reasoning_content
	drop            bool   // send no reasoning back
	replayDetails   bool   // send reasoning_details back unchanged (OpenRouter)
	extraContent    bool   // send extra_content of calls back (Gemini's signatures)
	mistral         bool   // Mistral's own API, which is stricter about IDs, order and fields
	answers         answerMeans
	maxTokens       bool // name the bound of the output max_tokens for all models
	files           wire.FileRules
}

// answerMeans is how a server can be asked for an answer that matches a schema.
type answerMeans int

const (
	answerSchema answerMeans = iota // response_format json_schema
	answerObject                    // response_format json_object, with the schema in the system text
	answerApart                     // json_schema, but with tools the schema in the system text
)

var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

const pdfType = "application/pdf"

func rulesOf(host, path string, o Options) rules {
	r := rules{api: o.API, maxTokens: o.MaxTokens}
	r.azure = hostIn(host, "openai.azure.com", "cognitiveservices.azure.com", "services.ai.azure.com")
	openAI := hostIn(host, "api.openai.com")
	r.vendor = openAI || r.azure
	if r.api == "" && !openAI && !(r.azure && strings.HasSuffix(strings.TrimRight(path, "/"), "/openai/v1")) {
		r.api = APIChat
	}
	r.files.Types = imageTypes
	switch {
	case openAI, hostIn(host, "openrouter.ai"):
		r.files.Types = append([]string{pdfType}, imageTypes...)
		r.replayDetails = !openAI
	case hostIn(host, "api.deepseek.com"):
		r.answers = answerObject
	case hostIn(host, "api.mistral.ai", "codestral.mistral.ai"):
		r.mistral = true
	case hostIn(host, "generativelanguage.googleapis.com"):
		r.extraContent, r.answers = true, answerApart
	case hostIn(host, "api.groq.com", "api.cerebras.ai", "api.fireworks.ai"):
		r.answers = answerApart
	}
	r.drop = o.Reasoning == wire.ReasoningDrop
	r.replayDetails = r.replayDetails && !r.drop
	r.replayReasoning = o.Reasoning == wire.ReasoningReplay ||
		!r.drop && hostIn(host, "api.deepseek.com", "api.moonshot.ai", "api.moonshot.cn", "api.kimi.com")
	return r
}

// wantsReasoning are prefixes of the names of models that reject a turn with calls but without
// reasoning_content on any server.
var wantsReasoning = []string{"deepseek-v4", "deepseek-reasoner", "kimi-k2.", "kimi-k2-thinking", "kimi-k3", "mimo-v2"}

// replays reports whether reasoning is sent back as reasoning_content: to a server that is known to
// require it, or that has sent it in one of these messages.
func (r rules) replays(model string, messages []toolcrib.Message) bool {
	switch {
	case r.drop || r.vendor || r.mistral:
		return false
	case r.replayReasoning:
		return true
	}
	name := wire.BareModel(model)
	return slices.ContainsFunc(wantsReasoning, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) ||
		slices.ContainsFunc(messages, func(m toolcrib.Message) bool {
			return slices.ContainsFunc(m.Parts, func(p toolcrib.Part) bool {
				return p.Thinking != nil && p.Thinking.Signature == wire.ReasoningContent && wire.Own(p.Thinking, model)
			})
		})
}

// hostIn reports whether host is one of the names, or a subdomain of one.
func hostIn(host string, names ...string) bool {
	for _, name := range names {
		if host == name || strings.HasSuffix(host, "."+name) {
			return true
		}
	}
	return false
}

// responses reports whether the Responses API is used for a model.
func (r rules) responses(model string) bool {
	if r.api != "" {
		return r.api == APIResponses
	}
	return needsResponses(model)
}

// Names of the field that bounds the output. Most compatible servers support the first.
const maxTokens, maxCompletionTokens = "max_tokens", "max_completion_tokens"

// mistralOrder reports whether the servers of a model require call IDs of nine characters and
// a turn of the assistant between results and the user: those of Mistral's models
// everywhere, since the templates of the models require it.
func (r rules) mistralOrder(model string) bool {
	name := wire.BareModel(model)
	return r.mistral || slices.ContainsFunc([]string{
		"mistral", "mixtral", "ministral", "magistral", "codestral", "devstral", "pixtral",
	}, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// generation returns the GPT generation in a name: gpt-5.4-mini is 5 and 4. ok is
// false for other names and for the chat variants, which do not reason.
func generation(model string) (major, minor int, rest string, ok bool) {
	m := gpt.FindStringSubmatch(wire.BareModel(model))
	if m == nil || strings.HasPrefix(m[3], "-chat") {
		return 0, 0, "", false
	}
	major, _ = strconv.Atoi(m[1])
	minor, _ = strconv.Atoi(m[2]) // "" is 0
	return major, minor, m[3], major >= 5
}

var (
	gpt     = lazyregexp.New(`^gpt-(\d{1,3})(?:\.(\d{1,3}))?(-.*)?$`)
	oSeries = lazyregexp.New(`^(?:codex-mini|computer-use|o[134](?:-|$))`)
)

// reasons reports whether a model is one of OpenAI's reasoning models, which reject max_tokens.
func reasons(model string) bool {
	_, _, _, ok := generation(model)
	return ok || oSeries.MatchString(wire.BareModel(model))
}

// sinceGPT reports whether a model is of that generation or a later one.
func sinceGPT(model string, major, minor int) bool {
	a, b, _, ok := generation(model)
	return ok && (a > major || a == major && b >= minor)
}

// alwaysReasons reports whether the reasoning of a model cannot be turned off, so that
// it accepts no temperature: the o-series, and GPT-5 without a minor version.
func alwaysReasons(model string) bool { return reasons(model) && !sinceGPT(model, 5, 1) }

// takesTemperature reports whether a model of OpenAI accepts a temperature. Reasoning
// models do only if their reasoning is off, by request or by default as
// in GPT-5.1 to 5.4.
func takesTemperature(model, effort string) bool {
	switch {
	case !reasons(model):
		return true
	case alwaysReasons(model) || isPro(model) || strings.Contains(model, "codex"):
		return false
	}
	return effort == "none" || effort == "" && !sinceGPT(model, 5, 5)
}

// toolsWithoutReasoning reports whether a model rejects function tools in Chat
// Completions unless its reasoning is off: GPT-5.4 and later.
func toolsWithoutReasoning(model string) bool { return sinceGPT(model, 5, 4) }

// needsResponses reports whether only the Responses API serves a model (codex, pro and
// deep research), or only that permits tools together with reasoning: GPT-5.4 and later.
func needsResponses(model string) bool {
	if sinceGPT(model, 5, 4) {
		return true
	}
	name := wire.BareModel(model)
	if !reasons(model) {
		return false
	}
	return strings.Contains(name, "codex") || isPro(model) || strings.Contains(name, "-deep-research") ||
		strings.HasPrefix(name, "computer-use")
}

// isPro reports whether a model is a pro model: o1-pro, o3-pro, gpt-5-pro and their dated names.
func isPro(model string) bool {
	name := wire.BareModel(model)
	return strings.HasSuffix(name, "-pro") || strings.Contains(name, "-pro-")
}

// effort maps a level of reasoning to a name that the model accepts; why says
// what was changed, or is "".
func effort(model, level string) (word, why string) {
	_, minor, rest, gpt := generation(model)
	codex := strings.Contains(rest, "-codex") || strings.HasPrefix(wire.BareModel(model), "codex")
	switch {
	case level == "":
		return "", ""
	case isPro(model) && gpt && minor == 0:
		if level != "high" {
			why = "its reasoning is always high"
		}
		return "high", why
	case isPro(model) && gpt && (level == "low" || level == "off"):
		return "medium", "it reasons at medium effort at least"
	case level != "off":
		return level, ""
	case codex && !sinceGPT(model, 5, 4), !gpt:
		return "low", "it always reasons; it does so at the lowest effort"
	case minor == 0 && alwaysReasons(model):
		return "minimal", "it always reasons; it does so at the lowest effort"
	}
	return "none", ""
}
