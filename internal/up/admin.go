package up

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"shoal/internal/agent"
)

// maxStatus bounds the answer of an admin API, in bytes: 4,096 peers take about 3 MB.
const maxStatus = 32 << 20

// Admin asks agents about themselves, over their admin API. The zero value has no time limit.
type Admin struct {
	Client *http.Client // nil: http.DefaultClient
}

// Status is the view that the agent whose admin API is at addr (host:port) has of its shoal.
func (a *Admin) Status(ctx context.Context, addr string) (*agent.Status, error) {
	var s agent.Status
	body, err := a.get(ctx, addr, "/status")
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(body, &s); err != nil {
		return nil, fmt.Errorf("up: http://%s/status is not the answer of a shoal agent: %w", addr, err)
	}
	if s.Self == "" {
		return nil, fmt.Errorf("up: http://%s/status is not the answer of a shoal agent: it names no peer", addr)
	}
	return &s, nil
}

// Ready returns nil where the agent says that it is ready, else why it is not.
func (a *Admin) Ready(ctx context.Context, addr string) error {
	_, err := a.get(ctx, addr, "/readyz")
	return err
}

func (a *Admin) get(ctx context.Context, addr, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return nil, fmt.Errorf("up: %q is not an admin address: %w", addr, err)
	}
	client := a.Client
	if client == nil {
		client = http.DefaultClient
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("up: %w", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxStatus+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("up: http://%s%s: %w", addr, path, err)
	case len(body) > maxStatus:
		return nil, fmt.Errorf("up: http://%s%s answers more than %d MB", addr, path, maxStatus>>20)
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("up: http://%s%s answers %d %.200s", addr, path, res.StatusCode, strings.TrimSpace(string(body)))
	}
	return body, nil
}
