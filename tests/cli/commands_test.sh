#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The commands but cp, from outside: commands_test.sh PATH_OF_SLUICE [CASE...]
# shellcheck source=tests/cli/tools.sh
. "$(dirname -- "$0")/tools.sh"

# ------------------------------------------------------------------------------------------ verify

sha256_lines_are_those_of_sha256sum() {
	local name
	noise 9000001 > from
	noise 1 > ' -a\b'$'\n''c'
	: > empty
	sha256sum -- from ' '* empty > expected
	status 0 "$sluice" verify from ' '* empty
	same out expected
	grep -qE '^3 files, 8\.6 MiB in ' err || fail "$(cat err)"
	status 0 "$sluice" verify -q --sha256 -- from ' '* empty
	[ ! -s err ] || fail "$(cat err)"
	sha256sum --check --quiet out || fail "sha256sum does not read it"
	status 0 "$sluice" verify --check expected
	grep -qx 'from: OK' out && grep -qx 'empty: OK' out && [ "$(grep -c OK out)" = 3 ] || fail "$(cat out)"
	sha256sum -b from | sed 's,^[^ ]*,\U&,' > binary
	input=binary status 0 "$sluice" verify -c -
}

the_xxh3_finds_a_flipped_bit() {
	noise 5000000 > from
	noise 10 > other
	status 0 "$sluice" verify --xxh3 from other
	cp out sums
	[ "$(awk '{print length($1)}' sums | sort -u)" = 32 ] || fail "$(cat sums)"
	status 0 "$sluice" verify -q --uncached --check sums
	[ ! -s out ] || fail "$(cat out)"
	printf '\%o' $((0x$(od -An -tx1 -j 4000000 -N 1 from | tr -d ' ') ^ 4)) > byte
	printf "$(cat byte)" | dd of=from bs=1 seek=4000000 conv=notrunc status=none
	status 1 "$sluice" verify --check sums
	grep -q '^from: FAILED' out && grep -qx 'other: OK' out || fail "$(cat out)"
	# As xxhsum -H2 prints them.
	: > from
	seq 2000000 > other
	status 0 "$sluice" verify -q --xxh3 from other
	printf '%s\n' "99aa06d3014798d86001c324468d497f  from" "8f31e26b593645beb4a961057df23e26  other" > expected
	same out expected
}

sums_of_cp_are_checked() {
	noise 5000001 > from
	"$sluice" cp -q --checksum from to > sums
	status 0 "$sluice" verify -q --check sums
	[ ! -s out ] || fail "$(cat out)"
	status 0 "$sluice" verify --check sums
	grep -qx 'to: OK' out || fail "$(cat out)"
	echo x >> to
	status 1 "$sluice" verify -q --check sums
	grep -q '^to: FAILED' out || fail "$(cat out)"
	{ echo "# by somebody" && echo && "$sluice" verify -q --xxh3 from; } > sums
	status 0 "$sluice" verify --check sums
	grep -qx 'from: OK' out && [ "$(wc -l < out)" = 1 ] || fail "$(cat out)"
	echo "# nothing" > sums
	status 1 "$sluice" verify --check sums
	says "no line"
	status 2 "$sluice" cp from to.other --version-id 1
	says "no URI of one"
	mkdir -p listed/sub && echo 12345 > listed/a && touch listed/sub/b
	"$sluice" ls -r listed | awk '{ print $1, $NF }' > out
	[ "$(cat out)" = $'6 listed/a\n0 listed/sub/b' ] || fail "$(cat out)"
	status 1 "$sluice" ls absent
	says "cannot list 'absent'"
	status 1 "$sluice" ls 'http://me:secret@127.0.0.1:1/a?b=c'
	says "'http://127.0.0.1:1/a?...': only folders and s3:// URIs have lists"
	status 2 "$sluice" rm -r --version-id=1 s3://b/x
	says "only for a single object"
	status 2 "$sluice" ls store://
	says "sluice store ls"
	cp from "a) = b"
	cp from $'new\nline'
	sha256sum --tag from "a) = b" $'new\nline' > sums
	status 0 "$sluice" verify --check sums
	[ "$(grep -c ': OK$' out)" = 3 ] || fail "$(cat out)"
	md5sum --tag from > sums
	printf 'not \e[31m red\n' >> sums
	status 1 "$sluice" verify --check sums
	says "is neither 'HEX  NAME' nor 'SHA256 (NAME) = HEX'"
	grep -q "'not .*\[31m red'" err && ! grep -q $'\e' err || fail "$(cat err)"
}

