#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The command and blobs as files, store://: blob_test.sh PATH_OF_SLUICE [CASE...], with SLUICED.
# shellcheck source=tests/cli/tools.sh
. "$(dirname -- "$0")/tools.sh"

# A path of a socket is short.
folder=$(mktemp -d "${TMPDIR:-/tmp}/sluice-blob.XXXXXX") || exit 1
export SLUICE_STORE=$folder/socket
"$SLUICED" --memory 256M --device-memory emulated:0=100M &
daemon=$!
trap 'kill "$daemon" 2>/dev/null; rm -rf -- "$scratch" "$folder"' EXIT
for ((i = 0; i < 500; i++)); do
	"$sluice" store stat > /dev/null 2>&1 && break
	sleep 0.02
done

# As in http_test.sh; without them the cases that need a server are skipped.
unset http_proxy https_proxy HTTPS_PROXY all_proxy ALL_PROXY no_proxy NO_PROXY
noise 1048573 > "$scratch/pattern"
coproc servers { exec "$python" "$(dirname -- "$0")/../engine/http/servers.py" "$scratch" --pattern "$scratch/pattern"; }
read -r line <&"${servers[0]}" || line="the servers did not start"
server_plain=
for word in $line; do [[ $word == *=* ]] && declare "server_${word%%=*}=${word#*=}"; done
export SLUICE_HTTP_BACKOFF_MS=5 SLUICE_HTTP_BACKOFF_MAX_MS=20 SLUICE_HTTP_RETRY_MS=20000

remote() {
	[ -n "${server_nginx:-}" ] || skip "$line"
	plain=http://127.0.0.1:$server_nginx/${PWD##*/}
	fault=http://127.0.0.1:$server_plain
}

tidy() {
	"$sluice" store ls --json |
		python -c 'import json, sys
for line in sys.stdin: print(json.loads(line)["name"], end="\0")' |
		xargs -0r "$sluice" store rm
}

# Nothing is in the store, and nothing is being made.
clean() {
	for ((i = 0; i < 250; i++)); do
		status 0 "$sluice" store stat --json
		grep -q '"created": 0, ' out && break
		sleep 0.02
	done
	json out 'j["sealed"] == 0 and j["created"] == 0'
}

# Two files of tensors, and an index of them.
model() {
	python - <<-'TEXT'
		import json, struct
		def write(name, tensors):
		    header, data = {"__metadata__": {"format": "pt"}}, b""
		    for key, kind, shape, content in tensors:
		        header[key] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
		        data += content
		    text = json.dumps(header).encode()
		    open(name, "wb").write(struct.pack("<Q", len(text)) + text + data)
		write("one.safetensors", [("a", "U8", [700], bytes(range(70)) * 10), ("b", "F32", [2, 50], b"wxyz" * 100)])
		write("two.safetensors", [("c", "I64", [], b"12345678"), ("none", "F16", [0, 3], b"")])
		names = {"a": "one", "b": "one", "c": "two", "none": "two"}
		json.dump({"weight_map": {key: f"{name}.safetensors" for key, name in names.items()}}, open("model.safetensors.index.json", "w"))
	TEXT
}

tensors_of_files_are_a_collection() {
	local device
	model
	for device in host emulated:0; do
		status 0 "$sluice" store put m model.safetensors.index.json --replace --device $device
		status 0 "$sluice" store ls
		[ "$(grep -c . out)" = 1 ] || fail "a collection is not one line"
		status 0 "$sluice" store ls --tensors --json
		{ echo '[' && paste -sd, out && echo ']'; } > rows
		json rows '[t["tensor"] for t in j[1:]] == ["c", "b", "none", "a"] and j[2]["shape"] == [2, 50] and j[0]["parts"] == 1'
		status 0 "$sluice" store get m back.safetensors
		status 0 "$sluice" tensors ls store://m
		grep -q 'float32 *\[2, 50\]' out
		python - <<-'TEXT' || fail "other tensors came back"
			import json, struct
			text = open("back.safetensors", "rb").read()
			n = struct.unpack("<Q", text[:8])[0]
			header, data = json.loads(text[8:8 + n]), text[8 + n:]
			assert header.pop("__metadata__") == {"format": "pt"} and len(data) == 1108
			assert {k: data[slice(*v["data_offsets"])] for k, v in header.items()} == {
			    "a": bytes(range(70)) * 10, "b": b"wxyz" * 100, "c": b"12345678", "none": b""}
		TEXT
	done
	status 1 "$sluice" store put m one.safetensors --tensors
	says "taken"
	status 1 "$sluice" store put "" one.safetensors --tensors
	says "a name is empty"
	status 1 "$sluice" tensors cp one.safetensors store://
	says "a name is empty"
	status 0 "$sluice" store put m one.safetensors two.safetensors -f
	status 0 "$sluice" store stat m
	grep -q '^parts  *1$' out || fail "$(cat out)"
	status 0 "$sluice" store rm m
	clean
	# A file alone stays as it is.
	status 0 "$sluice" store put m one.safetensors
	status 0 "$sluice" store get m back.safetensors
	same one.safetensors back.safetensors
	status 0 "$sluice" store rm m
}

