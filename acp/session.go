package acp

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"net/url"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"time"

	sdk "github.com/coder/acp-go-sdk"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/media"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
)

// Session is an open session as the editor shows it. The host shows the turns of its conversation in it.
type Session struct {
	s      *Server
	id     sdk.SessionId
	folder string
	talk   Conversation

	mu      sync.Mutex
	turn    *turn
	closed  bool
	choices []Choice // last sent to the editor

	replaying bool // what was said is shown again
	run       string
	plans     map[string][]sdk.PlanEntry // by the IDs of calls that update the plan
	streamed  strings.Builder            // text of the current reply so far
	thought   bool                       // a part of its thought was shown
	noticed   map[string]bool            // notices that were shown
	left      map[string]bool            // approvals that this turn leaves open, by ID
}

// turn is a turn in progress, or one whose request has come.
type turn struct {
	ctx   context.Context
	end   context.CancelCauseFunc
	taken bool
}

// claim begins a turn, unless there is one, so that it can be stopped from now on.
func (o *Session) claim() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.turn == nil {
		ctx, end := context.WithCancelCause(o.s.ctx)
		o.turn = &turn{ctx: ctx, end: end}
	}
}

// take returns the turn for a request, or nil if another one has it or the session was closed.
func (o *Session) take() *turn {
	o.claim()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.turn.taken || o.closed {
		return nil
	}
	o.turn.taken = true
	return o.turn
}

// stop ends the turn as the person wants it: its run is cancelled.
func (o *Session) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.turn != nil {
		o.turn.end(o.talk.Stopped())
	}
}

// close ends the turn like stop. The conversation is closed once no turn is in progress.
func (o *Session) close() {
	o.stop()
	o.mu.Lock()
	first := !o.closed && (o.turn == nil || !o.turn.taken)
	o.closed = true
	o.mu.Unlock()
	if first {
		o.talk.Close()
	}
}

func (o *Session) busy() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.turn != nil
}

// prompt answers a message.
func (o *Session) prompt(request context.Context, blocks []sdk.ContentBlock) (any, error) {
	t := o.take()
	if t == nil {
		return nil, toolcrib.Errorf(toolcrib.CodeConflict,
			"a turn of this session is running; wait for its end, or cancel it")
	}
	defer func() {
		o.mu.Lock()
		o.turn = nil
		closed := o.closed
		o.mu.Unlock()
		t.end(nil)
		if closed {
			o.talk.Close()
		}
	}()
	defer context.AfterFunc(request, func() {
		if errors.Is(context.Cause(request), context.Canceled) { // otherwise the editor has gone
			o.stop()
		}
	})()
	m, err := o.message(blocks)
	if err != nil {
		return nil, err
	}
	o.streamed.Reset()
	o.thought, o.plans, o.left = false, map[string][]sdk.PlanEntry{}, map[string]bool{}
	run, err := o.talk.Turn(t.ctx, m)
	o.tellChoices()
	if errors.Is(context.Cause(t.ctx), o.talk.Stopped()) {
		return sdk.PromptResponse{StopReason: sdk.StopReasonCancelled}, nil
	}
	if err != nil {
		return nil, err
	}
	if run == nil {
		return sdk.PromptResponse{StopReason: sdk.StopReasonEndTurn}, nil
	}
	return o.outcome(run)
}

// outcome returns how a turn ended.
func (o *Session) outcome(run *service.Run) (any, error) {
	if run.ContextSize > 0 {
		u := &sdk.SessionUsageUpdate{Size: int(run.ContextSize), Used: int(run.Context)}
		if run.Usage.CostUSD > 0 {
			u.Cost = &sdk.Cost{Amount: run.Usage.CostUSD, Currency: "USD"}
		}
		o.send(sdk.SessionUpdate{UsageUpdate: u})
	}
	out := sdk.PromptResponse{StopReason: sdk.StopReasonEndTurn}
	switch {
	case run.Status == toolcrib.StatusCancelled:
		out.StopReason = sdk.StopReasonCancelled
	case run.Error != nil:
		return nil, toolcrib.Errorf(toolcrib.CodeInternal, "%s: %s", run.StopReason, run.Error.Message)
	case run.StopReason == toolcrib.StopMaxIterations:
		out.StopReason = sdk.StopReasonMaxTurnRequests
	case run.Truncated:
		out.StopReason = sdk.StopReasonMaxTokens
	}
	u := run.Usage
	out.Usage = &sdk.Usage{
		InputTokens: int(u.InputTokens), OutputTokens: int(u.OutputTokens), TotalTokens: int(u.TotalTokens),
		CachedReadTokens: sdk.Ptr(int(u.CachedInputTokens)),
	}
	return out, nil
}

