package cluster

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"strings"
)

// gossipLogger is the logger that memberlist writes to. Its lines go to our log at debug level: they are a library's
// view of single packets, and what matters of them is told by the cluster itself. A line that says that somebody's
// packet or stream could not be decrypted or decoded is also how memberlist tells of an intruder, and the only way it
// does: such lines are reported as refused.
func gossipLogger(l *slog.Logger, refused func(addr string, err error)) *log.Logger {
	return log.New(&gossipLog{l: l, refused: refused}, "", 0)
}

type gossipLog struct {
	l       *slog.Logger
	refused func(addr string, err error)
}

// intrusions are the beginnings of the lines that tell of an intruder, as memberlist v0.7 words them; a test with real
// intruders fails where a later version words them otherwise.
var intrusions = []string{
	"Decrypt packet failed",
	"failed to receive: ",
	"msg type (",
	"missing message type byte",
	"Received invalid msgType",
	"Failed to decode",
	"Failed to decompress payload",
	"Failed to read remote state",
}

func (w *gossipLog) Write(b []byte) (int, error) {
	line := strings.TrimSpace(string(b))
	if msg, addr, ok := intrusion(line); ok {
		w.refused(addr, errors.New("cluster: gossip: "+msg))
	}
	if w.l.Enabled(context.Background(), slog.LevelDebug) {
		w.l.Debug("gossip", "line", line)
	}
	return len(b), nil
}

// intrusion finds message and address in a line such as "[ERR] memberlist: Decrypt packet failed: ... from=1.2.3.4:5".
func intrusion(line string) (msg, addr string, ok bool) {
	_, msg, ok = strings.Cut(line, "memberlist: ")
	if !ok {
		return "", "", false
	}
	i := strings.LastIndex(msg, " from=")
	if i < 0 {
		return "", "", false
	}
	msg, addr = strings.TrimRight(msg[:i], ": "), msg[i+len(" from="):]
	for _, p := range intrusions {
		if strings.HasPrefix(msg, p) {
			return msg, addr, true
		}
	}
	return "", "", false
}