a_copy_to_a_blob_and_back_holds_the_same_bytes() {
	local n
	for n in 1 4097 1048577 36000001; do
		noise $n > from
		rm -f to
		status 0 "$sluice" cp from store://a/b
		status 0 "$sluice" cp store://a/b to
		same from to
		"$sluice" cp -q store://a/b - | cmp -s - from || fail "$n bytes to a pipe"
		status 0 "$sluice" store get a/b to
		same from to
		status 0 "$sluice" store rm a/b
	done
	clean
}

blobs_are_copied_to_blobs() {
	noise 5000001 > from
	status 0 "$sluice" cp from 'store://a%20b%3f'
	status 0 "$sluice" cp 'store://a%20b%3F' store://c
	status 0 "$sluice" cp --checksum store://c "store://d?socket=$SLUICE_STORE"
	[ "$(cut -d' ' -f1 out)" = "$("$sluice" cp -qf --checksum from to | cut -d' ' -f1)" ] || fail "$(cat out)"
	status 0 "$sluice" store get d got
	same from got
	status 1 "$sluice" cp -f store://c store://c
	says "both SRC and DST"
	mkdir into
	status 0 "$sluice" cp store://c into
	same from into/c
	status 0 "$sluice" store rm 'a b?' c d
	clean
}

memory_of_a_device_may_be_on_the_way() {
	noise 5000001 > from
	status 0 "$sluice" cp --through emulated from store://x
	status 0 "$sluice" cp --through emulated --checksum store://x to
	same from to
	status 0 "$sluice" cp -f --through emulated store://x store://y
	status 0 "$sluice" store get y got
	same from got
	status 0 "$sluice" store rm x y
}

holes_are_read_as_zeros() {
	truncate -s 20M from
	echo x >> from
	status 0 "$sluice" cp from store://x
	status 0 "$sluice" store get x to
	same from to
	status 0 "$sluice" store rm x
	holes from
	status 0 "$sluice" cp from store://x
	status 0 "$sluice" cp -f store://x to
	same from to
	status 0 "$sluice" cp -f --device emulated from store://x
	status 0 "$sluice" cp -f store://x to
	same from to
	input=from status 0 "$sluice" cp -f - store://x
	status 0 "$sluice" cp -f store://x to
	same from to
	input=from status 0 "$sluice" store put -f x /dev/stdin
}

# A copy of store://x that has begun, and waits for its reader.
taste() {
	mkfifo pipe
	"$sluice" cp -q store://x - > pipe &
	reader=$!
	exec {pipe}< pipe
	head -c 1 <&"$pipe" > seen
}

# The rest of it, in the file seen.
finish() {
	cat <&"$pipe" >> seen
	exec {pipe}<&-
	wait $reader || fail "the reader"
}

a_blob_is_replaced_only_with_force_and_who_reads_it_keeps_the_old_one() {
	noise 9000000 > old
	noise 3000000 > new
	status 0 "$sluice" cp old store://x
	status 1 "$sluice" cp new store://x
	says "'x' is taken; use -f to overwrite it"
	taste
	status 0 "$sluice" cp -f new store://x
	status 0 "$sluice" store get x got
	same new got
	finish
	same old seen
	status 0 "$sluice" store rm x
	clean
}

