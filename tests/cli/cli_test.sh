#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# sluice cp of a file, from outside: cli_test.sh PATH_OF_SLUICE [CASE...]
# shellcheck source=tests/cli/tools.sh
. "$(dirname -- "$0")/tools.sh"

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

an_interrupt_does_not_wait_for_a_slow_reader() {
	noise 8388608 > from
	"$python" - "$sluice" <<-'END' || fail "more was written after the interrupt"
	import os, signal, subprocess, sys, time
	command = subprocess.Popen([sys.argv[1], "cp", "from", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
	read = 0
	while data := os.read(command.stdout.fileno(), 4096):  # a call of write() always moves some
	    read += len(data)
	    time.sleep(0.008)
	    if read == 65536:
	        command.send_signal(signal.SIGINT)
	said = command.communicate()[1]
	print(read, said, file=sys.stderr)
	# A pipe holds 64 KiB.
	sys.exit(command.returncode != -signal.SIGINT or read > 4 * 65536 or b"interrupted" not in said or b"waited" in said)
	END
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
	"$sluice" cp --durable -q from - 2> err | cmp -s - /dev/null || fail "something went to a pipe"
	says "is no storage"
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

run_cases
