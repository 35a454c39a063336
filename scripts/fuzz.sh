#!/usr/bin/env bash
# fuzz.sh [TIME]: runs every fuzz target of the repository, one after the other, TIME each (default 60s). It ends at the
# first finding, whose input go test has then written below the package's testdata, to be committed with the fix.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/machine.sh
need_go
time=${1:-60s}

listed=$(go test -list '^Fuzz' ./...) || die "the tests do not build: see above"
# "Name" lines come first, then the package's own "ok" line.
targets=$(awk '/^Fuzz/ { names[n++] = $1 } /^ok/ { for (i = 0; i < n; i++) print $2, names[i]; n = 0 }' <<<"$listed")
[ -n "$targets" ] || die "no fuzz target was found"
count=$(wc -l <<<"$targets")
say "$count fuzz targets, $time each"
i=0
while read -r package name; do
	i=$((i + 1))
	say "$i of $count: $name in $package"
	go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" "$package" </dev/null
done <<<"$targets"
say "$count fuzz targets, $time each, without a finding"
