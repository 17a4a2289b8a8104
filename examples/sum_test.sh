#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The sum that an example prints is that of od and awk: sum_test.sh PROGRAM
set -euo pipefail
file=$(mktemp "${TMPDIR:-/tmp}/sluice-sum.XXXXXX")
trap 'rm -f "$file"' EXIT
head -c 9000001 /dev/urandom >"$file"
expected=$(od -An -v -tu1 "$file" | awk '{ for (i = 1; i <= NF; i++) s += $i } END { printf "%d", s }')
got=$("$1" "$file")
[[ $got == "$expected is the sum of the 9000001 bytes of $file" ]] || {
	echo "expected $expected, got: $got"
	exit 1
}
: >"$file"
[[ $("$1" "$file") == "0 is the sum of the 0 bytes of $file" ]]
