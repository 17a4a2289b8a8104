# SPDX-License-Identifier: Apache-2.0
# What the tests of the command share; they source it first, with their own arguments, and call
# run_cases last. Each function of theirs whose name is a sentence is a case; it proves the sentence,
# or fails.
set -u

sluice=$(realpath -- "${1:?usage: ${0##*/} PATH_OF_SLUICE [CASE...]}") || exit 1
shift
cases=("$@")
scratch=$(mktemp -d "${SLUICE_TEST_DIR:-${TMPDIR:-/tmp}}/sluice-cli.XXXXXX") || exit 1
trap 'rm -rf -- "$scratch"' EXIT
trap 'exit 1' INT TERM HUP
unset "${!SLUICE_@}"
export LC_ALL=C.UTF-8

# Python itself, which begins sooner than a script that chooses one, and without packages sooner still.
python=$(python3 -c 'import sys; print(sys.executable)') || exit 1
python() {
	"$python" -IS "$@"
}

# ------------------------------------------------------------------------------------------- tools

fail() {
	echo "# $*" >&2
	exit 1
}

skip() {
	echo "$*" > "$scratch/skipped"
	exit 77
}

# status STATUS COMMAND...: the command ends with that status; its output is in out and err.
status() {
	local expected=$1 got
	shift
	timeout 20 "$@" > out 2> err < "${input:-/dev/null}"
	got=$?
	[ $got = "$expected" ] || fail "status $got, not $expected: $* ($(head -c 300 err))"
}

# await COMMAND...: the command succeeds, within a minute.
await() {
	local end=$((SECONDS + 60))
	until "$@"; do
		[ $SECONDS -lt $end ] || fail "it does not become true: $*"
		sleep 0.02
	done
}

# has_open PID FILE: the process has it open.
has_open() {
	local fd
	for fd in /proc/"$1"/fd/*; do [ "$fd" -ef "$2" ] && return; done
	return 1
}

# catches PID SIGNAL: the process cleans up when the signal comes.
catches() {
	local mask
	mask=$(sed -n 's/^SigCgt:\s*//p' "/proc/$1/status" 2> /dev/null)
	[ $((0x0$mask >> ($(kill -l "$2") - 1) & 1)) = 1 ]
}

# interrupt SIGNAL COMMAND...: the command gets the signal when it catches that, and obeys; its messages are in err.
interrupt() {
	local signal=$1 pid
	shift
	env --default-signal="$signal" "$@" 2> err <&0 &
	pid=$!
	await catches $pid "$signal"
	# It has begun.
	sleep 0.2
	kill -"$signal" $pid
	wait $pid
	[ $? = $((128 + $(kill -l "$signal"))) ] || fail "it did not end by the signal: $*"
}

says() {
	grep -qF -- "$1" err || fail "standard error does not say '$1': $(head -c 300 err)"
}

# The folder holds these names and no others.
holds() {
	local there
	there=$(ls -A "$1" | tr '\n' ' ')
	shift
	[ "$there" = "$*${*:+ }" ] || fail "it holds '$there', not '$*'"
}

# holes FILE: 40 MB with data in few places, and holes of all sizes between them, at its start and at its end.
holes() {
	python - "$1" <<- END
		import os, random
		with open(os.sys.argv[1], "wb") as file:
		    for at in 3 << 20, (4 << 20) + 1, (4 << 20) + 70000, 8 << 20, (12 << 20) - 7, 30 << 20:
		        file.seek(at)
		        file.write(random.randbytes(random.randrange(1, 600000)))
		    file.truncate(40000001)
	END
}

same() {
	cmp -s -- "$1" "$2" || fail "$1 and $2 differ"
}

noise() {
	head -c "$1" /dev/urandom
}

# json FILE EXPRESSION: the Python expression over the object j in FILE is true.
json() {
	python -c 'import json, sys
j = json.load(open(sys.argv[1], encoding="utf-8"))
sys.exit(0 if eval("(" + sys.argv[2] + ")") else 1)' "$1" "$2" || fail "not so: $2 in $(head -c 600 "$1")"
}

# The exit status says whether all went well.
run_cases() {
	local passed=0 failed=0 skipped=0 name
	if [ ${#cases[@]} = 0 ]; then
		# In the order of the file.
		mapfile -t cases < <(grep -oE '^[a-z0-9_]+_[a-z0-9_]+\(\)' "$0" | tr -d '()')
	fi
	for name in "${cases[@]}"; do
		mkdir "$scratch/$name"
		(cd "$scratch/$name" && "$name") 2> "$scratch/why"
		case $? in
		0)
			echo "ok $name"
			passed=$((passed + 1))
			;;
		77)
			echo "ok $name # SKIP $(cat "$scratch/skipped")"
			skipped=$((skipped + 1))
			;;
		*)
			echo "not ok $name"
			cat "$scratch/why"
			failed=$((failed + 1))
			;;
		esac
		# What a case leaves behind is not the next one's.
		declare -F tidy > /dev/null && tidy
		chmod -R u+rwx "$scratch/$name" && rm -rf "${scratch:?}/$name"
	done
	echo "$passed passed, $failed failed, $skipped skipped"
	[ $failed = 0 ]
}