file_without_bytes_becomes_a_blob() {
	: > empty
	status 0 "$sluice" cp empty store://x
	status 0 "$sluice" cp store://x got
	same empty got
	status 0 "$sluice" store rm x
	clean
}

source_that_cannot_become_a_blob_is_named() {
	noise 1000 > from
	status 1 "$sluice" cp <(cat from) store://x
	says "no length that is known"
	status 1 "$sluice" cp /proc/self/status store://x
	says "no length that is known"
	status 1 "$sluice" cp nothing store://x
	says "nothing"
	status 1 "$sluice" cp --durable from store://x
	says "durable"
	status 1 "$sluice" cp from store://
	says "'store://': a name is empty"
	status 1 "$sluice" cp from "store://$(printf 'x%.0s' {1..256})"
	says "255"
	status 1 "$sluice" cp from 'store://a%0ab'
	says "'store://a%0ab': a name is no UTF-8"
	status 1 "$sluice" store get --id 0 to
	says "no blob has the number 0"
	status 1 "$sluice" cp from 'store://x?colour=red'
	says "colour"
	status 1 "$sluice" cp store://x to
	says "'x' is not there"
	[ ! -e to ] || fail "there is a copy of nothing"
	SLUICE_STORE=$folder/nobody status 1 "$sluice" cp from store://x
	says "no store at '$folder/nobody': No such file or directory; does sluiced run there?"
	SLUICE_STORE=$folder/nobody status 1 "$sluice" cp store://x to
	says "no store at '$folder/nobody'"
	truncate -s 300M large
	status 1 "$sluice" cp large store://x
	says "'x' of 314572800 bytes: "
	says "are needed"
	clean
}

# place NAME PLACE: that is where the blob is.
place() {
	status 0 "$sluice" store stat --json "$1"
	json out "j['place'] == '$2'"
}

a_blob_on_a_device_is_a_blob_as_any_other() {
	local n device
	for n in 1 4097 1048577 36000001; do
		noise $n > from
		for device in 0 1; do
			rm -f to got
			status 0 "$sluice" cp --device emulated:$device from store://a/b
			place a/b emulated:$device
			status 0 "$sluice" cp store://a/b to
			same from to
			"$sluice" cp -q store://a/b - | cmp -s - from || fail "$n bytes to a pipe"
			status 0 "$sluice" store get a/b got
			same from got
			[ "$("$sluice" cp -qf --checksum store://a/b to | cut -d' ' -f1)" = \
				"$("$sluice" cp -qf --checksum from to | cut -d' ' -f1)" ] || fail "checksum"
			status 0 "$sluice" store rm a/b
		done
	done
	noise 5000001 > from
	status 0 "$sluice" cp from "store://b?device=emulated:1"
	place b emulated:1
	status 0 "$sluice" store rm b
	clean
}

a_blob_is_moved_between_the_host_and_devices() {
	local from to
	noise 9000001 > bytes
	for from in host emulated:0 emulated:1; do
		status 0 "$sluice" cp --device $from bytes store://a
		for to in host emulated:0 emulated:1; do
			status 0 "$sluice" cp --device $to store://a store://b
			place b $to
			rm -f got
			status 0 "$sluice" cp store://b got
			same bytes got
			status 0 "$sluice" store rm b
		done
		# Under its own name as well.
		status 0 "$sluice" cp -f --device emulated:1 store://a store://a
		place a emulated:1
		"$sluice" cp -q store://a - | cmp -s - bytes || fail "$from"
		status 0 "$sluice" store rm a
	done
	clean
}

memory_of_any_device_may_be_on_the_way_to_one() {
	local through
	noise 20000001 > from
	for through in emulated:0 emulated:1; do
		rm -f to
		status 0 "$sluice" cp --through $through --device emulated:1 from store://a
		status 0 "$sluice" cp --through $through --checksum store://a to
		same from to
		status 0 "$sluice" cp --through $through --device emulated:0 store://a store://b
		"$sluice" cp -q store://b - | cmp -s - from || fail "through $through"
		status 0 "$sluice" store rm a b
	done
	truncate -s 20M sparse
	echo x >> sparse
	status 0 "$sluice" cp --device emulated:0 sparse store://a
	"$sluice" cp -q store://a - | cmp -s - sparse || fail "holes"
}

