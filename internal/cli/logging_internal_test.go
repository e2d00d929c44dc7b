package cli

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
)

// Only what people are told anyway is left out of the log before their eyes, and not what speaks of it.
func TestLogger_Told(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		c := &config.Config{Log: config.Log{Level: "info", Format: format}}
		a := &app{config: c, service: service.New(env.Options{Config: c})}
		var b bytes.Buffer
		log, err := a.logger(&b, true)
		if err != nil {
			t.Fatal(err)
		}
		for _, told := range []string{agent.LogRequestFailed, service.NoticeNotifyFailed} {
			for _, log := range []*slog.Logger{log, log.With("a", 1), log.WithGroup("g")} {
				log.Warn(told, "run", "run_1")
				log.Warn("the tool failed", "error", told)
			}
		}
		if got := b.String(); strings.Count(got, "the tool failed") != 6 || strings.Count(got, "\n") != 6 {
			t.Errorf("%s:\n%s", format, got)
		}
	}
}
