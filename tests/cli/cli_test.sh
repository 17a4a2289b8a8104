#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The command, from outside: cli_test.sh PATH_OF_SLUICE [CASE...]
# shellcheck source=tests/cli/tools.sh
. "$(dirname -- "$0")/tools.sh"

# ---------------------------------------------------------------------------------------------- cp

a_copy_holds_the_same_bytes() {
	local n backend
	for n in 0 1 4095 4096 4097 1048577 67108865; do
		noise $n > from
		for backend in auto posix; do
			rm -f to
			status 0 "$sluice" cp --backend $backend from to
			same from to
		done
	done
	grep -qE '^64\.0 MiB in [0-9.]+ s, [0-9.]+ [GMk]B/s$' err || fail "summary: $(cat err)"
}

a_copy_through_streams_holds_the_same_bytes() {
	local n
	for n in 0 1 4097 5000001; do
		noise $n > from
		"$sluice" cp -q from - | cat > to || fail "file to pipe"
		same from to
		cat from | "$sluice" cp -qf - to || fail "pipe to file"
		same from to
		cat from | "$sluice" cp -q - - | cat > to || fail "pipe to pipe"
		same from to
		"$sluice" cp -q - - < from > to || fail "file to file by redirection"
		same from to
	done
}

the_checksum_is_that_of_xxhsum() {
	seq 2000000 > from
	status 0 "$sluice" cp --checksum from to
	[ "$(cat out)" = "8f31e26b593645beb4a961057df23e26  to" ] || fail "$(cat out)"
	input=from status 0 "$sluice" cp -q --checksum - -
	same from out
	says "8f31e26b593645beb4a961057df23e26  standard input"
	: > from
	status 0 "$sluice" cp -f --checksum from to
	[ "$(cat out)" = "99aa06d3014798d86001c324468d497f  to" ] || fail "$(cat out)"
}

a_copy_through_a_device_holds_the_same_bytes() {
	local n device
	for n in 0 1 4097 5000001 70000003; do
		noise $n > from
		for device in emulated emulated:1; do
			rm -f to
			status 0 "$sluice" cp -q --through $device from to
			same from to
			cat from | "$sluice" cp -qf --through $device - to || fail "pipe to file"
			same from to
			"$sluice" cp -q --through $device from - | cmp - from || fail "file to pipe"
		done
	done
	seq 2000000 > from
	status 0 "$sluice" cp -f --through emulated --checksum from to
	[ "$(cat out)" = "8f31e26b593645beb4a961057df23e26  to" ] || fail "$(cat out)"
	same from to
	status 0 "$sluice" cp -qf --through emulated /proc/version to
	cmp to /proc/version || fail "a file that does not know its length"
	truncate -s 10M sparse
	echo text | dd of=sparse bs=1 seek=5000000 conv=notrunc status=none
	status 0 "$sluice" cp -qf --through emulated sparse to
	same sparse to
	[ "$(stat -c %b to)" -lt 1000 ] || fail "the copy is not sparse"
}

an_existing_file_is_overwritten_only_with_force() {
	echo old > to
	echo new > from
	status 1 "$sluice" cp from to
	says "'to' exists; use -f to overwrite"
	[ "$(cat to)" = old ] || fail "it was overwritten"
	status 0 "$sluice" cp -f from to
	same from to
}

a_file_is_not_copied_onto_itself() {
	echo text > from
	ln from link
	ln -s from symlink
	status 1 "$sluice" cp -f from ./from
	says "are the same file"
	status 1 "$sluice" cp -f from link
	status 1 "$sluice" cp -f symlink from
	"$sluice" cp from - >> from 2> err && fail "onto itself by redirection"
	[ "$(cat from)" = text ] || fail "it has changed"
}

a_directory_as_target_takes_the_copy_into_it() {
	echo text > from
	mkdir -p into/folder
	status 0 "$sluice" cp from into
	same from into/from
	status 1 "$sluice" cp from into/
	says "'into/from' exists"
	status 0 "$sluice" cp "file://$PWD/from" into/folder/
	same from into/folder/from
	mv from folder
	status 1 "$sluice" cp folder into
	says "'into/folder' is a directory"
	status 1 "$sluice" cp - into
	says "is a directory; name the file in it"
}