// message returns a message as the service takes it. Files that it only names are read by the model, if it wants to.
func (o *Session) message(blocks []sdk.ContentBlock) (m Message, err error) {
	var text strings.Builder
	for _, b := range blocks {
		switch {
		case b.Text != nil:
			text.WriteString(b.Text.Text)
		case b.ResourceLink != nil:
			text.WriteString("`" + o.named(b.ResourceLink.Uri) + "`")
		case b.Image != nil:
			err = m.attach("image", b.Image.Data)
		case b.Resource != nil && b.Resource.Resource.TextResourceContents != nil:
			r := b.Resource.Resource.TextResourceContents
			name := o.named(r.Uri)
			text.WriteString("`" + name + "`")
			err = m.add(name, []byte(guard.Clean(r.Text)))
		case b.Resource != nil && b.Resource.Resource.BlobResourceContents != nil:
			r := b.Resource.Resource.BlobResourceContents
			err = m.attach(o.named(r.Uri), r.Blob)
		default:
			err = toolcrib.Errorf(toolcrib.CodeBadRequest, "prompt: only text, images and resources are taken")
		}
		if err != nil {
			return m, err
		}
	}
	if m.Text = strings.TrimSpace(guard.Clean(text.String())); m.Text == "" && len(m.Files) == 0 {
		err = toolcrib.Errorf(toolcrib.CodeBadRequest, "prompt: must not be empty")
	}
	return m, err
}

// attach adds a file in base64.
func (m *Message) attach(name, data string) error {
	content, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return toolcrib.Errorf(toolcrib.CodeBadRequest, "prompt: %s is not base64", guard.Visible(name))
	}
	return m.add(name, content)
}

// add adds a file. What it is follows from its content.
func (m *Message) add(name string, content []byte) error {
	kind := media.Type(content)
	switch {
	case len(content) == 0:
		return nil
	case len(content) > toolcrib.MaxFileBytes:
		return toolcrib.Errorf(toolcrib.CodeBadRequest, "prompt: %s has more than %d bytes", guard.Visible(name),
			toolcrib.MaxFileBytes)
	case kind == "":
		return toolcrib.Errorf(toolcrib.CodeBadRequest,
			"prompt: %s is neither an image (PNG, JPEG, GIF, WebP) nor a PDF document nor a text", guard.Visible(name))
	}
	m.Files = append(m.Files, toolcrib.OutputFile{MediaType: kind, Name: path.Base(name), Data: content})
	return nil
}

// named returns the name of a resource: of a file in the workspace its path there, otherwise its URI.
func (o *Session) named(uri string) string {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "file" {
		return guard.Visible(uri)
	}
	name := filepath.FromSlash(u.Path)
	if rel, err := filepath.Rel(o.folder, name); err == nil && filepath.IsLocal(rel) {
		name = filepath.ToSlash(rel)
	}
	return guard.Visible(name)
}

// choose changes a setting of the next turns.
func (o *Session) choose(ctx context.Context, id, value string) error {
	if err := o.talk.Choose(ctx, id, value); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.choices = o.talk.Choices() // the editor knows
	return nil
}

// tellChoices tells the editor of settings that a command has changed.
func (o *Session) tellChoices() {
	now := o.talk.Choices()
	o.mu.Lock()
	before := o.choices
	o.choices = now
	o.mu.Unlock()
	if before == nil || reflect.DeepEqual(before, now) {
		return
	}
	o.send(sdk.SessionUpdate{ConfigOptionUpdate: &sdk.SessionConfigOptionUpdate{ConfigOptions: configOptions(now)}})
	if m := modes(now); m != nil {
		o.send(sdk.SessionUpdate{CurrentModeUpdate: &sdk.SessionCurrentModeUpdate{CurrentModeId: m.CurrentModeId}})
	}
}