blob_too_large_for_a_device_is_refused() {
	noise 1000 > from
	truncate -s 120M large
	status 1 "$sluice" cp --device emulated:0 large 'store://a%20b'
	says "bytes of emulated:0 are needed"
	status 0 "$sluice" cp --device emulated:1 large store://large
	status 1 "$sluice" cp -f --device emulated:0 store://large store://a
	says "bytes of emulated:0 are needed"
	status 0 "$sluice" cp --device host from store://a
	status 1 "$sluice" cp --device emulated:0 from store://a
	says "'a' is taken; use -f to overwrite it"
	status 2 "$sluice" cp --device host from to
	says "--device"
	status 1 env LD_LIBRARY_PATH=/nowhere "$sluice" cp --device 7 from store://x
	status 0 "$sluice" store rm a large
	clean
}

a_blob_on_a_device_is_measured_as_a_file_is() {
	local memory
	noise 5000000 > from
	status 0 "$sluice" cp --device emulated:1 from store://x
	status 0 "$sluice" stat store://x
	grep -q '^memory  *emulated:1$' out || fail "$(cat out)"
	for memory in host emulated:0 emulated:1; do
		status 0 "$sluice" bench read store://x --memory $memory --repeat 2 --json
		json out 'j["bytes"] == 5000000 and j["backend"] == "store"'
	done
	status 0 "$sluice" bench read store://x --memory emulated:1 --order stream --repeat 2 --json
	status 1 "$sluice" bench read store://x --memory emulated:0 --order stream --repeat 2
	says "both have to be of one device"
	status 0 "$sluice" bench write 'store://x?device=emulated:0' -f --size 2M --repeat 2 --json
	place x emulated:0
	status 0 "$sluice" store rm x
	clean
}

stat_describes_a_blob() {
	noise 5000 > from
	status 0 "$sluice" cp from 'store://x?cache'
	status 0 "$sluice" stat store://x
	grep -q '^kind  *blob$' out || fail "$(cat out)"
	grep -q '^memory  *host$' out || fail "$(cat out)"
	status 0 "$sluice" stat --json store://x
	json out 'j["kind"] == "blob" and j["length"] == 5000 and j["backend"] == "store" and int(j["etag"]) > 0'
	status 0 "$sluice" store stat --json x
	json out 'j["cache"] and not j["pinned"]'
	status 0 "$sluice" store rm x
}

a_blob_is_measured_as_a_file_is() {
	noise 5000000 > from
	status 0 "$sluice" cp from store://x
	status 0 "$sluice" bench read store://x --repeat 2 --json
	json out 'j["bytes"] == 5000000 and j["backend"] == "store"'
	status 1 "$sluice" bench write store://x --size 2M --repeat 1
	says "taken"
	status 0 "$sluice" bench write store://x -f --size 2M --repeat 2 --json
	status 0 "$sluice" stat --json store://x
	json out 'j["length"] == 2 << 20'
	status 0 "$sluice" store rm x
}

an_object_of_a_server_becomes_a_blob() {
	remote
	local n
	for n in 1 4097 20000001; do
		noise $n > from
		status 0 "$sluice" cp "$plain/from" store://x
		status 0 "$sluice" store get x to
		same from to
		rm -f back
		status 0 "$sluice" cp store://x "$plain/back"
		same from back
		status 0 "$sluice" store rm x
	done
	# What passes is survived, what stays leaves nothing; as with files.
	for ((i = 0; i < 8; i++)); do cat "$scratch/pattern"; done | head -c 8000001 > from
	status 0 "$sluice" cp "$fault/b1/x?size=8000001&fault=reset:300000&times=3" store://x
	status 0 "$sluice" cp -f "$fault/b2/x?size=8000001&ranges=no" store://x
	status 0 "$sluice" store get x to
	same from to
	status 0 "$sluice" store rm x
	status 1 "$sluice" cp "$plain/missing" store://x
	says "404"
	status 1 "$sluice" cp "$fault/b3/x?size=8000001&fault=status:500&times=1000" store://x
	status 1 "$sluice" cp "$fault/b4/x?size=3000001&ranges=no&length=chunked&head=nolength" store://x
	says "no length that is known"
	clean
}

