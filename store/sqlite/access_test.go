package sqlite_test

import (
	"testing"

	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/toolcribtest/accesstest"
)

func TestN18_Directory(t *testing.T) {
	accesstest.RunDirectory(t, func(t *testing.T) access.Directory { return open(t).Access() })
}

func TestM16_Tokens(t *testing.T) {
	accesstest.RunTokens(t, func(t *testing.T) access.Tokens { return open(t).Access() })
	accesstest.RunRemovedUsersTokens(t, open(t).Access())
}

func TestM16_Quota(t *testing.T) {
	accesstest.RunQuota(t, func(t *testing.T) access.Quota { return open(t).Access() })
}
