package inmemory_test

import (
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal/inmemory"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
)

func TestJournal(t *testing.T) {
	journaltest.Run(t, func(*testing.T) toolcrib.Journal { return new(inmemory.Journal) })
}

func TestContents(t *testing.T) {
	journaltest.RunContents(t, func(*testing.T) toolcrib.Contents { return new(inmemory.Journal) })
}