names_are_escaped_where_lines_are_printed_and_read() {
	local name line
	noise 100 > from
	for name in $'evil: OK\nb' 'back\slash' $'\r' 'plain' '\' $'\n' 'a\nb' ' '; do
		status 0 "$sluice" cp -q --checksum from "$name"
		cp out sums
		[ "$(wc -l < sums)" = 1 ] || fail "$(cat sums)"
		status 0 "$sluice" verify --check sums
		[ "$(wc -l < out)" = 1 ] && grep -q ': OK$' out || fail "$(cat out)"
		status 0 "$sluice" verify -q --xxh3 "$name"
		cp out line
		status 0 "$sluice" verify --check line
		# The same name in each, with the backslash in front of the line.
		line=$(cut -c 35- sums)
		case $(head -c 1 sums) in '\') line="\\${line:1}" ;; esac
		[ "$(cat out)" = "$line: OK" ] || fail "$(cat out), not $line: OK"
		[ "$(cut -c 34- line)" = "$(cut -c 34- sums)" ] || fail "$(cat line), and $(cat sums)"
		# Verdicts with no line break in their name differ between versions of sha256sum.
		case $name in *$'\n'*) ;; *) continue ;; esac
		sha256sum "./$name" > theirs
		sed 's/[0-9a-f]\{64\}/'"$(printf %064d 0)"'/' theirs > wrong
		sha256sum --check wrong > expected 2> err
		sed -i 's,  \./,  ,' wrong
		status 1 "$sluice" verify --check wrong
		[ "$(sed 's,\./,,' expected)" = "$(cat out)" ] || fail "$(cat out), not $(cat expected)"
	done
	printf '\\%064d  x\\y\n\\%064d  x\\\n' 0 0 > sums
	status 1 "$sluice" verify --check sums
	[ "$(grep -c 'is neither' err)" = 2 ] || fail "$(cat err)"
}

files_and_lines_that_are_missing_are_failures() {
	noise 10 > from
	status 1 "$sluice" verify --xxh3 nothing from
	says "nothing"
	grep -q ' from$' out || fail "it stopped at the first failure"
	cp out sums
	sed 's/from/gone/' out >> sums
	status 1 "$sluice" verify -c sums
	grep -qx 'from: OK' out && grep -qx 'gone: FAILED' out || fail "$(cat out)"
	echo 'abc  from' > sums
	status 1 "$sluice" verify -c sums
	says "'sums': 'abc  from' is neither"
	: > sums
	status 1 "$sluice" verify -c sums
	says "'sums' has no line"
	status 1 "$sluice" verify -c missing
	says "missing"
}

# -------------------------------------------------------------------------------------- bench, stat

bench_moves_what_it_says() {
	noise 3000001 > from
	status 0 "$sluice" bench read from --op-size 4097 --depth 3 --repeat 4 --json
	json out 'j["bytes"] == 3000001 and j["repeat"] == 4 and len(j["seconds"]) == 4'
	json out 'j["operations"] == 733 and j["op_size"] == 4097 and j["depth"] == 3'
	json out 'j["backend"] == "auto" and j["chunk"] == 1048576 and j["direction"] == "read"'
	json out '0 < j["bytes_per_second"]["min"] <= j["bytes_per_second"]["median"]
		<= j["bytes_per_second"]["max"]'
	json out 'abs(j["bytes_per_second"]["max"] * min(j["seconds"]) / j["bytes"] - 1) < 1e-3'
	json out 'j["cpu_seconds_per_gb"] >= 0 and j["operations_per_second"] > 0'
	status 0 "$sluice" bench write to --size 1000001 --op-size 64K --repeat 2 --json --sync
	json out 'j["bytes"] == 1000001 and j["sync"] is True'
	[ "$(stat -c %s to)" = 1000001 ] || fail "the file has $(stat -c %s to) bytes"
	[ "$(head -c 100000 to | gzip | wc -c)" -gt 90000 ] || fail "what it wrote is no noise"
	status 0 "$sluice" bench read from --random --op-size 4K --size 8M --buffer full --chunk 8K \
		--backend posix --cold --huge-pages --json
	json out 'j["operations"] == 2048 and j["chunk"] == 8192 and j["backend"] == "posix"'
	json out 'j["random"] and j["cold"] and j["buffer"] == "full" and "resident" in j'
	status 0 "$sluice" bench read from --repeat 2
	grep -q median out || fail "$(cat out)"
}

