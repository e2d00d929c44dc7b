package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// The kinds of entries of the audit log that come from the journals of runs. Those from
// the system journal have the kinds of its events.
const (
	AuditRunStarted       toolcrib.Kind = "run_started"
	AuditAllowed          toolcrib.Kind = "allowed" // verdicts of the gate, one entry for each call
	AuditAsked            toolcrib.Kind = "asked"
	AuditRefused          toolcrib.Kind = "refused"
	AuditApprovalRequired toolcrib.Kind = "approval_required"
	AuditApprovalDecided  toolcrib.Kind = "approval_decided"
	AuditLimitsRaised     toolcrib.Kind = "limits_raised"
	AuditStopped          toolcrib.Kind = "stopped"  // the run is to end early
	AuditVerdicts         toolcrib.Kind = "verdicts" // verdicts whose content was pruned
)

// The kinds of system events about changes outside the store, appended by the code that makes
// the change.
const (
	SystemConfigChanged toolcrib.Kind = "config_changed" // payload: FileChanged
	SystemTrustGiven    toolcrib.Kind = "trust_given"    // payload: FileChanged
	SystemTrustRevoked  toolcrib.Kind = "trust_revoked"  // payload: FileChanged
	SystemSkillApproved toolcrib.Kind = "skill_approved" // payload: FileChanged; a person has reviewed it
	SystemSkillSeen     toolcrib.Kind = "skill_seen"     // payload: FileChanged; used for the first time, without review
)

// FileChanged records that the current content of a file or folder that controls toolcrib is in use.
type FileChanged struct {
	Path string `json:"path"`
	Name string `json:"name,omitempty"` // name of a skill
	Hash string `json:"hash,omitempty"` // hash of the content, as sha256:…
	By   string `json:"by"`
	Why  string `json:"why,omitempty"` // reason, if no person asked for it
}

// auditEvents are the kinds of entries by the kind of their event.
var auditEvents = map[toolcrib.Kind][]toolcrib.Kind{
	journal.KindRunStarted:           {AuditRunStarted},
	journal.KindVerdicts:             {AuditAllowed, AuditAsked, AuditRefused, AuditVerdicts},
	journal.KindConfirmationRequired: {AuditApprovalRequired},
	journal.KindConfirmationResolved: {AuditApprovalDecided},
	journal.KindGranted:              {AuditLimitsRaised},
	journal.KindStopping:             {AuditStopped},
}

// AuditKinds returns the kinds of entries that this package defines. Other packages, such as
// access, define more.
func AuditKinds() []toolcrib.Kind {
	return []toolcrib.Kind{
		AuditRunStarted, AuditAllowed, AuditAsked, AuditRefused, AuditVerdicts, AuditApprovalRequired, AuditApprovalDecided,
		AuditLimitsRaised, AuditStopped, SystemOverrideSet, SystemOverrideReset, SystemConfigChanged, SystemTrustGiven,
		SystemTrustRevoked, SystemSkillApproved, SystemSkillSeen, SystemRemembered, SystemForgotten, SystemContentPruned,
		SystemRunRemoved, SystemHeadAdopted, SystemDamageAccepted, SystemRunImported,
	}
}

// AuditedEvents returns the kinds of a run's events that the audit log shows.
func AuditedEvents() []toolcrib.Kind { return slices.Sorted(maps.Keys(auditEvents)) }

// AuditFilter chooses entries of the audit log. Every field that is not zero must match.
type AuditFilter struct {
	Since, Until time.Time // from Since on, and before Until
	// User is the user of the run, who acted for that user (--as), who did or decided something, or the
	// user that an entry is about.
	User        string
	Kinds       []toolcrib.Kind // one of these; if empty, any
	Run         toolcrib.RunID  // only entries from its journal and about it from the system journal
	OldestFirst bool
	Limit       int    // number of entries, as [Bound] applies it
	Cursor      string // AuditPage.Next of the page before, with the same filter; if "", the first page
}

// Check returns an error if the filter is invalid.
func (f AuditFilter) Check() error {
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		return errors.New("audit: until must come after since")
	}
	return nil
}

// Wants reports whether entries of a kind match.
func (f AuditFilter) Wants(kind toolcrib.Kind) bool {
	// A pruned entry no longer says which verdicts it had.
	pruned := kind == AuditVerdicts && slices.ContainsFunc(f.Kinds,
		func(k toolcrib.Kind) bool { return k == AuditAllowed || k == AuditAsked || k == AuditRefused })
	return len(f.Kinds) == 0 || pruned || slices.Contains(f.Kinds, kind)
}

