package wire

import "strings"

// noToolsPhrases are how APIs say that a model takes no tools. They have no code
// of their own for it. Lower case.
var noToolsPhrases = [...]string{
	"does not support tools",                         // Ollama
	"does not support tool calling",                  // several
	"does not support function calling",              // several
	"does not support tool use",                      // several
	"`tool calling` is not supported",                // Groq
	"tools are not supported",                        // several
	"tools is not supported",                         // OpenAI
	"'tools' is not supported",                       // OpenAI: Unsupported parameter
	"tool use is not supported",                      // several
	"tool calling is not supported",                  // Groq
	"function calling is not supported",              // Together
	"function calling is not enabled for this model", // Mistral
	"support tool use",                               // OpenRouter: No endpoints found that support tool use
	"tool choice requires --enable-auto-tool-choice", // vLLM without a tool parser
	"requires --enable-auto-tool-choice",             // vLLM
	"tools param requires --jinja flag",              // llama.cpp
}

// SaysNoTools reports whether the message of an error says that the model, as it is
// served, takes no tools at all. A tool choice or a parameter that is refused
// beside tools says something else.
func SaysNoTools(message string) bool {
	m := strings.ToLower(message)
	if strings.Contains(m, "reasoning_effort") || strings.Contains(m, "response_format") || strings.Contains(m, "response mime type") {
		return false // tools are only refused together with something else
	}
	for _, phrase := range noToolsPhrases {
		if strings.Contains(m, phrase) {
			return true
		}
	}
	return false
}
