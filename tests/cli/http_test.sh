#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The command and remote files, from outside: http_test.sh PATH_OF_SLUICE [CASE...]
# shellcheck source=tests/cli/tools.sh
. "$(dirname -- "$0")/tools.sh"

# nginx serves the scratch folder; the objects of the fault server consist of the file pattern.
unset http_proxy https_proxy HTTPS_PROXY all_proxy ALL_PROXY no_proxy NO_PROXY
noise 1048573 > "$scratch/pattern"
coproc servers { exec "$python" "$(dirname -- "$0")/../engine/http/servers.py" "$scratch" --pattern "$scratch/pattern"; }
read -r line <&"${servers[0]}" || line="the servers did not start"
if [[ $line != *nginx=* ]]; then
	wait "$servers_PID"
	[ $? = 77 ] && echo "skipped: $line" && exit 77
	echo "$line"
	exit 1
fi
for word in $line; do declare "server_${word%%=*}=${word#*=}"; done
plain=http://127.0.0.1:$server_nginx
secure=https://127.0.0.1:$server_nginx_tls
fault=http://127.0.0.1:$server_plain
export SLUICE_HTTP_BACKOFF_MS=5 SLUICE_HTTP_BACKOFF_MAX_MS=20 SLUICE_HTTP_STALL_MS=20000 SLUICE_HTTP_RETRY_MS=20000

# Where nginx has a file of the case's folder.
at() {
	echo "$plain/${PWD##*/}/$1"
}

# What an object of the fault server of that size consists of.
object() {
	local i
	for ((i = 0; i <= $1 / 1048573; i++)); do cat "$scratch/pattern"; done | head -c "$1"
}

# The server of S3, with keys that it knows; its objects are the files below the scratch folder.
use_s3() {
	export AWS_ENDPOINT_URL=http://127.0.0.1:$server_s3 AWS_ACCESS_KEY_ID=AKIDTEST AWS_SECRET_ACCESS_KEY=secret/+of=the-test
}

# ---------------------------------------------------------------------------------------------- cp

# Which needs ISA-L.
checksums_of_objects_are_compared() {
	local name size built
	built=$(ldd "$sluice" | grep -c libisal || true)
	# A second request for the opening, after a second, would ask for a byte, of which there is no checksum.
	export SLUICE_HTTP_HEDGE=0
	use_s3
	for size in 0 1 70000 2500000; do
		object $size > from
		for name in sums sums-parts; do
			status 0 "$sluice" cp -f "s3://$name/${PWD##*/}/from" to
			cmp from to || fail "$name $size"
		done
		[ "$built" != 0 ] || continue
		rm to
		status 1 "$sluice" cp "s3://sums-wrong/${PWD##*/}/from" to
		says "the CRC-32C of the bytes that came is "
		says ", and the server says "
		[ ! -e to ] || fail "a wrong copy is there"
	done
	status 0 "$sluice" cp -r s3://sums-echo/ to
	[ "$built" != 0 ] || return 0
	status 1 "$sluice" cp -r s3://sums-echo-wrong/a/ wrong
	says "'s3://sums-echo-wrong/a/1': the CRC-32C of the bytes that came is "
	[ -z "$(find wrong -type f)" ] || fail "$(find wrong)"
}

# Each object of this bucket consists of the bytes of its key.
objects_below_a_prefix_are_copied_down() {
	local backend name names=("a b" a/1 a/2 "b&<>" c+d% $'nl\nx' z/deep/er)
	use_s3
	for backend in multi easy; do
		status 0 "$sluice" cp -r --backend $backend s3://echo/ to-$backend
		for name in "${names[@]}"; do
			printf %s "$name" | cmp - "to-$backend/$name" || fail "$name"
		done
		[ "$(find to-$backend -type f -printf x)" = xxxxxxx ] || fail "$(find to-$backend)"
	done
	status 0 "$sluice" cp -r s3://echo/a to
	[ "$(cd to && echo *)" = "1 2" ] || fail "$(find to)"
	status 1 "$sluice" cp -r s3://echo/a/ to
	says "'to/1' exists; use -f"
	status 0 "$sluice" cp -rf s3://echo/z s3://echo/a/ to
	[ "$(cat to/deep/er)" = z/deep/er ] || fail "$(find to)"
	status 1 "$sluice" cp -r s3://echo/none/ to
	says "there are no objects in 's3://echo/none/'"
	echo text > file
	status 1 "$sluice" cp -r s3://echo/a/ file
	says "'file"
	status 1 "$sluice" cp -r s3://none/a/ to
	says NoSuchBucket
}

