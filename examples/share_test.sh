#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs share_buffer as two processes: share_test.sh SLUICED SHARE_BUFFER
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
"$2" consume squares > "$folder/sum" &
consumer=$!
"$2" produce squares 1000
wait $consumer
[ "$(cat "$folder/sum")" = 332833500 ]
