# machine.sh: what this machine has, and how to get what it lacks. The other scripts source it; it runs nothing itself.
# Whatever is installed is said. Nothing is installed outside the checkout except, as root, Debian packages.

say() { printf '== %s\n' "$*"; }

have() { command -v "$1" >/dev/null 2>&1; }

# die REASON: for what nothing can be done without.
die() {
	printf '== %s\n' "$*" >&2
	exit 1
}

# apt_install PACKAGE...: installs Debian packages where that is possible, and is false where it is not.
apt_install() {
	[ "$(id -u)" = 0 ] && have apt-get || return 1
	say "installing with apt-get: $*"
	local log
	log=$(mktemp)
	export DEBIAN_FRONTEND=noninteractive
	# The lists of packages may never have been fetched, or be old.
	if ! apt-get install -y --no-install-recommends "$@" >"$log" 2>&1 </dev/null; then
		apt-get update >"$log" 2>&1 </dev/null || true
		if ! apt-get install -y --no-install-recommends "$@" >>"$log" 2>&1 </dev/null; then
			tail -n 5 "$log" >&2
			rm -f "$log"
			return 1
		fi
	fi
	rm -f "$log"
}

need_go() {
	have go || die "Go is missing: install Go 1.26 or newer (https://go.dev/dl), and put it into PATH"
	local v
	v=$(go env GOVERSION)
	case "$v" in
	go1.2[6-9]* | go1.[3-9][0-9]* | go[2-9]*) ;;
	*) die "Go is $v here, and this module needs 1.26 or newer (https://go.dev/dl)" ;;
	esac
}

# compiles reports whether a C program can be built: a compiler alone, without the C library's headers, cannot.
compiles() {
	local dir ok=1
	have "${CC:-gcc}" || return 1
	dir=$(mktemp -d)
	printf '#include <stdlib.h>\nint main(void) { return 0; }\n' >"$dir/a.c"
	"${CC:-gcc}" -o "$dir/a" "$dir/a.c" >/dev/null 2>&1 && ok=0
	rm -rf "$dir"
	return $ok
}

# c_compiler is true where the race detector can be used, which needs a C compiler.
c_compiler() { compiles || { apt_install gcc libc6-dev && compiles; }; }

# have_python is true where there is a Python 3.10 or newer that can install packages, by venv or by pip.
have_python() {
	have python3 || apt_install python3 python3-venv python3-pip || return 1
	python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || return 1
	python3 -c 'import ensurepip' 2>/dev/null || python3 -m pip --version >/dev/null 2>&1 || apt_install python3-venv python3-pip
}

# pip_into DIR REQUIREMENT...: installs Python packages into DIR/lib, which then goes into PYTHONPATH. They are not
# installed again where DIR/done says that they are these.
pip_into() {
	local dir=$1 want
	shift
	want="$* $(cksum <test/clients/requirements.txt)"
	if [ "$(cat "$dir/done" 2>/dev/null)" = "$want" ]; then return 0; fi
	rm -rf "$dir"
	mkdir -p "$dir"
	say "installing into $dir with pip: $*"
	local pip=(python3 -m pip)
	if ! python3 -m pip --version >/dev/null 2>&1; then
		python3 -m venv "$dir/venv" || return 1
		pip=("$dir/venv/bin/python" -m pip)
	fi
	# In a folder of its own, so that nothing that is installed on the machine is touched or asked about.
	"${pip[@]}" install -q --disable-pip-version-check --no-warn-conflicts --root-user-action=ignore --target "$dir/lib" "$@" || return 1
	printf '%s' "$want" >"$dir/done"
}
