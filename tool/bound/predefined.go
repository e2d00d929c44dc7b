package bound

import (
	"encoding/json"
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/bus"
)

// Predefined returns the tools for the capabilities that HearthNet's contract names. enabled are the names of those
// that are enabled by default.
func Predefined(enabled []string) []Options {
	read, write := toolcrib.EffectReadOnly, toolcrib.EffectNonIdempotentWrite
	all := []Options{
		{
			Name: "search_corpus", Capability: one("rag.query"), Effect: read,
			Params:      map[string]any{"corpus": "{args.corpus}"},
			Description: "Search a corpus of documents. The result has chunks of text with their scores.",
			Parameters: object(`"query":{"type":"string"},"corpus":{"type":"string","description":"Name, from list_corpora"},`+
				`"k":{"type":"integer","minimum":1,"maximum":20,"description":"Number of chunks; default 5"},`+
				`"filter":{"type":"object"},"include_text":{"type":"boolean"}`, `"query"`),
		},
		{
			Name: "list_corpora", Capability: one("rag.list_corpora"), Effect: read, Parameters: object("", ""),
			Description: "List the corpora that search_corpus can search.",
		},
		{
			Name: "translate", Capability: one("trans.text"), Effect: read, Description: "Translate a text.",
			Parameters: object(`"text":{"type":"string"},"from":{"type":"string","description":"Language of the text, such as de"},`+
				`"to":{"type":"string","description":"Language of the translation, such as en"},"domain":{"type":"string"}`, `"text","to"`),
		},
		{
			Name: "list_marketplace", Capability: one("market.list"), Effect: read,
			Description: "List the posts of the marketplace.",
			Parameters: object(`"category":{"type":"string"},"tags":{"type":"array","items":{"type":"string"}},`+
				`"since_lamport":{"type":"integer"},"limit":{"type":"integer","minimum":1,"maximum":500,"description":"Default 50"}`, ""),
		},
		{
			Name: "find_neighbour", Capability: one("node.list"), Effect: read, Parameters: object("", ""),
			Description: "List this node and the trusted ones that are connected now, and the capabilities that they offer to it.",
		},
		{
			Name: "describe_image", Capability: one("img.describe"), Effect: read, Description: "Describe an image.",
			Parameters: object(`"image_cid":{"type":"string","description":"ID of the image"},"task":{"type":"string"},`+
				`"language":{"type":"string"}`, `"image_cid"`),
		},
		{
			Name: "transcribe_audio", Capability: one("stt.transcribe"), Effect: read,
			Description: "Write down what is said in a recording.",
			Parameters: object(`"audio_cid":{"type":"string","description":"ID of the recording"},"language":{"type":"string"}`,
				`"audio_cid"`),
		},
		{
			Name: "market_post", Capability: one("market.post"), Effect: write,
			Description: "Publish a post on the marketplace.",
			Parameters: object(`"client_id":{"type":"string","description":"ID by which a repeated post is recognized"},`+
				`"category":{"type":"string"},"title":{"type":"string"},"body":{"type":"string"},`+
				`"tags":{"type":"array","items":{"type":"string"}},"ttl_seconds":{"type":"integer","minimum":1}`,
				`"title","body"`),
		},
		{
			Name: "chat_send", Capability: one("chat.send"), Effect: write, Description: "Send a message to somebody of the community.",
			Parameters: object(`"to":{"type":"string"},"text":{"type":"string"}`, `"to","text"`),
		},
	}
	for i := range all {
		all[i].Enabled = slices.Contains(enabled, all[i].Name)
	}
	return all
}

func one(name string) bus.Name { return bus.Name{Name: name, Major: 1} }

func object(properties, required string) json.RawMessage {
	return json.RawMessage(`{"type":"object","properties":{` + properties + `},"required":[` + required +
		`],"additionalProperties":false}`)
}
