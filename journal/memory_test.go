package journal_test

import (
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
)

func TestMemoryJournal(t *testing.T) {
	journaltest.Run(t, func(*testing.T) toolcrib.Journal { return new(journal.Memory) })
}

func TestMemoryContents(t *testing.T) {
	journaltest.RunContents(t, func(*testing.T) toolcrib.Contents { return new(journal.Memory) })
}
