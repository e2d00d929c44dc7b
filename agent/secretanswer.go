package agent

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// An answer to a question about a secret ([journal.ConfirmationRequired.Secret]) is for the tool that asks and
// for nobody else: the journal, events and models have it sealed, for the run of the question.

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

// openAnswer returns the content of a result with the answer that was sealed for the run; what is not
// sealed for it stays as it is. The answer is masked from then on.
func (r *Runner) openAnswer(run toolcrib.RunID, content string) string {
	var kept struct{ Answer string }
	if r.Seal == nil || json.Unmarshal([]byte(content), &kept) != nil {
		return content
	}
	text, ok := strings.CutPrefix(kept.Answer, sealedAnswer)
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if !ok || err != nil {
		return content
	}
	aead, err := r.Seal()
	if err != nil {
		return content
	}
	answer, err := aead.Open(nil, nil, sealed, []byte(run))
	if err != nil {
		return content
	}
	var secret string
	if json.Unmarshal(answer, &secret) == nil && r.Mask != nil {
		r.Mask.Learn(guard.Secret{Name: "answer", Value: secret})
	}
	return `{"answer":` + string(answer) + `}`
}
