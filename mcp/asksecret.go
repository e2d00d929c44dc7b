package mcp

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
)

// A form must not ask for secrets (MCP, Elicitation: a server sends an address for that). If one seems to, the
// person is warned, and the answer is neither shown nor stored in plain text.

const secretWarning = "Warning: this seems to ask for a secret, which a server must not do in a form. It gets what you " +
	"type; answer only if you trust it with that. Your answer is not shown, and is stored sealed."

var (
	wordBreak   = lazyregexp.New(`([a-z0-9])([A-Z])|[_.:/-]+`)
	secretWords = lazyregexp.New(`(?i)\b(pass ?(word|phrase|code|wort|wd)s?|passwd|pwd|secrets?|tokens?|credentials?|` +
		`pin( ?code)?|otp|mfa|2fa|totp|(one time|verification|security|recovery|backup) (pass)?codes?|` +
		`(api|access|private|secret|license|signing|encryption|ssh|auth\w*) ?keys?|(seed|recovery|mnemonic) phrase|` +
		`(credit|debit|bank) ?cards?|card ?(number|no|nr)|cvv2?|cvc2?|iban|ssn|social security|` +
		`kennwort|mot de passe|contraseña)\b|\bkeys?$`)
	secretNumbers = lazyregexp.New(`(?i)\b(pin( ?code)?|otp|(pass|one time|verification|security) ?codes?|` +
		`card ?(number|no|nr)|cvv2?|cvc2?|ssn|social security)\b`)
)

// secretFields returns the fields of a form that ask for a secret: those that say so, or else all that may take the
// one that the message asks for.
func secretFields(message string, fields map[string]json.RawMessage) map[string]bool {
	own, asked := map[string]bool{}, map[string]bool{}
	for name, schema := range fields {
		var field struct {
			Type        string `json:"type"`
			Format      string `json:"format"`
			Title       string `json:"title"`
			Description string `json:"description"`
			WriteOnly   bool   `json:"writeOnly"`
			Enum        []any  `json:"enum"`
			OneOf       []any  `json:"oneOf"`
		}
		_ = json.Unmarshal(schema, &field) // a form that cannot be read is not shown
		words := secretWords
		switch {
		case field.WriteOnly, field.Format == "password":
			own[name] = true
			continue
		case field.Enum != nil, field.OneOf != nil, field.Type == "boolean", field.Type == "array":
			continue
		case field.Type == "integer", field.Type == "number":
			words = secretNumbers
		}
		says := func(text string) bool {
			text = guard.Clip(text, maxAsked)
			return words.MatchString(strings.TrimRight(wordBreak.ReplaceAllString(text, "$1 $2"), " .:?!"))
		}
		if slices.ContainsFunc([]string{name, field.Title, field.Description}, says) {
			own[name] = true
		}
		if says(message) {
			asked[name] = true
		}
	}
	if len(own) == 0 {
		return asked
	}
	return own
}

// asSecret returns the schema of an answer with a mark that the answer is a secret.
func asSecret(schema string) string {
	fields := map[string]json.RawMessage{}
	if json.Unmarshal([]byte(schema), &fields) != nil || fields == nil {
		return schema
	}
	fields["writeOnly"] = json.RawMessage("true")
	text, err := json.Marshal(fields)
	if err != nil {
		return schema
	}
	return string(text)
}