// WantsEvent reports whether events of a kind can give entries that match.
func (f AuditFilter) WantsEvent(kind toolcrib.Kind) bool {
	return slices.ContainsFunc(auditEvents[kind], f.Wants)
}

// AuditPage is part of the audit log.
type AuditPage struct {
	Entries []AuditEntry `json:"entries"`
	Next    string       `json:"next,omitempty"` // cursor of the next page; "" on the last page
}

// AuditEntry is an entry of the audit log. Its source is an event of a chain, so that
// verifying the chains verifies it.
type AuditEntry struct {
	Time  time.Time      `json:"time"`
	Kind  toolcrib.Kind  `json:"kind"`
	Chain toolcrib.RunID `json:"chain"` // run whose journal has the event, or SystemChain
	Seq   toolcrib.Seq   `json:"seq"`   // number of the event in its journal
	Index int            `json:"index"` // index of the entry in its event, which may hold the verdicts of a turn
	Hash  string         `json:"hash"`  // hash of the chain up to the event, in hex

	Run   toolcrib.RunID `json:"run_id,omitempty"`
	User  string         `json:"user,omitempty"`  // user of the run
	Actor string         `json:"actor,omitempty"` // user who acted for User (--as)
	By    string         `json:"by,omitempty"`    // user who did or decided it
	// Token is the ID of the access token with which the run was started, the approval decided, the
	// limits raised, the run cancelled, or something changed.
	Token   string             `json:"token,omitempty"`
	Agent   string             `json:"agent,omitempty"`
	Session toolcrib.SessionID `json:"session_id,omitempty"`
	Parent  toolcrib.RunID     `json:"parent_id,omitempty"` // run that started this one

	Tool       string `json:"tool,omitempty"`
	CallID     string `json:"call_id,omitempty"`
	Decision   string `json:"decision,omitempty"` // decision about an approval
	Reason     string `json:"reason,omitempty"`   // reason of a verdict, such as rule_denied, or of a stop
	Rule       string `json:"rule,omitempty"`
	Position   string `json:"position,omitempty"` // FILE:LINE of the setting that decided
	Effect     string `json:"effect,omitempty"`
	ApprovalID string `json:"approval_id,omitempty"`
	Message    string `json:"message,omitempty"`
	Again      bool   `json:"again,omitempty"`  // judged again, after a decision or at resume
	Pruned     bool   `json:"pruned,omitempty"` // the content was removed; the chain is valid without it
	// Calls are the calls that the entry is about, for lists: an export has the events themselves.
	Calls []AuditCall `json:"calls,omitempty"`

	Subject string          `json:"subject,omitempty"` // user, tool, token, … that a system event is about
	Payload json.RawMessage `json:"payload,omitempty"` // payload of a system event
}

// AuditCall is a call that an entry is about, with the arguments that the model gave.
type AuditCall struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"` // long values are cut
}

// EntriesOf returns the entries of an event of a run. e holds the fields that all of them share.
// If body is nil, the content of the event was pruned.
func EntriesOf(e AuditEntry, kind toolcrib.Kind, body toolcrib.Body) []AuditEntry {
	if body == nil {
		e.Kind, e.Pruned = auditEvents[kind][0], kind != journal.KindRunStarted
		if kind == journal.KindVerdicts {
			e.Kind = AuditVerdicts
		}
		return []AuditEntry{e}
	}
	switch b := body.(type) {
	case *journal.Verdicts:
		return verdictEntries(e, b)
	case *journal.ConfirmationRequired:
		e.Kind, e.ApprovalID, e.Message = AuditApprovalRequired, b.ApprovalID, b.Reason
		if len(b.Calls) == 1 {
			e.Tool, e.CallID, e.Effect = b.Calls[0].Name, b.Calls[0].ID, string(b.Calls[0].Effect)
		}
	case *journal.ConfirmationResolved:
		e.Kind, e.ApprovalID, e.Decision, e.By, e.Message = AuditApprovalDecided, b.ApprovalID, b.Decision, b.By, b.Reason
		e.Token = b.Token
		if len(b.Calls) == 1 {
			for id := range b.Calls {
				e.CallID = id
			}
		}
	case *journal.Granted:
		e.Kind, e.By, e.Token = AuditLimitsRaised, b.By, b.Token
		e.Message = fmt.Sprintf("iterations +%d, cost +%g USD, tokens +%d, requests +%d", b.Iterations, b.CostUSD, b.Tokens,
			b.Requests)
	case *journal.Stopping:
		e.Kind, e.By, e.Reason, e.Message = AuditStopped, b.By, string(b.Reason), b.Message
		if b.Reason == toolcrib.StopCancelled {
			e.Token = b.Token
		}
	default:
		return nil
	}
	return []AuditEntry{e}
}

