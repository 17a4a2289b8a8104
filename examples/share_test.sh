#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs share_buffer, or share_gpu_buffer, as two processes: share_test.sh SLUICED PROGRAM [DEVICE]
set -eu

folder=$(mktemp -d "${TMPDIR:-/tmp}/sluice-share.XXXXXX")
export SLUICE_STORE=$folder/socket
"$1" --memory 16M &
daemon=$!
trap 'kill $daemon; wait $daemon; rm -r "$folder"' EXIT
for ((i = 0; i < 500; i++)); do
	[ -S "$SLUICE_STORE" ] && break
	sleep 0.02
done
share=("${@:2}")
"${share[@]}" consume squares > "$folder/sum" &
consumer=$!
"${share[@]}" produce squares 1000
wait $consumer
[ "$(cat "$folder/sum")" = 332833500 ]
# And when the producer has ended before.
"${share[@]}" produce squares 100000
[ "$("${share[@]}" consume squares)" = 333328333350000 ]
