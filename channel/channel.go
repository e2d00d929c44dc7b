// Package channel defines messages of chats in which people write to agents, and the interfaces [Receiver] and [Sender]
// of the APIs that carry them. Each package below it implements one API. None of them decides anything: the service
// decides who may write and what a message does.
package channel

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Message is a message of a person, or the press of a button.
type Message struct {
	Chat   string `json:"chat"`             // where it was written: a person, a group, a room
	Thread string `json:"thread,omitempty"` // part of the chat, or ""
	ID     string `json:"id"`               // identifies the message in its chat; the same if it is delivered again
	Sender string `json:"sender"`           // stable ID of who wrote it; names can be chosen, so only this decides
	Name   string `json:"name,omitempty"`   // how the sender is displayed; never decides
	Text   string `json:"text,omitempty"`
	// ReplyTo is the ID of the message that it answers, or "".
	ReplyTo     string       `json:"reply_to,omitempty"`
	Forwarded   bool         `json:"forwarded,omitempty"` // the text is somebody else's
	Attachments []Attachment `json:"attachments,omitempty"`
	Time        time.Time    `json:"time"`

	// Press is the [Button.Token] of the button that was pressed, and PressID what [Reply.PressID] is then. The message
	// has no text.
	Press   string `json:"press,omitempty"`
	PressID string `json:"press_id,omitempty"`
}

// Attachment is a file of a message. Its content is not read. Both fields are chosen by the sender.
type Attachment struct {
	Name string `json:"name,omitempty"`
	Type string `json:"type,omitempty"`
}

// Reply is a message to a chat. Webhooks get it as JSON.
type Reply struct {
	Chat    string   `json:"chat"` // what [Sender.Chat] returns, or that of a message
	Thread  string   `json:"thread,omitempty"`
	To      string   `json:"reply_to,omitempty"` // ID of the message that it answers, or ""
	Text    string   `json:"text"`               // plain text: nothing in it is markup
	Buttons []Button `json:"buttons,omitempty"`
	// Key identifies the reply, if the API recognizes one that is sent twice ([Sender.Deduplicates]).
	Key string `json:"-"`
	// PressID makes the reply an answer to the press of a button, which only who pressed it needs to read.
	PressID string `json:"-"`
}

// Button is an answer that a person can choose. Clients may send tokens of their own.
type Button struct {
	Label string `json:"label"`
	Token string `json:"text"` // a message with this text chooses it too
}

// Sender sends messages. It is safe for use by several goroutines.
type Sender interface {
	// Chat returns the chat of a message: the named one, or if that is "", the one in the address of the channel.
	Chat(named string) (string, error)
	// Send sends a reply and returns the ID of the message. An error is an [*Error].
	Send(ctx context.Context, r Reply) (id string, err error)
	// Deduplicates reports whether the API takes a reply with the same key once.
	Deduplicates() bool
	// Parts splits a text into parts that the API takes.
	Parts(text string) []string
	// Account returns the name of the account that sends.
	Account(ctx context.Context) (string, error)
}

// Take takes messages over durably. When it has returned nil, they need not be delivered again, and the next
// [Receiver.Receive] begins at cursor, unless that is "". It waits as long as there is no room for more.
type Take func(ctx context.Context, messages []Message, cursor string) error

// Receiver receives messages.
type Receiver interface {
	// Receive gives messages to take, in order, until ctx ends, an error occurs or the API asks to connect again. Only
	// those that take has taken are acknowledged. cursor is the last one that take was given, or "". An error is an
	// [*Error], or that of take.
	Receive(ctx context.Context, cursor string, take Take) error
}

// Channel is a [Sender] and a [Receiver].
type Channel interface {
	Sender
	Receiver
}

// Class is the class of a failure.
type Class string

// The classes of failures. The zero value is the strictest one.
const (
	Doubt   Class = ""        // it is not known whether the message was sent
	Later   Class = "later"   // it was not sent, and can be sent after [Error.After]
	Refused Class = "refused" // it was not sent, and is refused again
)

// Error is a failure of an API. Its text has no secrets.
type Error struct {
	Class Class
	After time.Duration // 0 means that the API does not say
	Err   error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an [*Error].
func Errorf(class Class, format string, args ...any) *Error {
	return &Error{Class: class, Err: fmt.Errorf(format, args...)}
}

// ClassOf returns the class of an error, and how long to wait before another attempt.
func ClassOf(err error) (Class, time.Duration) {
	var known *Error
	if errors.As(err, &known) {
		return known.Class, known.After
	}
	return Doubt, 0
}