func verdictEntries(e AuditEntry, b *journal.Verdicts) []AuditEntry {
	entries := make([]AuditEntry, len(b.Verdicts))
	for i, v := range b.Verdicts {
		e.Index, e.Again = i, b.Again
		e.Kind = AuditRefused
		switch v.Decision {
		case toolcrib.Allow:
			e.Kind = AuditAllowed
		case toolcrib.Ask:
			e.Kind = AuditAsked
		}
		e.Tool, e.CallID, e.Reason, e.Rule, e.Position, e.Effect = v.Tool, v.CallID, string(v.Reason), v.Rule, v.Position,
			string(v.Effect)
		e.ApprovalID, e.Message = v.Approval, v.Message
		entries[i] = e
	}
	return entries
}

// tokenKey is the context key of [WithToken].
type tokenKey struct{}

// WithToken returns a context in which system events name the access token that caused them by
// its ID. The ID is only recorded: no decision depends on it.
func WithToken(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, tokenKey{}, id)
}

// TokenOf returns the ID that was passed to [WithToken], or "".
func TokenOf(ctx context.Context) string {
	id, _ := ctx.Value(tokenKey{}).(string)
	return id
}

// CausedBy adds the ID of an access token as by_token to the payload of a system event that has by. The
// name token is taken: in events about people it is an object.
func CausedBy(payload json.RawMessage, token string) json.RawMessage {
	var of struct {
		By    string `json:"by"`
		Token string `json:"by_token"`
	}
	if token == "" || json.Unmarshal(payload, &of) != nil || of.By == "" || of.Token != "" {
		return payload
	}
	end := bytes.LastIndexByte(payload, '}')
	return fmt.Appendf(slices.Clone(payload[:end]), `,"by_token":%q}`, token)
}

// EntryOfSystem returns the entry of a system event.
func EntryOfSystem(s SystemEvent, hash string) AuditEntry {
	var of struct {
		Run     toolcrib.RunID     `json:"run_id"`
		Session toolcrib.SessionID `json:"session_id"`
		ID      string             `json:"id"`
		Name    string             `json:"name"`
		Path    string             `json:"path"`
		Tool    string             `json:"tool"`
		By      string             `json:"by"`
		Revoked string             `json:"revoked_by"` // set where by is who made it
		Token   string             `json:"by_token"`
	}
	_ = json.Unmarshal(s.Payload, &of) // fields of other types are still in Payload
	e := AuditEntry{
		Time: s.Time, Kind: s.Kind, Chain: SystemChain, Seq: s.Seq, Hash: hash, Run: of.Run, By: cmp.Or(of.Revoked, of.By),
		Token: of.Token, Session: of.Session, Tool: of.Tool, Payload: s.Payload,
	}
	for _, name := range []string{of.Name, of.ID, of.Path, string(of.Run)} {
		if e.Subject == "" {
			e.Subject = name
		}
	}
	return e
}

// About reports whether an entry is about a user or about something that the user did.
func (e AuditEntry) About(user string) bool {
	if e.User == user || e.Actor == user || e.By == user {
		return true
	}
	if e.Chain != SystemChain {
		return false
	}
	var of struct {
		User  json.RawMessage `json:"user"`
		Name  string          `json:"name"`
		Token *struct {
			Claims struct {
				Subject string `json:"sub"`
			} `json:"claims"`
		} `json:"token"`
	}
	if json.Unmarshal(e.Payload, &of) != nil {
		return false
	}
	var name string
	_ = json.Unmarshal(of.User, &name) // in some events user is an object, and the event has its name
	named := of.Name == user && len(of.User) > 0
	return name == user || named || of.Token != nil && of.Token.Claims.Subject == user
}
