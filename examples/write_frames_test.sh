#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# write_frames_test.sh PROGRAM: what it writes is what h5dump sees, and mistakes are told in a sentence.
set -euo pipefail

program=$1
[ -x "$program" ] || { echo "skipped: $program"; exit 77; }
command -v h5dump >/dev/null || { echo "skipped: h5dump (hdf5-tools) is missing"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() {
	echo "$*"
	exit 1
}

"$program" "$folder/wave.h5" | grep -q '^100 frames' || fail "it does not say what it wrote"
header=$(h5dump -H -p "$folder/wave.h5")
for wanted in '( 100, 480, 640 )' 'COMPRESSION DEFLATE' '"height_time"' '"height_step"' '"title"'; do
	grep -qF "$wanted" <<<"$header" || fail "h5dump does not show $wanted: $header"
done
h5dump -d /wave/height_step -s 99 -c 1 "$folder/wave.h5" | grep -q '(99): 99' || fail "step 99 is wrong"
said=$("$program" "$folder/none/wave.h5" 2>&1) && fail "it writes where there is no folder"
grep -q 'opening: .*none/wave.h5' <<<"$said" || fail "it says only: $said"
said=$("$program" "$folder/x.h5" rle 2>&1) && fail "it knows a codec 'rle'"
grep -q "rle" <<<"$said" || fail "it says only: $said"
