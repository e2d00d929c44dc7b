package bus

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// Descriptor describes a capability. Its JSON form is sent to other nodes.
type Descriptor struct {
	Name        Name            `json:"name"`
	Description string          `json:"description,omitempty"`
	Stability   string          `json:"stability,omitempty"`       // stable, beta or experimental; if "", stable
	Request     json.RawMessage `json:"request_schema,omitempty"`  // JSON Schema of the body, {params, input}
	Response    json.RawMessage `json:"response_schema,omitempty"` // of the result
	Stream      json.RawMessage `json:"stream_schema,omitempty"`   // of the data of each frame that is sent by the handler
	// Params are the values that it serves, such as {"corpus": ["notes"]}. A call with another value of such a
	// parameter is routed to other nodes.
	Params        map[string][]any `json:"params,omitempty"`
	MaxConcurrent int              `json:"max_concurrent"`           // calls at a time on one instance; if 0, 16
	Trust         toolcrib.Trust   `json:"trust_required,omitempty"` // member, trusted, anchor or self; if "", member
	Timeout       time.Duration    `json:"timeout_ns,omitempty"`     // of a call; if 0, 30 s; at most [MaxTimeout]
	Idempotent    bool             `json:"idempotent,omitempty"`     // a call may be repeated on another node
	Effect        toolcrib.Effect  `json:"effect,omitempty"`
	// Joins reports whether the handler itself recognizes a call that is made again, by its ID and caller, also after a
	// restart. It is then called for each of them, and the node keeps no result.
	Joins bool `json:"-"`
	// Reads reports whether the handler reads frames of the caller, with [Exchange.Recv]. Without it a caller that sends
	// one breaks the protocol, so that none are held.
	Reads bool `json:"-"`
}

// TrustSelf is the required trust of a capability that only its own node calls.
const TrustSelf toolcrib.Trust = "self"

// Stabilities of a capability.
const (
	Stable       = "stable"
	Beta         = "beta"
	Experimental = "experimental"
)

// Bounds and defaults of a capability.
const (
	MaxTimeout           = time.Hour
	DefaultTimeout       = 30 * time.Second
	DefaultMaxConcurrent = 16

	mostConcurrent     = 10_000
	maxDescriptorBytes = 256 << 10
	maxDescription     = 8 << 10
	maxParams          = 32
	maxParamValues     = 256
	maxSchemaDepth     = 100
)

// SchemaHash returns the SHA-256 over the canonical JSON of the name, the version and the schemas.
func (d *Descriptor) SchemaHash() string {
	raw, err := json.Marshal(map[string]any{
		"name": d.Name.Name, "version": []int{d.Name.Major, d.Name.Minor},
		"request_schema": orNull(d.Request), "response_schema": orNull(d.Response), "stream_schema": orNull(d.Stream),
	})
	if err == nil {
		raw, err = guard.JSONLimits{MaxBytes: 2 * maxDescriptorBytes, MaxDepth: maxSchemaDepth + 1}.Canonical(raw)
	}
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(raw)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

// Check returns the descriptor with its defaults, or an error. schema compiles a schema; it may be nil.
func (d Descriptor) Check(schema func(json.RawMessage) error) (Descriptor, error) {
	d.Description = guard.Clip(guard.Clean(d.Description), maxDescription)
	d.Stability = cmp.Or(d.Stability, Stable)
	d.MaxConcurrent = cmp.Or(d.MaxConcurrent, DefaultMaxConcurrent)
	d.Trust = cmp.Or(d.Trust, toolcrib.TrustMember)
	d.Timeout = cmp.Or(d.Timeout, DefaultTimeout)
	_, err := ParseName(d.Name.String())
	if err == nil {
		err = d.bounds()
	}
	if err != nil {
		return d, err
	}
	for i, s := range []*json.RawMessage{&d.Request, &d.Response, &d.Stream} {
		if len(*s) == 0 {
			continue
		}
		canonical, err := guard.JSONLimits{MaxBytes: maxDescriptorBytes, MaxDepth: maxSchemaDepth}.Canonical(*s)
		if err == nil && schema != nil {
			err = schema(canonical)
		}
		if err != nil {
			return d, toolcrib.Errorf(toolcrib.CodeSchemaMismatch, "%s: the schema of its %s cannot be used: %v", d.Name,
				[]string{"request", "response", "stream"}[i], err)
		}
		*s = canonical
	}
	raw, err := json.Marshal(d)
	if err != nil || len(raw) > maxDescriptorBytes {
		return d, toolcrib.Errorf(toolcrib.CodeBadRequest, "%s: its description must be JSON of at most %d bytes", d.Name, maxDescriptorBytes)
	}
	return d, nil
}

// bounds returns an error if a field is out of range.
func (d *Descriptor) bounds() error {
	bad := func(format string, args ...any) error {
		return toolcrib.Errorf(toolcrib.CodeBadRequest, "%s: %s", d.Name, fmt.Sprintf(format, args...))
	}
	switch {
	case d.Name == Name{}:
		return bad("it has no name")
	case len(d.Request)+len(d.Response)+len(d.Stream)+len(d.Description) > maxDescriptorBytes:
		return bad("its schemas have more than %d bytes", maxDescriptorBytes)
	case !slices.Contains([]string{Stable, Beta, Experimental}, d.Stability):
		return bad("unknown stability %+q (valid: stable, beta, experimental)", guard.Clip(d.Stability, 64))
	case d.Trust != TrustSelf && d.Trust.Rank() == 0:
		return bad("unknown trust_required %+q (valid: member, trusted, anchor, self)", guard.Clip(string(d.Trust), 64))
	case d.MaxConcurrent < 1 || d.MaxConcurrent > mostConcurrent:
		return bad("max_concurrent must be 1 to %d", mostConcurrent)
	case d.Timeout <= 0 || d.Timeout > MaxTimeout:
		return bad("the timeout must be at most %s", MaxTimeout)
	case len(d.Params) > maxParams:
		return bad("more than %d params", maxParams)
	}
	for name, values := range d.Params {
		if len(values) > maxParamValues {
			return bad("more than %d values of %+q", maxParamValues, guard.Clip(name, 64))
		}
	}
	return nil
}

func least(a, b toolcrib.Trust) toolcrib.Trust {
	if b.Rank() < a.Rank() {
		return b
	}
	return a
}