a_symbolic_link_stays_and_its_target_is_replaced() {
	mkdir far
	echo new > from
	echo old > far/to
	ln -s far/to link
	status 0 "$sluice" cp -f from link
	[ -L link ] || fail "the link was replaced"
	same from far/to
	ln -s nothing dangling
	status 1 "$sluice" cp -f from dangling
	says "a symbolic link to nothing"
	[ ! -e nothing ] || fail "it was written through"
	ln -s one another
	ln -s another one
	status 1 "$sluice" cp -f from one
	says "Too many levels of symbolic links"
}

a_device_is_written_to_and_not_replaced() {
	noise 3000000 > from
	status 0 "$sluice" cp from /dev/null
	[ -c /dev/null ] || fail "/dev/null is no device any more"
	status 1 "$sluice" cp from /dev/full
	says "No space left on device"
	{ echo before && "$sluice" cp -q from /dev/stdout && echo after; } > to
	{ echo before && cat from && echo after; } | cmp -s - to || fail "/dev/stdout"
}

fifos_are_read_and_written() {
	noise 3000000 > from
	mkfifo fifo
	cat fifo > to &
	status 0 "$sluice" cp from fifo
	wait
	same from to
	cat from > fifo &
	status 0 "$sluice" cp -f fifo to
	wait
	same from to
	[ -p fifo ] || fail "the FIFO is gone"
}

special_file_is_refused_with_a_reason() {
	mkdir folder
	echo text > from
	status 1 "$sluice" cp folder to
	says "'folder' is a directory"
	status 1 "$sluice" cp nothing to
	says "'nothing'"
	status 1 "$sluice" cp from nowhere/to
	says "nowhere/to"
	status 1 "$sluice" cp from nowhere/
	says "there is no such directory"
	status 1 "$sluice" cp gs://bucket/key to
	says "'gs'"
	status 1 "$sluice" cp from gs://bucket/key
	status 1 "$sluice" cp '' to
	status 1 "$sluice" cp from ''
	rm out err
	holds . folder from
}

a_percent_escaped_uri_is_its_path() {
	echo text > "a b%"
	status 0 "$sluice" cp "file://$PWD/a%20b%25" "file://localhost$PWD/c%2Bd"
	same "a b%" "c+d"
}

a_file_of_unknown_length_is_copied_to_its_end() {
	status 0 "$sluice" cp /proc/self/mountinfo to
	[ -s to ] || fail "it is empty"
	status 0 "$sluice" cp /proc/cpuinfo cpuinfo
	# The clock frequencies change between two reads.
	[ "$(grep -c . cpuinfo)" = "$(grep -c . /proc/cpuinfo)" ] || fail "lines are missing"
}

a_sparse_file_stays_sparse() {
	truncate -s 200M from
	noise 100000 | dd of=from bs=1 seek=50000001 conv=notrunc status=none oflag=append \
		2> /dev/null
	noise 4096 | dd of=from bs=4096 seek=3 conv=notrunc status=none
	truncate -s 210000001 from
	status 0 "$sluice" cp from to
	same from to
	[ "$(stat -c %b to)" -le $(($(stat -c %b from) + 1024)) ] ||
		fail "the copy takes $(stat -c %b to) blocks"
	"$sluice" cp -q from - | cmp -s - from || fail "to a stream"
	truncate -s 30M empty
	status 0 "$sluice" cp empty empty.copy
	same empty empty.copy
	[ "$(stat -c %b empty.copy)" -lt 1024 ] || fail "a file without data takes space"
}