a_bucket_and_a_prefix_are_directories() {
	use_s3
	local to name=${PWD##*/}
	noise 5000 > source
	mkdir below into
	for to in "|/source" "/|/source" "/below/|/below/source"; do
		status 0 "$sluice" cp --dry-run source "s3://files${to%|*}"
		[ "$(cat out)" = "source -> s3://files${to#*|}" ] || fail "$(cat out)"
	done
	input=source status 0 "$sluice" cp -q /dev/stdin "s3://files/$name/below/a?b"
	status 0 "$sluice" cp -q source "s3://files/$name/below/"
	status 0 "$sluice" cp -q "s3://files/$name/below/a?b" into
	same source below/source
	same source "into/a?b"
}

a_folder_of_a_web_server_is_refused() {
	mkdir www to
	echo 1 > www/a
	status 2 "$sluice" cp -r "$(at www/)" to
	says "-r: a web server has no list of files: 'http://"
	status 2 "$sluice" cp -rq www "${secure/https/HTTPS}/a?secret" to
	grep -q secret err && fail "$(cat err)"
	[ -z "$(ls to)" ] || fail "$(find to)"
	status 0 "$sluice" cp "$(at www/a)" to
}

names_in_a_list_are_escaped_on_a_terminal_only() {
	use_s3
	status 0 "$sluice" ls s3://echo/nl
	[ "$(tail -c 5 out)" = $'nl\nx' ] || fail "in a pipe: $(cat -v out)"
	command -v script > /dev/null || skip "script(1) is missing"
	timeout 60 script -qec "'$sluice' ls s3://echo/nl" /dev/null < /dev/null > terminal
	grep -q 'nl\\u000ax' terminal || fail "on a terminal: $(cat -v terminal)"
}

an_interrupt_ends_a_list_that_does_not_come() {
	export AWS_ACCESS_KEY_ID=AKIDTEST AWS_SECRET_ACCESS_KEY=secret/+of=the-test
	"$python" - "$sluice" <<-'END' || fail "the list was waited for"
	import os, signal, socket, subprocess, sys
	listener = socket.create_server(("127.0.0.1", 0))
	os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{listener.getsockname()[1]}"
	command = subprocess.Popen([sys.argv[1], "cp", "-r", "s3://echo/a/", "to"])
	silent = listener.accept()
	command.send_signal(signal.SIGINT)
	try:
	    sys.exit(command.wait(10) != -signal.SIGINT)
	finally:
	    command.kill()
	END
}

a_copy_from_a_server_holds_the_same_bytes() {
	local n backend
	for n in 0 1 4097 20000001; do
		noise $n > from
		for backend in multi easy; do
			rm -f to
			SLUICE_REMOTE_BACKEND=$backend status 0 "$sluice" cp "$(at from)" to
			same from to
		done
		SLUICE_CA_BUNDLE=$server_ca status 0 "$sluice" cp -f "$secure/${PWD##*/}/from" to
		same from to
		SLUICE_CA_BUNDLE=$server_ca status 0 "$sluice" cp -f --http2 "$secure/${PWD##*/}/from" to
		same from to
		"$sluice" cp -q "$(at from)" - | cmp -s - from || fail "$n bytes to a pipe"
	done
	status 0 "$sluice" cp -f --backend easy --checksum "$(at from)" to
	[ "$(cat out)" = "$("$sluice" cp -qf --checksum from to)" ] || fail "$(cat out)"
	grep -qE '^19\.1 MiB in [0-9.]+ s, [0-9.]+ [GMk]B/s$' err || fail "summary: $(cat err)"
}

a_copy_to_a_server_holds_the_same_bytes() {
	local n
	for n in 0 1 4097 20000001; do
		noise $n > from
		rm -f to
		status 0 "$sluice" cp from "$(at to)"
		same from to
		rm -f to
		status 0 "$sluice" cp "$(at from)" "$(at to)"
		same from to
	done
}

sparse_file_is_sent_with_its_length() {
	holes from
	status 0 "$sluice" cp -f from "$fault/${PWD##*/}/from?put=length"
	status 0 "$sluice" cp "$fault/${PWD##*/}/from?stored=1" to
	same from to
	input=from status 0 "$sluice" cp -f - "$fault/${PWD##*/}/again?put=length"
	status 1 "$sluice" cp -f <(cat from) "$fault/${PWD##*/}/more?stored=1"
	says "no length"
	cat from | "$sluice" cp -f - "$fault/${PWD##*/}/more?stored=1" 2> err && fail "a pipe has a length"
	says "copy it to a file first"
	status 1 "$sluice" stat "$fault/${PWD##*/}/more?stored=1"
}

a_copy_to_a_server_overwrites_only_with_force() {
	echo old > to
	echo new > from
	status 1 "$sluice" cp from "$(at to)"
	says "-f"
	[ "$(cat to)" = old ] || fail "it was overwritten"
	status 0 "$sluice" cp -f from "$(at to)"
	same from to
	status 1 "$sluice" cp -f "$(at to)" "$(at to)"
	says "both SRC and DST"
	same from to
}

a_directory_as_target_gets_the_name_in_the_uri() {
	mkdir into
	noise 5000 > 'from it'
	status 0 "$sluice" cp "$(at from%20it)" into
	# As it stands in the URI: a %2F must not become a folder.
	same 'from it' into/from%20it
	status 0 "$sluice" cp "$fault/id/name?size=5000" into/
	[ -s into/name ] || fail "$(ls into)"
}

a_server_without_ranges_is_copied_from_in_one_go() {
	object 3000001 > from
	status 0 "$sluice" cp "$fault/id/x?size=3000001&ranges=no" to
	same from to
	status 0 "$sluice" cp -f "$fault/id/x?size=3000001&ranges=no&head=nolength&length=no" to
	same from to
	"$sluice" cp -q "$fault/id/x?size=3000001&ranges=no&length=chunked" - | cmp -s - from ||
		fail "to a pipe"
}

trouble_that_passes_is_survived() {
	object 8000001 > from
	status 0 "$sluice" cp "$fault/id1/x?size=8000001&fault=status:503&times=2" to
	same from to
	status 0 "$sluice" cp -f "$fault/id2/x?size=8000001&fault=reset:300000&times=3" to
	same from to
	SLUICE_HTTP_STALL_MS=1000 status 0 "$sluice" cp -f "$fault/id3/x?size=8000001&fault=stall:300000&times=1" to
	same from to
}

trouble_that_stays_fails_the_copy_and_leaves_nothing() {
	mkdir into
	echo old > into/old
	status 1 "$sluice" cp "$(at missing)" into/to
	says "404"
	status 1 "$sluice" cp "$fault/id/x?fault=status:403&text=not+for+you" into/to
	says "not for you"
	SLUICE_HTTP_RETRY_MS=1500 status 1 "$sluice" cp "$fault/id/x?size=8000001&fault=status:503&at=7000000" into/to
	says "503"
	status 1 "$sluice" cp -f "$fault/id/x?size=8000001&fault=range:shifted&at=7000000" into/old
	says "another part"
	status 1 "$sluice" cp -f "$fault/id4/x?size=8000001&change=2" into/old
	status 1 "$sluice" cp "http://127.0.0.1:1/x" into/to
	grep -q "^sluice: 'http://127.0.0.1:1/x': .*; trying again" err || fail "nothing tells that a refused connection is tried again: $(cat err)"
	status 1 "$sluice" cp "http://127.0.0.1:99999/x" into/to
	status 1 "$sluice" cp "http://" into/to
	holds into old
	[ "$(cat into/old)" = old ] || fail "the old file is gone"
	noise 500000 > from
	status 1 "$sluice" cp -f from "$fault/id/x?fault=status:403&on=PUT&text=no+room"
	says "no room"
	status 1 "$sluice" cp from "$plain/forbidden/to"
	says "not for you"
}

a_certificate_is_verified_unless_told_otherwise() {
	noise 5000 > from
	status 1 "$sluice" cp "$secure/${PWD##*/}/from" to
	says certificate
	[ ! -e to ] || fail "it was copied"
	SLUICE_TLS_INSECURE=1 status 0 "$sluice" cp "$secure/${PWD##*/}/from" to
	same from to
	SLUICE_TLS_INSECURE=1 status 0 "$sluice" doctor
	grep -i insecure out | grep -q SLUICE_TLS_INSECURE || fail "doctor does not say so"
	status 0 "$sluice" doctor --json
	json out '{s["variable"]: s for s in j["settings"]}["SLUICE_TLS_INSECURE"]["value"] == "0"'
}

an_interrupted_remote_copy_leaves_nothing() {
	local began=$SECONDS
	mkdir into
	for backend in multi easy; do
		SLUICE_REMOTE_BACKEND=$backend interrupt INT "$sluice" cp "$fault/id/x?size=50000000&pace=20000:50" into/to
		says "interrupted"
		holds into
	done
	[ $((SECONDS - began)) -lt 60 ] || fail "it took $((SECONDS - began)) s"
}

a_body_without_ranges_is_streamed() {
	local options
	for options in "" "&head=405&length=chunked" "&head=nolength&length=no"; do
		local uri="$fault/${PWD##*/}/x?size=150000000&ranges=no$options"
		status 0 "$python" -IS - "$sluice" "$uri" <<- 'END'
			import resource, subprocess, sys
			subprocess.run([sys.argv[1], "cp", "-q", sys.argv[2], "/dev/null"], check=True)
			most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
			sys.exit(most > 110000 and f"{most} KiB of memory")
		END
	done
	# What came goes on before the end has come.
	uri="$fault/${PWD##*/}0/x?size=200000000&ranges=no&length=chunked&pace=900000:300"
	SLUICE_HTTP_STALL_MS=20000 timeout 20 "$sluice" cp -q "$uri" - | head -c 1000000 > to
	cmp -n 1000000 to "$scratch/pattern" || fail "nothing came before the end"
}

a_copy_that_waits_for_a_server_can_be_interrupted() {
	local began=$SECONDS late="$fault/late/x?latency=90000" options n=0
	mkdir into
	noise 5000 > from
	export SLUICE_HTTP_STALL_MS=120000
	for options in "$late into/to" "from $late" "-f from $late"; do
		env --default-signal=INT "$sluice" cp $options 2> err &
		n=$((n + 1))
		await came late $n
		kill -INT $!
		wait $!
		[ $? = 130 ] || fail "it was not interrupted: $options"
		holds into
	done
	[ $((SECONDS - began)) -lt 60 ] || fail "it took $((SECONDS - began)) s"
}

an_interrupted_upload_is_not_written() {
	interrupt INT "$sluice" cp "$fault/id/x?size=50000000&pace=20000:50" "$(at to)"
	says "interrupted; '$(at to)' was not written"
	[ ! -e to ] || fail "there is something"
}

# counted BUCKET WHAT N: the server of S3 has answered N requests of that kind, or N uploads are "open".
counted() {
	"$sluice" cp -q "s3://state/$1" - | grep -qx "$2 $3"
}

an_interrupt_of_an_upload_in_parts_aborts_it() {
	local bucket=held-${PWD##*/} command
	use_s3
	noise 20000001 > from
	for command in cp bench; do
		[ $command = bench ] && set -- bench write --size 200M || set -- cp from
		env --default-signal=INT "$sluice" "$@" "s3://$bucket/${PWD##*/}/$command" 2> err > out &
		await counted "$bucket" open 1
		kill -INT $!
		wait $!
		[ $? = 130 ] || fail "$command was not interrupted: $(cat err)"
		counted "$bucket" open 0 || fail "$command left an upload"
		[ ! -e $command ] || fail "$command is there"
	done
	counted "$bucket" DELETE_uploadId 2 || fail "$("$sluice" cp -q "s3://state/$bucket" -)"
}

# The server has one object, "source", and does not answer a request of the kind. An interrupt has two seconds, more of them
# have none.
an_interrupt_ends_an_upload_of_which_the_server_says_nothing() {
	export AWS_ACCESS_KEY_ID=AKIDTEST AWS_SECRET_ACCESS_KEY=secret/+of=the-test
	noise 20000001 > from
	"$python" - "$sluice" <<-'END' || fail "it was waited for"
	import http.server, json, os, signal, subprocess, sys, threading, time
	class Server(http.server.BaseHTTPRequestHandler):
	    protocol_version = "HTTP/1.1"
	    def answer(self):
	        came.append(kind := self.command)
	        if kind == silent:
	            over.wait()
	        self.rfile.read(int(self.headers.get("Content-Length", 0)))
	        text = b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
	        there = self.path.endswith("source")
	        self.send_response(404 if kind == "HEAD" and not there else 204 if kind == "DELETE" else 200)
	        if there:
	            self.send_header("Content-Length", str(6 << 30))
	            self.send_header("ETag", '"tag"')
	            self.send_header("Accept-Ranges", "bytes")
	        elif kind == "POST":
	            self.send_header("Content-Length", str(len(text)))
	        self.end_headers()
	        self.wfile.write(text if kind == "POST" else b"")
	    do_HEAD = do_POST = do_PUT = do_DELETE = answer
	    def log_message(self, *text):
	        pass
	server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
	server.daemon_threads, over = True, threading.Event()
	threading.Thread(target=server.serve_forever, daemon=True).start()
	os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{server.server_port}"
	table = json.dumps({"a": {"dtype": "U8", "shape": [19999001], "data_offsets": [0, 19999001]}}).encode().ljust(992)
	with open("m.safetensors", "wb") as file:
	    file.write(len(table).to_bytes(8, "little") + table + bytes(19999001))
	for command, silent, signals, dropped in (
	        (["cp", "from"], "POST", 1, False), (["cp", "from"], "POST", 30, False),
	        (["cp", "s3://bucket/source"], "PUT", 1, True), (["tensors", "cp", "m.safetensors"], "PUT", 1, True)):
	    came, to = [], "s3://bucket/a/x" + ".safetensors" * dropped
	    process = subprocess.Popen([sys.argv[1], *command, to])
	    while silent not in came and process.poll() is None:
	        time.sleep(0.01)
	    begun = time.monotonic()
	    for _ in range(signals):
	        if process.poll() is None:
	            process.send_signal(signal.SIGINT)
	            time.sleep(0.1)
	    try:
	        status = process.wait(15)
	    except subprocess.TimeoutExpired:
	        process.kill()
	        sys.exit(f"{command}: silent about {silent}, {signals} signals: still there")
	    took = time.monotonic() - begun
	    assert status == -signal.SIGINT and took < (8 if signals == 1 else 1.8), (command, silent, status, took)
	    assert ("DELETE" in came) == dropped, came
	END
	[ "$(ls -A)" = $'from\nm.safetensors' ] || fail "$(ls -A)"
}

# -------------------------------------------------------------------------------------- bench, stat

stat_tells_what_a_server_says() {
	noise 12345 > from
	status 0 "$sluice" stat --json "$(at from)"
	json out 'j["length"] == 12345 and j["backend"] == "multi"'
	json out "j['modified_ns'] // 10**9 == $(stat -c %Y from)"
	SLUICE_REMOTE_BACKEND=easy status 0 "$sluice" stat --json "$(at from)"
	json out 'j["backend"] == "easy"'
	status 0 "$sluice" stat "$(at from)"
	grep -q 12345 out || fail "$(cat out)"
	status 0 "$sluice" stat --json "$fault/id/x?size=5&ranges=no&head=nolength&length=no"
	json out 'j["length"] is None'
	status 1 "$sluice" stat "$(at missing)"
	says "404"
}

bench_reads_from_a_server() {
	noise 3000001 > from
	status 0 "$sluice" bench read "$(at from)" --op-size 65537 --depth 8 --repeat 2 --json
	json out 'j["bytes"] == 3000001 and j["operations"] == 46 and j["backend"] == "multi"'
	status 0 "$sluice" bench read "$(at from)" --backend easy --random --op-size 4K --size 1M --json
	json out 'j["operations"] == 256 and j["backend"] == "easy"'
	status 1 "$sluice" bench read "$(at missing)"
	says "404"
}

bench_writes_to_a_server() {
	local uri
	use_s3
	for uri in "$(at to)" "s3://files/${PWD##*/}/object"; do
		status 0 "$sluice" bench write "$uri" --size 17000001 --op-size 1M --repeat 2 --json
		json out 'j["direction"] == "write" and j["bytes"] == 17000001 and j["repeat"] == 2 and j["backend"] == "multi"'
		[ "$(stat -c %s "${uri##*/}")" = 17000001 ] || fail "$(stat -c %s "${uri##*/}") bytes"
		status 1 "$sluice" bench write "$uri" --size 1M
		says "exists"
		status 1 "$sluice" bench write "$uri" -f --size 1M --random --op-size 4K
		says "--random: '$uri' is remote"
	done
	status 0 "$sluice" bench write "$uri" -f --size 3000001 --memory emulated --depth 1 --repeat 1
	[ "$(stat -c %s "${uri##*/}")" = 3000001 ] || fail "$(stat -c %s "${uri##*/}") bytes"
	status 1 "$sluice" bench write "$(at to)" -f --size 3000001 --memory emulated --repeat 1
	says "memory of the host"
	[ "$(head -c 100000 to | gzip | wc -c)" -gt 90000 ] || fail "the bytes are no noise"
}

bench_reads_whole_what_has_no_ranges() {
	local uri="$fault/id/x?size=3000001&ranges=no"
	status 0 "$sluice" bench read "$uri" --repeat 2 --json
	json out 'j["bytes"] == 3000001 and j["operations"] == 1'
	status 1 "$sluice" bench read "$uri" --op-size 1M
	[ "$(wc -l < err)" = 1 ] || fail "$(cat err)"
	says "no ranges"
}

# ---------------------------------------------------------------------------------- identity, limits

# The requests of an object of the fault server.
asked() {
	curl -s "$fault/_/$1"
}
came() { # came ID N: N of them have come
	[ "$(asked "$1" | grep -c connection=)" -ge "$2" ]
}

headers_are_sent_with_each_request() {
	local name=${PWD##*/}
	object 3000001 > from
	status 0 "$sluice" cp --header "X-Test: a b" --header "Authorization: Bearer s3cret" "$fault/$name/x?size=3000001" to
	same from to
	[ "$(asked "$name" | grep -c 'authorization=Bearer s3cret .*x-test=a b')" = "$(asked "$name" | grep -c connection=)" ] ||
		fail "$(asked "$name")"
	status 0 "$sluice" cp -f --header "X-Test: put" from "$fault/${name}2/x"
	asked "${name}2" | grep -q 'PUT .*x-test=put' || fail "$(asked "${name}2")"
	status 0 "$sluice" stat --header "X-Test: stat" "$fault/${name}3/x"
	status 0 "$sluice" bench read --repeat 1 --header "X-Test: stat" "$fault/${name}3/x"
	asked "${name}3" | grep connection= | grep -qv x-test=stat && fail "$(asked "${name}3")"
	status 1 "$sluice" cp -f --header "Host: elsewhere" "$fault/${name}4/x" to
	says "'Host' is set by sluice itself"
	[ "$(asked "${name}4" | grep -c connection=)" = 0 ] || fail "it was asked"
}

doctor_does_not_show_the_token() {
	SLUICE_HTTP_BEARER=s3cret status 0 "$sluice" doctor --json
	grep -q s3cret out && fail "$(grep s3cret out)"
	json out '{s["variable"]: s for s in j["settings"]}["SLUICE_HTTP_BEARER"]["value"] == "set"'
}

stat_shows_where_it_was_found_without_a_query() {
	local to="$fault/${PWD##*/}/there?size=5000"
	local uri="$fault/${PWD##*/}b/x?size=5000&fault=redirect:302&on=HEAD,GET&to=${to//[&?]/%3F}"
	status 0 "$sluice" stat "$uri"
	grep -qxF "found at     ${to%%\?*}?..." out || fail "$(cat out)"
	status 0 "$sluice" stat --json "$uri"
	json out "j['found_at'] == '${to%%\?*}?...'"
	status 0 "$sluice" stat --json "$to"
	json out 'j["found_at"] is None'
}

a_limit_of_the_server_is_shown_by_the_bar() {
	local uri="$fault/${PWD##*/}/x?size=9000001&quota=3:2"
	object 9000001 > from
	TERM=xterm timeout 60 script -qec "'$sluice' cp '$uri' to" /dev/null < /dev/null > terminal
	same from to
	grep -q 'waiting [12] s: the server limits requests (429)' terminal || fail "$(tr '\r' '\n' < terminal)"
	status 0 "$sluice" cp -f "$fault/${PWD##*/}b/x?size=5000&fault=status:429&retry_after=1&times=1&on=HEAD" to
	grep -q 'the server limits requests (HTTP 429): waiting for 1 s' err || fail "$(cat err)"
	status 0 "$sluice" cp -qf "$fault/${PWD##*/}c/x?size=5000&fault=status:429&retry_after=1&times=1&on=HEAD" to
	[ ! -s err ] || fail "$(cat err)"
	SLUICE_HTTP_RATELIMIT_MS=10 status 1 "$sluice" cp -f "$uri" to
	says SLUICE_HTTP_RATELIMIT_MS
}

# ------------------------------------------------------------------------------------------ the log

the_log_shows_requests_and_no_password() {
	local uri="http://me:s3cret@${plain#http://}/${PWD##*/}/from"
	noise 5000 > from
	SLUICE_LOG=debug status 0 "$sluice" cp -q "$uri" to
	same from to
	grep -q HEAD err && grep -q GET err && grep -q 206 err || fail "$(cat err)"
	grep -q s3cret err && fail "$(grep s3cret err)"
	status 0 "$sluice" cp -qf "$uri" to
	[ ! -s err ] || fail "$(cat err)"
	status 1 "$sluice" cp "${uri}missing" to2
	grep -q s3cret err && fail "$(cat err)"
	status 0 "$sluice" stat "$uri"
	grep -q s3cret out err && fail "$(cat out)"
	status 0 "$sluice" stat --json "$uri"
	grep -q s3cret out err && fail "$(cat out)"
	status 0 "$sluice" cp -f --checksum "$uri" to
	grep -q s3cret out err && fail "$(cat out err)"
	status 0 "$sluice" bench read --repeat 1 "$uri"
	grep -q s3cret out err && fail "$(cat out err)"
	status 0 "$sluice" bench read --repeat 1 --json "$uri"
	grep -q s3cret out err && fail "$(cat out err)"
	status 1 "$sluice" bench read --cold "$uri"
	grep -q s3cret out err && fail "$(cat out err)"
	status 0 "$sluice" doctor "$uri"
	grep -q s3cret out err && fail "$(cat out err)"
	grep -q 'not for remote files' out || fail "$(cat out)"
	status 0 "$sluice" doctor --json "$uri"
	grep -q s3cret out err && fail "$(cat out err)"
	return 0
}

# ---------------------------------------------------------------------------------------- settings

wrong_settings_are_named() {
	local line
	while read -r line; do
		env "$line" "$sluice" stat "$plain/" > out 2> err
		[ $? = 1 ] || fail "'$line' was taken"
		says "${line%%=*}"
	done <<- 'END'
		SLUICE_REMOTE_BACKEND=both
		SLUICE_MAX_CONNECTIONS=0
		SLUICE_MAX_CONNECTIONS=many
		SLUICE_HTTP_ATTEMPTS=0
		SLUICE_HTTP_BACKOFF_MS=-1
		SLUICE_HTTP_STALL_MS=soon
		SLUICE_HTTP_CONNECT_MS=x
		SLUICE_HTTP_REACTORS=100000
		SLUICE_TLS_INSECURE=perhaps
		SLUICE_LOG=loud
	END
	noise 5000 > from
	status 2 "$sluice" stat --backend unknown "$(at from)"
}

# ---------------------------------------------------------------------------------------------- datasets

datasets_of_servers_are_listed_described_and_copied() {
	local uri
	/usr/bin/python3 -c 'import h5py' 2> /dev/null || skip "there is no h5py"
	use_s3
	/usr/bin/python3 - <<- 'END'
		import h5py, numpy
		u = numpy.arange(60 * 70 * 30, dtype="f4").reshape(60, 70, 30)
		with h5py.File("a?b#1.h5", "w") as file:
		    file.create_dataset("in/u", data=u, chunks=(7, 10, 30), compression="gzip")
		numpy.save("wanted.npy", u)
	END
	for uri in "$(at 'a%3Fb%231.h5')" "s3://files/${PWD##*/}/a?b#1.h5"; do
		status 0 "$sluice" ls -r "$uri#/"
		grep -q '504000  <f4     \[60, 70, 30\] *  /in/u  deflate' out || fail "$(cat out)"
		status 0 "$sluice" stat "$uri#/in/u"
		grep -q 'shape *\[60, 70, 30\]' out || fail "$(cat out)"
		status 0 "$sluice" cp -q "$uri#/in/u" copy.npy
		same copy.npy wanted.npy
		rm copy.npy
		status 0 "$sluice" bench read --repeat 1 "$uri#/in/u"
		status 1 "$sluice" stat "$uri#/not"
		says not
	done
	status 1 "$sluice" ls "$(at none.h5)#/"
	says none.h5
}

run_cases