bench_uses_the_memory_of_a_device() {
	local order
	noise 9000001 > from
	for order in host stream; do
		status 0 "$sluice" bench read from --memory emulated:1 --order $order --op-size 1M --repeat 2 --json
		json out "j['bytes'] == 9000001 and j['memory'] == 'emulated:1' and j['order'] == '$order'"
		status 0 "$sluice" bench write to --memory emulated --order $order --size 5000001 --repeat 1 -f
		[ "$(stat -c %s to)" = 5000001 ] || fail "the file has $(stat -c %s to) bytes"
		[ "$(head -c 100000 to | gzip | wc -c)" -gt 90000 ] || fail "what it wrote is no noise"
	done
	status 0 "$sluice" bench read from --memory emulated --order stream --random --op-size 4K --size 4M --repeat 1
	grep -q "in memory of emulated:0, in stream order" out || fail "$(cat out)"
}

# "device" is whatever is real; where nothing is, it says why.
a_device_that_is_not_there_is_named() {
	local name
	noise 5000 > from
	for name in emulated:2 emulated:18446744073709551616 emulate dev Device; do
		status 1 "$sluice" bench read from --memory $name
		says "there is no device \"$name\""
		status 1 "$sluice" cp --through $name from to
		says "--through: there is no device \"$name\""
	done
	status 1 "$sluice" bench read from --memory emulated:2
	says "emulated:0, emulated:1"
	[ ! -e to ] || fail "something was copied"
	"$sluice" bench read from --memory device > out 2> err && skip "there is a device"
	status 1 "$sluice" bench read from --memory device:1 --order stream
	says "there is no device: "
	says '"emulated" is one made of threads'
	status 1 "$sluice" bench read from --memory cuda:1
	says 'there is no device "cuda:1": '
}

bench_destroys_nothing_without_force() {
	noise 5000 > file
	cp file before
	status 1 "$sluice" bench write file --size 1M
	says "use -f to overwrite"
	status 1 "$sluice" bench write /dev/zero --size 1M
	status 0 "$sluice" bench write /dev/null --size 1M --repeat 1
	same file before
	status 0 "$sluice" bench write -f file --size 1M --repeat 1
	[ "$(stat -c %s file)" = $((1 << 20)) ] || fail "$(stat -c %s file) bytes"
}

stat_tells_what_is_known() {
	truncate -s 5000000 from
	chmod 640 from
	status 0 "$sluice" stat --json from
	json out 'j["length"] == 5000000 and j["permissions"] == "0640" and j["allocated"] < 5000000'
	json out "j['modified_ns'] // 10**9 == $(stat -c %Y from)"
	status 0 "$sluice" stat from
	grep -q 'sparse' out || fail "$(cat out)"
	status 0 "$sluice" stat --json /proc/cpuinfo
	json out 'j["length"] is None'
	status 1 "$sluice" stat .
	says "is a directory"
	status 1 "$sluice" stat /dev/null
	status 1 "$sluice" stat nothing
}

json_holds_any_name() {
	local name=$'quote" back\\slash\ttab\nline \xc3\xa9 \xff\xfe \xed\xa0\x80'
	echo text > "$name"
	status 0 "$sluice" stat --json "$name"
	json out 'j["uri"].startswith("quote\" back\\slash\ttab\nline \u00e9 \ufffd")'
}

# ------------------------------------------------------------------------------------ doctor, usage

doctor_lists_machine_features_and_settings() {
	status 0 "$sluice" doctor --json .
	json out '{"kernel", "cores", "memory", "NUMA", "memlock", "open files", "GPU readers"}
		== {m["name"] for m in j["machine"]}'
	json out '{w["name"]: w["usable"] for w in j["writer"]}.keys()
		>= {"HDF5", "deflate", "zstd", "lz4", "bitshuffle-lz4"}'
	json out 'all("plugin" in w["detail"] for w in j["writer"]
		if w["usable"] and w["name"] in ("zstd", "lz4", "bitshuffle-lz4"))'
	json out 'j["error"] is None and j["features"] and j["path"]["error"] is None'
	json out 'all(s["value"] is not None and s["source"] == "default" for s in j["settings"])'
	json out 'j["unknown_variables"] == []'
	status 0 env AWS_ACCESS_KEY_ID=AK AWS_SECRET_ACCESS_KEY=SK "$sluice" doctor --s3 --json
	json out 'j["s3"] == "there are keys"'
	status 1 env -u AWS_ACCESS_KEY_ID AWS_CONFIG_FILE=/dev/null AWS_SHARED_CREDENTIALS_FILE=/dev/null AWS_EC2_METADATA_DISABLED=1 \
		"$sluice" doctor --s3
	grep -q "asking for credentials of S3" err && grep -q AWS_ACCESS_KEY_ID err || fail "$(cat err)"
	status 0 "$sluice" doctor
	grep -q SLUICE_PIECE_BYTES out || fail "$(cat out)"
	holds . err out
}