holes_are_not_read() {
	local to
	truncate -s 500G from
	echo first | dd of=from bs=1 seek=200000000001 conv=notrunc status=none
	echo last >> from
	status 0 "$sluice" cp from to
	says "and 500.0 GiB of holes"
	[ "$(stat -c %s to)" = "$(stat -c %s from)" ] || fail "it has $(stat -c %s to) bytes"
	[ "$(stat -c %b to)" -lt 2048 ] || fail "it takes $(stat -c %b to) blocks"
	cmp -n 6 -i 200000000001 from to || fail "the middle"
	cmp -i $((500 << 30)) from to || fail "the end"
	truncate -s 500G to
	truncate -s 500G void
	noise 5000000 > to
	truncate -s 501G to
	status 0 "$sluice" cp -f void to
	[ "$(stat -c %s:%b to)" = "$((500 << 30)):0" ] || fail "void: $(stat -c %s:%b to)"
}

sparse_file_is_copied_right() {
	local sum
	holes from
	sum=$(cp --sparse=never from full && "$sluice" cp -q --checksum full /dev/null)
	for flags in -q --checksum --continue "--through emulated" "--backend posix"; do
		noise 50000000 > to
		status 0 "$sluice" cp -f $flags from to
		same from to
		[ "$(stat -c %b to)" -le $(($(stat -c %b from) + 4096)) ] || fail "$flags: $(stat -c %b to) blocks"
		[ "$flags" != --checksum ] || [ "$(cut -d ' ' -f 1 out)" = "${sum%% *}" ] || fail "$(cat out), not $sum"
	done
	"$sluice" cp -q from - | cmp -s - from || fail "to a pipe"
	"$sluice" cp -q from >(cmp - from > differ 2>&1; : > compared)
	until [ -e compared ]; do sleep 0.02; done
	[ ! -s differ ] || fail "to a FIFO: $(cat differ)"
	input=from status 0 "$sluice" cp -qf - to
	same from to
	chmod u+w from
	gated truncate -s 5M from && fail "a hole behind the end of a file that was cut"
	says "became shorter"
}

permissions_are_those_of_cp() {
	umask 022
	echo text > from
	chmod 4775 from
	echo old > to
	chmod 666 to
	status 0 "$sluice" cp from new
	status 0 "$sluice" cp -f from to
	chmod 0 from
	[ -r from ] && status 0 "$sluice" cp from closed && [ "$(stat -c %a closed)" != 0 ] &&
		fail "what nobody may read became $(stat -c %a closed)"
	[ "$(stat -c %a new)" = 755 ] || fail "new: $(stat -c %a new)"
	[ "$(stat -c %a to)" = 666 ] || fail "overwritten: $(stat -c %a to)"
}

an_overwritten_file_keeps_its_owner() {
	[ "$(id -u)" = 0 ] || skip "only root may give files away"
	umask 022
	echo text > from
	echo old > to
	chown 1234:2345 to || skip "no such owners here"
	chmod 4751 to
	status 0 "$sluice" cp -f from to
	same from to
	[ "$(stat -c %u:%g:%a to)" = 1234:2345:4751 ] || fail "root made it $(stat -c %u:%g:%a to)"
	local as=(setpriv --reuid 4321 --regid 4321 --clear-groups)
	chmod 711 "$scratch"
	chmod 777 .
	"${as[@]}" bash -c 'cd "$1" && "$2" --version' - "$PWD" "$sluice" > /dev/null 2>&1 ||
		skip "no other user gets here"
	status 0 "${as[@]}" bash -c 'echo mine | "$1" cp -qf - to' - "$sluice"
	[ "$(cat to)" = mine ] || fail "it was not overwritten"
	[ "$(stat -c %u:%g:%a to)" = 4321:4321:751 ] || fail "another made it $(stat -c %u:%g:%a to)"
}

# gated COMMAND...: copies from to the FIFO gate, which is read into to when the command has run. The source
# is opened before the target, and opening a FIFO waits for its reader.
gated() {
	local copy reader
	[ -e gate ] || mkfifo gate
	"$sluice" cp from gate 2> err &
	copy=$!
	await has_open $copy from
	sleep 0.2
	"$@"
	cat gate > to &
	reader=$!
	wait $copy
	set -- $?
	wait $reader
	return "$1"
}

a_source_that_becomes_shorter_fails_the_copy() {
	noise 8388608 > from
	gated truncate -s 4M from && fail "it was taken for complete"
	says "shorter"
}

