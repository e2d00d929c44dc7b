package ollama

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// explain says in an error what the person can do about it, and mends classes:
// Ollama tells its errors by their text only. It returns another error for each
// kind that it knows, and err itself for the rest.
func (m *Model) explain(err error, model string) error {
	var known *toolcrib.ModelError
	if !errors.As(err, &known) {
		return err
	}
	e := *known
	said := strings.ToLower(e.Message)
	name := wire.Line(model)
	switch {
	case e.Unsent && e.Class == toolcrib.ErrNetwork:
		e.Message += ": is Ollama running? Start it with `ollama serve`, or set base_url"
	case e.NoTools:
		e = noTools(e, name)
	case strings.Contains(said, "does not support thinking"):
		e.Class = toolcrib.ErrBadRequest
		e.Message = fmt.Sprintf("model %s does not support thinking: leave its reasoning out, or set it to off", name)
	case e.Class == toolcrib.ErrContextLength:
		e.Message += " (num_ctx in the model's extra, or OLLAMA_CONTEXT_LENGTH of the server, gives it more)"
	case e.Status == http.StatusNotFound && notPulled(said):
		e.Class = toolcrib.ErrBadRequest
		e.Message = fmt.Sprintf("model %s is not there: get it with `ollama pull %s`", name, name)
	case e.Status == http.StatusUnauthorized && strings.Contains(e.Detail, `"signin_url"`):
		e.Message = "the model runs at ollama.com, which wants a login: run `ollama signin` where the server is"
	case strings.Contains(said, "requires more system memory"):
		e.Class = toolcrib.ErrOther // trying again frees no memory
	case strings.Contains(said, "server busy"):
		e.Class = toolcrib.ErrOverloaded
	default:
		return err
	}
	return &e
}

func noTools(e toolcrib.ModelError, model string) toolcrib.ModelError {
	e.Class, e.NoTools = toolcrib.ErrBadRequest, true
	e.Message = fmt.Sprintf("model %s does not support tools: take one that does, or set tools: text for it", model)
	return e
}

// notPulled tells the error about a model, which names it in quotes, from that about
// a route that there is not.
func notPulled(said string) bool {
	return strings.Contains(said, "not found") && (strings.Contains(said, "model '") || strings.Contains(said, `model "`))
}

// streamError makes the error of an error object inside a stream. A relay to
// ollama.com gives the status with it; any other is a fault of the server.
func streamError(provider string, line []byte, status int) error {
	if status >= 400 && status < 600 {
		return wire.StatusError(provider, status, nil, line)
	}
	e := wire.EventError(provider, line)
	if e.Class == toolcrib.ErrOther {
		e.Class = toolcrib.ErrOverloaded
	}
	return e
}
