package access_test

import (
	"testing"

	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/toolcribtest/accesstest"
)

func TestMemory_Directory(t *testing.T) {
	accesstest.RunDirectory(t, func(*testing.T) access.Directory { return access.NewMemory(nil) })
}

func TestM16_Memory_Tokens(t *testing.T) {
	accesstest.RunTokens(t, func(*testing.T) access.Tokens { return access.NewMemory(nil) })
	accesstest.RunRemovedUsersTokens(t, access.NewMemory(nil))
}

func TestM16_Memory_Quota(t *testing.T) {
	accesstest.RunQuota(t, func(*testing.T) access.Quota { return access.NewMemory(nil) })
}