// sendCommands tells the editor which commands there are.
func (o *Session) sendCommands() {
	o.mu.Lock()
	o.choices = o.talk.Choices()
	o.mu.Unlock()
	list := []sdk.AvailableCommand{}
	for _, c := range o.talk.Commands() {
		one := sdk.AvailableCommand{Name: guard.Visible(c.Name), Description: cmp.Or(guard.Visible(c.Does), c.Name)}
		if c.Args != "" {
			one.Input = &sdk.AvailableCommandInput{Unstructured: &sdk.UnstructuredCommandInput{Hint: guard.Visible(c.Args)}}
		}
		list = append(list, one)
	}
	o.send(sdk.SessionUpdate{AvailableCommandsUpdate: &sdk.SessionAvailableCommandsUpdate{AvailableCommands: list}})
}

func choiceOf(all []Choice, id string) *Choice {
	for i := range all {
		if all[i].ID == id {
			return &all[i]
		}
	}
	return nil
}

// modes returns the choice of a mode in the older form of the protocol, and models that of a model.
func modes(all []Choice) *sdk.SessionModeState {
	c := choiceOf(all, Mode)
	if c == nil {
		return nil
	}
	m := &sdk.SessionModeState{CurrentModeId: sdk.SessionModeId(c.Current)}
	for _, o := range c.Options {
		one := sdk.SessionMode{Id: sdk.SessionModeId(o.Value), Name: o.Value}
		if o.Does != "" {
			one.Description = &o.Does
		}
		m.AvailableModes = append(m.AvailableModes, one)
	}
	return m
}

func models(all []Choice) *sdk.SessionModelState {
	c := choiceOf(all, Model)
	if c == nil {
		return nil
	}
	m := &sdk.SessionModelState{CurrentModelId: sdk.ModelId(c.Current)}
	for _, o := range c.Options {
		m.AvailableModels = append(m.AvailableModels, sdk.ModelInfo{ModelId: sdk.ModelId(o.Value), Name: o.Value})
	}
	return m
}

// configOptions returns choices as options of a session.
func configOptions(all []Choice) []sdk.SessionConfigOption {
	var list []sdk.SessionConfigOption
	for _, c := range all {
		values := sdk.SessionConfigSelectOptionsUngrouped{}
		for _, o := range c.Options {
			one := sdk.SessionConfigSelectOption{Value: sdk.SessionConfigValueId(o.Value), Name: o.Value}
			if o.Does != "" {
				one.Description = &o.Does
			}
			values = append(values, one)
		}
		option := &sdk.SessionConfigOptionSelect{
			Type: "select", Id: sdk.SessionConfigId(c.ID), Name: c.Name, CurrentValue: sdk.SessionConfigValueId(c.Current),
			Options: sdk.SessionConfigSelectOptions{Ungrouped: &values},
		}
		if c.ID == Mode || c.ID == Model {
			option.Category = sdk.Ptr(sdk.SessionConfigOptionCategory(c.ID))
		}
		list = append(list, sdk.SessionConfigOption{Select: option})
	}
	return list
}

// readTime is how long an editor may take to return a file.
const readTime = 5 * time.Second

// Buffer implements [toolcrib.Buffers]. An editor that returns an error does not have the file.
func (o *Session) Buffer(ctx context.Context, name string) (text string, ok bool, err error) {
	if !o.s.reads.Load() {
		return "", false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	r, err := sdk.SendRequest[sdk.ReadTextFileResponse](o.s.conn, ctx, sdk.ClientMethodFsReadTextFile,
		sdk.ReadTextFileRequest{SessionId: o.id, Path: name})
	switch {
	case ctx.Err() != nil:
		return "", false, ctx.Err()
	case o.s.ctx.Err() != nil:
		return "", false, context.Cause(o.s.ctx)
	}
	return r.Content, err == nil, nil
}

// Say shows a text.
func (o *Session) Say(text string) {
	o.send(sdk.UpdateAgentMessageText(guard.Visible(o.s.Mask(text)) + "\n\n"))
}

// Said shows an earlier message of the person.
func (o *Session) Said(text string) { o.send(sdk.UpdateUserMessageText(guard.Visible(text))) }

func (o *Session) send(u sdk.SessionUpdate) {
	_ = o.s.conn.SendNotification(context.Background(), sdk.ClientMethodSessionUpdate,
		sdk.SessionNotification{SessionId: o.id, Update: u}) // an editor that has gone ends the connection
}

var _ interface {
	toolcrib.Buffers
	service.Person
	Frame(f journal.Frame)
} = (*Session)(nil)