a_list_goes_on_behind_a_folder_that_cannot_be_read() {
	[ "$(id -u)" = 0 ] || skip "only root makes folders of another user"
	local as=(setpriv --reuid 4321 --regid 4321 --clear-groups)
	mkdir -p listed/closed listed/open && touch listed/closed/x listed/open/y
	chmod 700 listed/closed
	chmod 711 "$scratch"
	chmod 777 .
	"${as[@]}" bash -c 'cd "$1" && "$2" --version' - "$PWD" "$sluice" > /dev/null 2>&1 ||
		skip "no other user gets here"
	status 1 "${as[@]}" "$sluice" ls -r listed
	says "cannot list 'listed/closed': Permission denied"
	grep -q "listed/open/y" out || fail "$(cat out)"
}

doctor_knows_wrong_and_unknown_variables() {
	SLUICE_WORKERS=2 SLUICE_WORKRES=3 SLUICE_SOMETHING=1 SLUICE_STORE=/nobody SLUICE_STORE_OWNER=1 status 0 "$sluice" doctor --json
	json out '{s["variable"]: s for s in j["settings"]}["SLUICE_WORKERS"]["source"] == "environment"'
	json out '{v["variable"]: v["suggestion"] for v in j["unknown_variables"]}
		== {"SLUICE_WORKRES": "SLUICE_WORKERS", "SLUICE_SOMETHING": None}'
	SLUICE_WORKERS=many status 1 "$sluice" doctor --json
	json out '"SLUICE_WORKERS" in j["error"] and len(j["settings"]) > 5 and j["machine"]'
	says SLUICE_WORKERS
	SLUICE_WORKERS=many status 1 "$sluice" stat /proc/cpuinfo
	says SLUICE_WORKERS
	status 1 "$sluice" doctor nothing
	says "'nothing'"
}

help_and_version_are_given() {
	local command
	status 0 "$sluice" --version
	grep -qE '^sluice [0-9]+\.[0-9]+\.[0-9]+$' out || fail "$(cat out)"
	status 0 "$sluice" --help
	for command in cp stat bench doctor tensors verify; do
		grep -q "^  $command " out || fail "the overview lacks $command"
		status 0 "$sluice" $command --help
		grep -q "^Usage: sluice $command " out || fail "$(head -n 1 out)"
		[ ! -s err ] || fail "$(cat err)"
		status 0 "$sluice" --help
	done
}

wrong_usage_is_named_and_has_status_2() {
	local line
	noise 5000 > from
	while read -r line; do
		status 2 "$sluice" $line
		[ -s err ] && [ ! -s out ] || fail "'$line': $(cat out err)"
	done <<- 'END'
		unknown
		--unknown
		cp
		cp from
		cp --unknown from to
		cp --backend unknown from to
		stat
		stat from from
		verify
		verify --check sums from
		verify --check sums --xxh3
		doctor from from
		bench
		bench read
		bench copy from
		bench read from from
		bench read from --memory device:
		bench read from --memory device:x
		bench read from --memory device:-1
		bench read from --memory emulated:
		bench read from --memory emulated:1x
		bench read from --order stream
		bench read from --order none
		bench read from --memory emulated --unaligned
		cp --through device:none from to
		cp --through : from to
		bench read from --backend unknown
		bench read from --buffer none
		bench read from --depth 0
		bench read from --depth -1
		bench read from --depth 1x
		bench read from --repeat 0
		bench read from --op-size 0
		bench read from --op-size 4X
		bench read from --op-size 4BK
		bench read from --op-size 1.5
		bench read from --op-size 1.K
		bench read from --op-size -4
		bench read from --op-size 99999999999T
		bench read from --size 1K --op-size 2K
		bench read from --chunk 5000
		bench read from --chunk 2G
		bench read from --force
		bench read from --sync
	END
	status 2 "$sluice"
	status 2 "$sluice" cp --through '' from to
	status 2 "$sluice" bench read from --op-size 4X
	says "--op-size: '4X'"
	status 1 "$sluice" bench read from --size 1M
	says "holds only 5000 bytes"
	status 1 "$sluice" bench read from --op-size 1M
	status 1 "$sluice" bench read /proc/cpuinfo
	says "no known length"
	[ ! -e to ] || fail "something was copied"
}

