package agent

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// An answer to a question about a secret ([journal.ConfirmationRequired.Secret]) is only for the tool that
// asks: the journal, events and models have it sealed, for the run of the question.

const sealedAnswer = "sealed:"

// sealAnswer seals an answer for a run; without [Options.Seal] it stays as it is.
func (r *Runner) sealAnswer(run toolcrib.RunID, answer json.RawMessage) (json.RawMessage, error) {
	if r.Seal == nil {
		return answer, nil
	}
	aead, err := r.Seal()
	if err != nil {
		return nil, err
	}
	sealed := aead.Seal(nil, nil, answer, []byte(run))
	return json.Marshal(sealedAnswer + base64.RawURLEncoding.EncodeToString(sealed))
}

// openAnswer returns the content of a result with the answer that was sealed for the run, and the answer itself
// if it is a text; what is not sealed for it stays as it is.
func (r *Runner) openAnswer(run toolcrib.RunID, content string) (opened, answer string) {
	var kept struct{ Answer string }
	if r.Seal == nil || json.Unmarshal([]byte(content), &kept) != nil {
		return content, ""
	}
	text, ok := strings.CutPrefix(kept.Answer, sealedAnswer)
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if !ok || err != nil {
		return content, ""
	}
	aead, err := r.Seal()
	if err != nil {
		return content, ""
	}
	plain, err := aead.Open(nil, nil, sealed, []byte(run))
	if err != nil {
		return content, ""
	}
	_ = json.Unmarshal(plain, &answer) // it may be a number
	return `{"answer":` + string(plain) + `}`, answer
}
