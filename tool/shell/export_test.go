package shell

import (
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/shell/internal/line"
)

// Bound sets what a job of the tool may have at most, where the numbers are not 0.
func Bound(made toolcrib.Tool, memory, disk, files uint64, threads int) {
	made.(*shell).bounds = func(sandbox line.Sandbox) bounds {
		b := boundsOf(sandbox)
		for _, set := range []struct {
			to   *uint64
			most uint64
		}{{&b.memory, memory}, {&b.disk, disk}, {&b.files, files}} {
			if set.most > 0 {
				*set.to = set.most
			}
		}
		if threads > 0 {
			b.threads = threads
		}
		return b
	}
}

// Open lets programs reach any network.
func Open(made toolcrib.Tool, open bool) { made.(*shell).options.open = open }

// Resolve sets the resolver of the network.
func Resolve(n *Network, r *net.Resolver) { n.resolver = r }

// Visit sets how many entries of the workspace are visited.
func Visit(made toolcrib.Tool, entries int) { made.(*shell).options.visits = entries }

// Toolchain are the variables that a job gets for toolchains and their caches.
func Toolchain() []string {
	git := "GIT_CEILING_DIRECTORIES GIT_CONFIG_COUNT GIT_CONFIG_NOSYSTEM GIT_EDITOR GIT_OPTIONAL_LOCKS GIT_PAGER GIT_SEQUENCE_EDITOR GIT_TERMINAL_PROMPT"
	for i := range 6 {
		git += fmt.Sprintf(" GIT_CONFIG_KEY_%d GIT_CONFIG_VALUE_%d", i, i)
	}
	return strings.Fields(git + ` CARGO_HOME CARGO_NET_OFFLINE GOCACHE GOMODCACHE GOPROXY GOSUMDB GOTOOLCHAIN npm_config_cache npm_config_offline
		npm_config_update_notifier PIP_CACHE_DIR PIP_DISABLE_PIP_VERSION_CHECK PIP_NO_INDEX`)
}

// Pace sets how long a call without a timeout of its own lasts, and how much it must compute to last longer.
func Pace(made toolcrib.Tool, quiet, most, work time.Duration) {
	s := made.(*shell)
	s.quiet, s.most, s.work = quiet, most, work
}

// OnlySh has lines run as where there is no bash.
func OnlySh(made toolcrib.Tool) { made.(*shell).shells = []string{"sh"} }
