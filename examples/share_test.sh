#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs share_buffer, share_buffer.py or share_gpu_buffer as two processes: share_test.sh SLUICED PROGRAM [DEVICE]
set -eu

share=("${@:2}")
if [[ $2 == *.py ]]; then
	# What Debian installs is for Debian's python3, which need not be the first one.
	for python in python3 /usr/bin/python3; do
		"$python" -c 'import numpy; numpy.from_dlpack' 2> /dev/null && share=("$python" "$2") && break
	done
	[[ ${share[0]} == *.py ]] && { echo "skipped: no python3 has NumPy 1.22 or later"; exit 77; }
fi

folder=$(mktemp -d "${TMPDIR:-/tmp}/sluice-share.XXXXXX")
export SLUICE_STORE=$folder/socket
"$1" --memory 16M &
daemon=$!
trap 'kill $daemon; wait $daemon; rm -r "$folder"' EXIT
for ((i = 0; i < 500; i++)); do
	[ -S "$SLUICE_STORE" ] && break
	sleep 0.02
done
"${share[@]}" consume squares > "$folder/sum" &
consumer=$!
"${share[@]}" produce squares 1000
wait $consumer
[ "$(cat "$folder/sum")" = 332833500 ]
# And when the producer has ended before.
"${share[@]}" produce squares 100000
[ "$("${share[@]}" consume squares)" = 333328333350000 ]