an_object_of_a_server_becomes_a_blob_on_a_device() {
	remote
	local n device
	for n in 1 4097 20000001; do
		noise $n > from
		for device in 0 1; do
			status 0 "$sluice" cp --device emulated:$device "$plain/from" store://x
			place x emulated:$device
			rm -f to back
			status 0 "$sluice" cp store://x to
			same from to
			status 0 "$sluice" cp store://x "$plain/back"
			same from back
			status 0 "$sluice" store rm x
		done
	done
	for ((i = 0; i < 8; i++)); do cat "$scratch/pattern"; done | head -c 8000001 > from
	status 0 "$sluice" cp --device emulated:0 "$fault/d1/x?size=8000001&fault=reset:300000&times=3" store://x
	status 0 "$sluice" cp -f --device emulated:1 "$fault/d2/x?size=8000001&ranges=no" store://x
	rm to
	status 0 "$sluice" store get x to
	same from to
	status 0 "$sluice" store rm x
	status 1 "$sluice" cp --device emulated:0 "$fault/d3/x?size=8000001&fault=status:500&times=1000" store://x
	interrupt INT "$sluice" cp --device emulated:1 "$fault/d4/x?size=8000001&fault=stall:100000&times=1000" store://x
	says "interrupted; 'store://x' was not written"
	clean
}

# The copy of an object that stands still in its middle, in the background.
begin() {
	remote
	"$sluice" cp "$fault/$1" store://x 2> err &
	copy=$!
	for ((i = 0; i < 500; i++)); do
		"$sluice" store stat --json > out
		grep -q '"created": 1, ' out && break
		sleep 0.02
	done
	sleep 0.2
}

an_interrupted_copy_leaves_no_blob() {
	local signal number still="size=8000001&fault=stall:300000&times=1000"
	for signal in INT TERM; do
		remote
		interrupt $signal "$sluice" cp "$fault/i$signal/x?$still" store://x
		says "interrupted; 'store://x' was not written"
		clean
	done
	begin "i3/x?$still"
	kill -TERM $copy
	wait $copy
	number=$?
	[ $number = $((128 + 15)) ] || fail "status $number: it did not end by the signal"
	begin "i4/x?$still"
	kill -KILL $copy
	wait $copy 2> /dev/null
	clean
}

a_copy_whose_daemon_is_killed_fails_and_leaves_no_blob() {
	local number
	begin "k2/x?size=8000001&fault=hold:100000"
	kill -KILL "$(pgrep -P "$daemon")"
	exec {server}<> "/dev/tcp/127.0.0.1/$server_plain"
	printf 'GET /_/k2?release HTTP/1.1\r\n\r\n' >&"$server"
	wait $copy
	number=$?
	exec {server}>&-
	[ $number = 1 ] || fail "status $number: $(cat err)"
	says "replaced before the blob was sealed"
	clean
	# A reader does not notice.
	noise 9000000 > from
	status 0 "$sluice" cp from store://x
	taste
	kill -KILL "$(pgrep -P "$daemon")"
	finish
	same from seen
	status 0 "$sluice" store rm x
	clean
}

a_blob_that_was_spilled_is_read_and_replaced() {
	local other=$folder/spilling
	"$SLUICED" --help | grep -q -- --spill || skip "this daemon does not spill"
	mkdir files
	"$SLUICED" --memory 40M --spill files --socket "$other" &
	spilling=$!
	trap 'kill $spilling' EXIT
	export SLUICE_STORE=$other
	for ((i = 0; i < 500; i++)); do
		"$sluice" store stat > /dev/null 2>&1 && break
		sleep 0.02
	done
	for i in a b c; do
		noise 15000000 > $i
		status 0 "$sluice" cp $i store://$i
	done
	status 0 "$sluice" store stat --json
	json out 'j["spilled"] > 0'
	for i in a b c a; do
		"$sluice" cp -q store://$i - | cmp -s - $i || fail "$i"
	done
	status 0 "$sluice" cp -f store://a store://b
	noise 14000000 > d
	status 0 "$sluice" cp -f d store://a
	status 0 "$sluice" cp -f d store://c
	"$sluice" cp -q store://b - | cmp -s - a || fail "b"
	for i in a c; do
		"$sluice" cp -q store://$i - | cmp -s - d || fail "$i"
	done
	status 0 "$sluice" store rm a b c
	clean
}

run_cases