growth_of_a_source_during_the_copy_is_not_copied() {
	noise 5000001 > from
	noise 5000000 > more
	cp from before
	gated dd if=more of=from oflag=append conv=notrunc status=none || fail "$(cat err)"
	same before to
}

an_interrupted_copy_leaves_nothing() {
	local signal feeder
	mkdir into
	mkfifo fifo
	for signal in INT TERM HUP; do
		(noise 3000000 && exec sleep 100) > fifo &
		feeder=$!
		interrupt $signal "$sluice" cp fifo into/to
		kill $feeder
		wait $feeder
		holds into
		says "interrupted; 'into/to' was not written"
	done
	echo old > into/to
	truncate -s 1T large
	interrupt TERM "$sluice" cp -f --checksum large into/to
	says "interrupted"
	holds into to
	[ "$(cat into/to)" = old ] || fail "the old file is gone"
}

a_copy_that_is_killed_leaves_nothing_under_the_name() {
	truncate -s 1T large
	mkdir into
	"$sluice" cp --checksum large into/to 2> err &
	await catches $! TERM
	sleep 0.2
	kill -KILL $!
	wait $! 2> /dev/null
	[ ! -e into/to ] || fail "there is a half copy"
}

a_full_file_system_fails_the_copy_and_leaves_nothing() {
	noise 6000000 > from
	mkdir full
	unshare -rm true 2> /dev/null || skip "no mount namespaces here"
	unshare -rm bash -c '
		mount -t tmpfs -o size=4m none full || exit 9
		"$1" cp from full/to 2> err; [ $? = 1 ] || exit 8
		"$1" cp - full/to < from 2>> err; [ $? = 1 ] || exit 7
		[ -z "$(ls -A full)" ] || exit 6
		head -c 3000000 from > small
		"$1" cp -q small full/to && cmp -s small full/to' - "$sluice"
	local rc=$?
	[ $rc != 9 ] || skip "no mounts in a namespace here"
	[ $rc = 0 ] || fail "step $rc: $(cat err)"
	[ "$(grep -c 'No space left on device' err)" = 2 ] || fail "$(cat err)"
}

a_file_size_limit_fails_the_copy_and_leaves_nothing() {
	noise 3000000 > from
	mkdir into
	(ulimit -f 1000 && exec "$sluice" cp from into/to) 2> err && fail "it succeeded"
	says "File too large"
	holds into
}

a_folder_that_cannot_be_written_fails_the_copy() {
	[ "$(id -u)" != 0 ] || skip "root may write anywhere"
	echo text > from
	mkdir into
	chmod 555 into
	status 1 "$sluice" cp from into/to
	says "Permission denied"
}

durable_and_quiet_do_what_they_say() {
	noise 5000000 > from
	status 0 "$sluice" cp --durable -q from to
	same from to
	[ ! -s err ] || fail "quiet said: $(cat err)"
	"$sluice" cp --durable -q from - | cmp -s - from || fail "to a pipe"
}

a_bar_is_drawn_on_a_terminal_only_and_erased() {
	# The source ends when the bar is there, or late.
	local drawn="for i in {1..1000}; do grep -q 'standard input  ' terminal && break; sleep 0.02; done"
	local slow="(head -c 1000000 /dev/zero; sleep 0.7) | '$sluice' cp - "
	command -v script > /dev/null || skip "script(1) is missing"
	TERM=xterm timeout 60 script -qec "bash -c \"(head -c 1000000 /dev/zero; $drawn) | '$sluice' cp - on\"" \
		/dev/null < /dev/null > terminal
	grep -q 'standard input  [0-9.]* [kKM]*i*B  ' terminal || fail "nothing was drawn"
	grep -q $'\r\033\\[K[0-9.]* KiB in ' terminal || fail "it was not erased"
	bash -c "$slow off" 2> err
	grep -q $'\r' err && fail "a bar without a terminal"
	# Where the name does not fit, its last part has to do.
	mkdir -p folder/with/a/name
	truncate -s 1G folder/with/a/name/short
	mkfifo slow
	(await grep -q short terminal && cat) < slow > /dev/null &
	TERM=xterm timeout 60 script -qec "stty cols 60; '$sluice' cp folder/with/a/name/short slow" \
		/dev/null < /dev/null > terminal
	wait
	grep -q $'\033\\[Kshort  \\[' terminal || fail "not the last part: $(head -c 300 terminal | cat -v)"
	TERM=xterm timeout 60 script -qec "$slow quiet -q" /dev/null < /dev/null > terminal
	[ ! -s terminal ] || fail "quiet drew something"
}

