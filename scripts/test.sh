#!/usr/bin/env bash
# test.sh: everything that must hold before a change goes in, with nothing set up beforehand but Go.
# Arguments go to go test, after what stands here.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/machine.sh
need_go

missing=()
race=()
if c_compiler; then
	export CGO_ENABLED=1
	race=(-race)
else
	missing+=("the race detector: no C compiler (install gcc and libc6-dev)")
fi

say "building (the first time, Go fetches its modules)"
make -s build

say "go vet"
go vet ./...

say "staticcheck (the first time, it is built; about half a minute)"
go tool staticcheck ./...

say "real engines: llama.cpp and a small model in .engines (the first time, about 130 MB)"
if bin/shoal setup; then
	export SHOAL_LLAMA_DIR=$PWD/.engines
else
	missing+=("tests with real engines: llama.cpp could not be installed (see above)")
fi

if [ "$(uname)" != Linux ] || ! unshare --net true 2>/dev/null; then
	missing+=("the lab, and probes over real kernel ECMP: they need Linux, root and network namespaces")
fi

say "go test ${race[*]-}"
go test ${race[@]+"${race[@]}"} -timeout 8m "$@" ./...

for m in ${missing[@]+"${missing[@]}"}; do say "ABSENT: $m"; done
say "make test has passed"
