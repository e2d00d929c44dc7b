package secret

import (
	"errors"
)

// What can be wrong. Each text says what to do.
var (
	ErrWrongKey = errors.New("the secrets were encrypted with another key; restore the key file that belongs to them, or move the file of the secrets away and set them again")
	ErrDamaged  = errors.New("the file of the secrets is damaged, and nothing of it is used; restore a copy, or move it away and set the secrets again")
	ErrNewer    = errors.New("the secrets were written by a later version of toolcrib and were not touched; use that version")
	ErrLocked   = errors.New("another program is changing the secrets; try again when it has ended")
	ErrFull     = errors.New("there is no room to write the secrets; make room and try again, nothing was changed")
	ErrUnusable = errors.New("the file of the secrets cannot be used; check the path, the rights and the disk")
	ErrInvalid  = errors.New("this cannot be stored as a secret")
)

// Error is what went wrong with the secrets. Kind is one of the values above; Err is
// the cause. Neither holds a secret.
type Error struct {
	Kind error
	Path string // of the file; not for people outside
	Err  error
}

func (e *Error) Error() string {
	text := e.Kind.Error()
	if e.Path != "" {
		text = e.Path + ": " + text
	}
	if e.Err != nil {
		text += " (" + e.Err.Error() + ")"
	}
	return text
}

// Unwrap makes both the kind and the cause known to [errors.Is].
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}