ctrl_c_on_a_terminal_cleans_up() {
	command -v script > /dev/null || skip "script(1) is missing"
	mkdir into
	: > terminal
	(await grep -q 'standard input' terminal && printf '\003' && sleep 0.5) |
		TERM=xterm timeout 60 script -qec "(head -c 1000000 /dev/zero; sleep 50) | '$sluice' cp - into/to" \
			/dev/null > terminal
	grep -q "interrupted; 'into/to' was not written" terminal || fail "$(cat terminal)"
	holds into
}

a_reader_that_goes_away_ends_the_copy_quietly() {
	noise 5000000 > from
	"$sluice" cp -q from - 2> err | head -c 1 > /dev/null
	[ "${PIPESTATUS[0]}" = 141 ] || fail "status ${PIPESTATUS[0]}"
	[ ! -s err ] || fail "$(cat err)"
}

closed_standard_streams_are_errors_and_harm_no_file() {
	noise 100 > from
	"$sluice" cp from - >&- 2> err && fail "standard output was closed"
	"$sluice" cp - to <&- 2> err && fail "standard input was closed"
	[ ! -e to ] || fail "there is a copy of nothing"
	"$sluice" cp --checksum from to >&- 2> err && fail "the checksum went nowhere"
	"$sluice" cp -f nothing to 2>&-
	same from to
}

output_that_cannot_be_written_is_a_failure() {
	local command
	echo text > from
	[ -c /dev/full ] || skip "there is no /dev/full"
	for command in --help --version "cp --help" "stat from" "stat --json from" doctor \
		"doctor --json" "bench read from --repeat 1" "bench read from --json --repeat 1" \
		"cp -f --checksum from to" "verify --xxh3 from"; do
		"$sluice" $command > /dev/full 2> err
		[ $? = 1 ] || fail "'$command' did not notice"
		says "cannot write the output"
	done
}

# ------------------------------------------------------------------------------------------ verify

sha256_lines_are_those_of_sha256sum() {
	local name
	noise 9000001 > from
	"$sluice" verify -q from > out 2>&1 || ! grep -q "built without libcrypto" out || skip "this build has no libcrypto"
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

the_xxh3_tree_finds_a_flipped_bit() {
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
	grep -qx 'from: FAILED' out && grep -qx 'other: OK' out || fail "$(cat out)"
	# The sum of nothing but the length of an empty file, which is the same for ever.
	: > from
	status 0 "$sluice" verify -q --xxh3 from
	[ "$(cat out)" = "2c0a8a99dc147d5445c3b49d035665b2  from" ] || fail "$(cat out)"
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
	says "'sums': 'abc  from' is no line"
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
	json out '{"kernel", "cores", "memory", "NUMA", "memlock", "open files"}
		== {m["name"] for m in j["machine"]}'
	json out '{w["name"]: w["usable"] for w in j["writer"]}.keys()
		== {"HDF5", "deflate", "zstd", "lz4", "bitshuffle-lz4"}'
	json out 'all("plugin" in w["detail"] for w in j["writer"]
		if w["usable"] and w["name"] in ("zstd", "lz4", "bitshuffle-lz4"))'
	json out 'j["error"] is None and j["features"] and j["path"]["error"] is None'
	json out 'all(s["value"] is not None and s["source"] == "default" for s in j["settings"])'
	json out 'j["unknown_variables"] == []'
	status 0 "$sluice" doctor
	grep -q SLUICE_PIECE_BYTES out || fail "$(cat out)"
	holds . err out
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
