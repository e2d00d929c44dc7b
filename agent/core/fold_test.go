package core_test

import (
	"math"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/journal"
)

func TestFold_WithoutModels(t *testing.T) {
	noInput := &journal.RunStarted{Format: journal.Format, Models: []journal.ModelInfo{{Ref: "demo/x"}}}
	if err := core.Fold(core.NewState("run_1"), toolcrib.Event{Seq: 1, Body: noInput}); err == nil {
		t.Error("a run without input has begun")
	}
	start := &journal.RunStarted{Format: journal.Format, Input: []toolcrib.Message{toolcrib.TextMessage(toolcrib.RoleUser, "hello")}}
	if err := core.Fold(core.NewState("run_1"), toolcrib.Event{Seq: 1, Body: start}); err == nil {
		t.Error("a run that asks no model has begun")
	}
	s := core.NewState("run_1")
	start.Given = &toolcrib.ToolCall{ID: "call_1", Name: "read_file"}
	for i, body := range []toolcrib.Body{start, &journal.ModelFailed{NoTools: true}} {
		if err := core.Fold(s, toolcrib.Event{Seq: toolcrib.Seq(i + 1), Body: body}); err != nil {
			t.Error(err)
		}
	}
}

// A journal may come from a file: an event that cannot follow is an error.
func TestFold_WhatFitsNothing(t *testing.T) {
	for name, body := range map[string]toolcrib.Body{
		"a model too many":  &journal.ModelRequest{Request: 1, Model: 99},
		"a negative model":  &journal.ModelRequest{Request: 1, Model: -5},
		"verdicts, no call": &journal.Verdicts{},
		"too many messages": &journal.Condensed{From: 1, Messages: math.MaxInt, Text: "x"},
		"the task itself":   &journal.Condensed{From: 1, Messages: 2, Text: "x"},
		"no outage":         &journal.Paused{Status: toolcrib.StatusWaitingForProvider, Pending: journal.Pending{Kind: journal.PendingProvider}},
		"a pause that ends": &journal.Paused{Status: toolcrib.StatusCompleted, Pending: journal.Pending{Kind: "approval"}},
		"an end that waits": &journal.Done{Status: toolcrib.StatusWaitingForApproval},
		"a failure, queued": &journal.Error{Status: toolcrib.StatusQueued},
		"from beyond":       &journal.Condensed{From: math.MaxInt, Messages: 1, Text: "x"},
	} {
		s := core.NewState("run_1")
		start := &journal.RunStarted{Format: journal.Format, Models: []journal.ModelInfo{{Ref: "demo/x"}}, Input: []toolcrib.Message{
			toolcrib.TextMessage(toolcrib.RoleUser, "hello"), toolcrib.TextMessage(toolcrib.RoleAssistant, "hi"),
			toolcrib.TextMessage(toolcrib.RoleUser, "go"),
		}}
		if err := core.Fold(s, toolcrib.Event{Seq: 1, Body: start}); err != nil {
			t.Fatal(err)
		}
		if err := core.Fold(s, toolcrib.Event{Seq: 2, Body: body}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
