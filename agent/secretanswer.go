package agent

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// An answer to a question about a secret ([journal.ConfirmationRequired.Secret]) is only for the tool
// that asks. In the journal, in events and for models it is sealed, with the run of the question.

const sealedAnswer = "sealed:"

// sealAnswer seals an answer for a run. Without [Options.Seal] it returns the answer unchanged.
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

// openAnswer returns the content of a result with the sealed answer opened, and the answer itself if
// it is text. An answer that was not sealed for the run is left unchanged.
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
