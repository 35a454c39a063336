package up

import "context"

// llama puts llama.cpp and its model in place.
func (u *Up) llama(ctx context.Context, dir *runDir) ([]spec, error) { return nil, nil }