sizes_are_written_in_the_same_way_everywhere() {
	local size
	truncate -s 1M from
	for size in 6144 6144B 6k 6K 6KB 6kiB "6 KiB" 6.0K; do
		status 0 "$sluice" bench read --repeat 1 --json --op-size "$size" --size 12K from
		json out "j['operations'] == 2"
	done
	status 0 "$sluice" bench read --repeat 1 --json --op-size 1.5K --size 0.003M from
	json out "j['op_size'] == 1536 and j['bytes'] == 3145"
	for size in 8192 8k 8KB "8.0 KiB"; do
		SLUICE_PIECE_BYTES=$size status 0 "$sluice" doctor --json
		grep -q '"8 KiB"' out || fail "$size: $(grep -o 'PIECE_BYTES.\{100\}' out)"
	done
	SLUICE_PIECE_BYTES=8X status 1 "$sluice" cp from to
	says "SLUICE_PIECE_BYTES: '8X' is not a size"
	SLUICE_WORKERS=1K status 1 "$sluice" cp from to
	says "SLUICE_WORKERS: '1K' is not a number"
}

no_message_shows_a_password() {
	local uri
	echo text > file
	for uri in ftp://user:SECRET@host/x?SECRET averyveryverylongscheme://user:SECRET@host/x; do
		status 1 "$sluice" cp "$uri" to
		says "unknown scheme '${uri%%:*}'; this build knows"
		! grep -q SECRET err || fail "$(cat err)"
		status 1 "$sluice" cp file "$uri"
		! grep -q SECRET err || fail "$(cat err)"
		status 1 "$sluice" stat "$uri"
		! grep -q SECRET err || fail "$(cat err)"
	done
	# By each command, whatever it thinks of the URI.
	local line
	for uri in ftp://user:SECRET@host/x http://user:SECRET@127.0.0.1:1/x; do
		for line in "ls" "rm" "rm -r" "presign" "verify --check" "bench read" "tensors ls" "s3 abandoned" "cp -r to" \
			"sync to" "store put name" "store get"; do
			SLUICE_HTTP_ATTEMPTS=1 timeout 20 "$sluice" $line "$uri" > out 2> err < /dev/null && fail "$line $uri: status 0"
			! grep -q SECRET out err || fail "$line: $(cat out err)"
		done
		SLUICE_HTTP_ATTEMPTS=1 timeout 20 "$sluice" sync "$uri" to > out 2> err && fail "sync $uri: status 0"
		! grep -q SECRET out err || fail "sync: $(cat out err)"
	done
}

the_log_tells_of_local_files() {
	noise 3000000 > from
	SLUICE_LOG=info status 0 "$sluice" cp -q from to
	says "open 'from': 3000000 bytes, backend auto, with"
	grep -q "open '[^']*/to', until it is complete [^ ]*/.to.*.sluice: 0 bytes" err || fail "$(cat err)"
	grep -q "read '" err && fail "info tells of pieces: $(cat err)"
	SLUICE_LOG=info SLUICE_DISABLE=uring status 0 "$sluice" cp -qf from to
	says "without io_uring: SLUICE_DISABLE"
	SLUICE_LOG=info status 0 "$sluice" cp -qf --backend posix from to
	says "backend posix, without io_uring: posix was chosen"
	SLUICE_LOG=info status 0 "$sluice" cp -qf /proc/version to
	says "without io_uring: it is read in order, without direct I/O: its file system has no disk"
	SLUICE_LOG=debug status 0 "$sluice" cp -qf --backend posix from to
	grep -q "read 'from' bytes 0+[0-9]* .*: [0-9]*" err || fail "no read: $(cat err)"
	grep -q "write '.*to' bytes 0+[0-9]* .*: [0-9]*" err || fail "no write: $(cat err)"
	SLUICE_LOG=debug status 0 "$sluice" cp -qf /proc/version to
	says ", short"
	status 0 "$sluice" cp -qf from to
	[ ! -s err ] || fail "without SLUICE_LOG: $(cat err)"
}

run_cases
