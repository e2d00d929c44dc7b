package notify

import (
	"net/url"

	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/discord"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/googlechat"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/lark"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/matrix"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/mattermost"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/rocketchat"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/signal"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/slack"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/teams"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/telegram"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/wecom"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/zulip"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/incident/opsgenie"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/incident/pagerduty"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/push/bark"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/push/gotify"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/push/ifttt"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/push/join"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/push/ntfy"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/push/pushbullet"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/push/pushover"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/specialized/notifiarr"
	"github.com/nicholas-fedor/shoutrrr/pkg/types"
)

// messenger is a service of the library, as far as it is used.
type messenger interface {
	Initialize(address *url.URL, log types.StdLogger) error
	Send(text string, params *types.Params) error
}

// messengers makes the library's services by scheme. The library's own router is not used: it
// links services that execute templates, with which the linker keeps every exported method of
// the program, seven megabytes of them. Mail is one of these; see [mail].
var messengers = map[string]func() messenger{
	"bark":       func() messenger { return &bark.Service{} },
	"discord":    func() messenger { return &discord.Service{} },
	"googlechat": func() messenger { return &googlechat.Service{} },
	"gotify":     func() messenger { return &gotify.Service{} },
	"ifttt":      func() messenger { return &ifttt.Service{} },
	"join":       func() messenger { return &join.Service{} },
	"lark":       func() messenger { return &lark.Service{} },
	"matrix":     func() messenger { return &matrix.Service{} },
	"mattermost": func() messenger { return &mattermost.Service{} },
	"notifiarr":  func() messenger { return &notifiarr.Service{} },
	"ntfy":       func() messenger { return &ntfy.Service{} },
	"opsgenie":   func() messenger { return &opsgenie.Service{} },
	"pagerduty":  func() messenger { return &pagerduty.Service{} },
	"pushbullet": func() messenger { return &pushbullet.Service{} },
	"pushover":   func() messenger { return &pushover.Service{} },
	"rocketchat": func() messenger { return &rocketchat.Service{} },
	"signal":     func() messenger { return &signal.Service{} },
	"slack":      func() messenger { return &slack.Service{} },
	"teams":      func() messenger { return &teams.Service{} },
	"telegram":   func() messenger { return &telegram.Service{} },
	"wecom":      func() messenger { return &wecom.Service{} },
	"zulip":      func() messenger { return &zulip.Service{} },
	"smtp":       func() messenger { return &mail{} },
}
