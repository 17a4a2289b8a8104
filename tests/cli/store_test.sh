#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The command and the daemon, from outside: store_test.sh PATH_OF_SLUICE [CASE...], with SLUICED.
# shellcheck source=tests/cli/tools.sh
. "$(dirname -- "$0")/tools.sh"

# A path of a socket is short.
folder=$(mktemp -d "${TMPDIR:-/tmp}/sluice-store.XXXXXX") || exit 1
export SLUICE_STORE=$folder/socket
mkdir "$folder/spill"
"$SLUICED" --memory 64M --spill "$folder/spill" --spill-limit 256M &
daemon=$!
trap 'kill "$daemon" 2>/dev/null; rm -rf -- "$scratch" "$folder"' EXIT
for ((i = 0; i < 500; i++)); do
	"$sluice" store stat > /dev/null 2>&1 && break
	sleep 0.02
done

put_bytes_are_got() {
	local n
	for n in 1 4096 5000001; do
		noise $n > from
		status 0 "$sluice" store put "a name/$n" from
		status 0 "$sluice" store get "a name/$n" to
		same from to
		"$sluice" store get "a name/$n" - > to
		same from to
		status 0 "$sluice" store rm "a name/$n"
	done
	status 1 "$sluice" store get "a name/1" to
	says "a name/1"
}

a_name_is_taken_until_it_is_replaced() {
	echo one > one
	echo two > two
	status 0 "$sluice" store put x one
	status 1 "$sluice" store put x two
	says "taken"
	status 0 "$sluice" store put --replace x two
	status 0 "$sluice" store get x got
	same two got
	status 0 "$sluice" store rm x
}

a_list_is_sorted_and_has_what_begins_so() {
	local name
	echo x > file
	for name in b/2 a/1 b/1; do status 0 "$sluice" store put "$name" file; done
	status 0 "$sluice" store ls b/
	[ "$(awk '{print $NF}' out | tr '\n' ' ')" = "b/1 b/2 " ] || fail "$(cat out)"
	[ "$(grep -c " host  *user $(id -u), process [0-9]" out)" = 2 ] || fail "$(cat out)"
	status 0 "$sluice" store ls --json
	[ "$(wc -l < out)" = 3 ] || fail "$(cat out)"
	head -n 1 out > first
	json first 'j["name"] == "a/1" and j["bytes"] == 2 and j["state"] == "sealed" and j["place"] == "host"'
	status 0 "$sluice" store rm a/1 b/1 b/2
	status 0 "$sluice" store ls
	[ ! -s out ] || fail "$(cat out)"
}

stat_shows_all_that_is_known() {
	noise 10000 > file
	status 0 "$sluice" store put --pin x file
	status 0 "$sluice" store stat x
	grep -q '^size  *10000 bytes' out || fail "$(cat out)"
	status 0 "$sluice" store stat --json x
	json out 'j["bytes"] == 10000 and j["pinned"] and j["holders"] == 0'
	status 0 "$sluice" store stat --json
	json out 'j["sealed"] == 1 and j["memory_limit"] == 64 << 20 and j["clients"] == 1 and j["devices"] == []'
	status 0 "$sluice" store stat --prometheus
	grep -q '^sluice_store_sealed 1$' out || fail "$(cat out)"
	grep -q '^# TYPE sluice_store_seals_total counter$' out || fail "$(cat out)"
	grep -q '^sluice_store_build_info{version="[0-9.]*"} 1$' out || fail "$(cat out)"
	! grep -q 'store_server\|store_supervisor' out || fail "ids of processes are no measures: $(cat out)"
	grep -q '^sluice_store_up_seconds [0-9]\{1,4\}\.[0-9]\{3\}$' out || fail "$(cat out)"
	status 0 "$sluice" store rm x
	status 1 "$sluice" store stat x
	says "'x' is not there"
}

invisible_characters_of_a_name_are_shown() {
	local name=$'a\u202eb\u200bc'
	echo x > file
	status 0 "$sluice" store put "$name" file
	status 0 "$sluice" store ls
	grep -q '  a\\u202eb\\u200bc$' out || fail "$(cat out)"
	status 0 "$sluice" store stat "$name"
	grep -q '^name  *a\\u202eb\\u200bc$' out || fail "$(cat out)"
	status 0 "$sluice" store ls --json
	grep -q '"a\\u202eb\\u200bc"' out || fail "$(cat out)"
	json out 'j["name"] == "a\u202eb\u200bc"'
	status 0 "$sluice" store rm "$name"
}

trim_gives_kept_memory_back() {
	noise 5000000 > file
	status 0 "$sluice" store put x file
	status 0 "$sluice" store rm x
	status 0 "$sluice" store trim
	grep -q '^[0-9.]* MiB given back$' out || fail "$(cat out)"
	status 0 "$sluice" store stat --json
	json out 'j["memory_bytes"] == 0 and j["warm_bytes"] == 0'
	status 0 "$sluice" store stat
	grep -q '^seals since the server began  *[0-9]' out || fail "$(cat out)"
}

spilled_blobs_are_shown() {
	local i
	noise 15000000 > file
	for i in 1 2 3 4 5 6 7 8; do status 0 "$sluice" store put "s/$i" file; done
	status 0 "$sluice" store ls s/
	grep -q ' spilled  host .* s/1$' out || fail "$(cat out)"
	status 0 "$sluice" store stat s/1
	grep -q '^state  *spilled' out || fail "$(cat out)"
	status 0 "$sluice" store stat --json
	json out 'j["spilled"] >= 4 and j["spilled_bytes"] >= 4 * 15000000 and j["spill_limit"] == 256 << 20 and j["sealed"] == 8'
	status 0 "$sluice" store stat --prometheus
	grep -q '^# TYPE sluice_store_spills_total counter$' out || fail "$(cat out)"
	status 0 "$sluice" store get s/1 to
	same file to
	status 0 "$sluice" store stat --json s/1
	json out 'j["state"] == "sealed"'
	for i in 1 2 3 4 5 6 7 8; do status 0 "$sluice" store rm "s/$i"; done
}

a_watch_prints_what_happens() {
	local watch
	echo x > file
	"$sluice" store watch --count 3 --json w/ > events &
	watch=$!
	# It is there when it is counted.
	for ((i = 0; i < 500; i++)); do
		"$sluice" store stat --json > out
		grep -q '"clients": 3' out && break
		sleep 0.02
	done
	status 0 "$sluice" store put other file
	status 0 "$sluice" store put w/1 file
	status 0 "$sluice" store rm w/1 other
	wait $watch || fail "the watch failed"
	[ "$(grep -o '"event": "[a-z]*"' events | cut -d'"' -f4 | tr '\n' ' ')" = "created sealed deleted " ] ||
		fail "$(cat events)"
}

a_get_waits_for_what_comes() {
	local waiter
	echo late > file
	"$sluice" store get --wait 20 late got &
	waiter=$!
	sleep 0.1
	status 0 "$sluice" store put late file
	wait $waiter || fail "the get failed"
	same file got
	status 0 "$sluice" store rm late
}

memory_that_is_short_is_said() {
	head -c 40M /dev/zero > file
	status 0 "$sluice" store put --pin first file
	status 1 "$sluice" store put second file
	says "are in use"
	status 0 "$sluice" store rm first
	status 0 "$sluice" store put --cache second file
	# What may be dropped is dropped.
	status 0 "$sluice" store put third file
	status 1 "$sluice" store stat second
	status 0 "$sluice" store rm third
}

a_socket_of_systemd_is_taken_and_readiness_is_told() {
	echo bytes > file
	cat > activate.py <<'TEXT'
import os, signal, socket, subprocess, sys

daemon, sluice, folder = sys.argv[1:]
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.bind(f"{folder}/notify")
notify.settimeout(20)
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(f"{folder}/activated")
listener.listen(10)
child = os.fork()
if child == 0:
    os.dup2(listener.fileno(), 3, inheritable=True)
    os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", NOTIFY_SOCKET=f"{folder}/notify")
    del os.environ["SLUICE_STORE"]
    os.execv(daemon, [daemon, "--memory", "16M"])
assert notify.recv(100) == b"READY=1"
os.environ["SLUICE_STORE"] = f"{folder}/activated"
subprocess.run([sluice, "store", "put", "x", "file"], check=True)
subprocess.run([sluice, "store", "get", "x", "got"], check=True)
os.kill(child, signal.SIGTERM)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert notify.recv(100) == b"STOPPING=1"
assert os.path.exists(f"{folder}/activated")
TEXT
	status 0 "$python" activate.py "$SLUICED" "$sluice" "$folder"
	same file got
}

wrong_usage_ends_with_2() {
	status 2 "$sluice" store
	status 2 "$sluice" store unknown
	status 2 "$sluice" store put x
	status 2 "$sluice" store ls a b
	status 2 "$SLUICED" --memory none
	status 2 "$SLUICED" --memory 101%
	status 2 "$SLUICED" word
	touch file
	chmod +x file
	status 2 "$SLUICED" --spill file
	status 2 "$SLUICED" --spill nowhere
	status 2 "$SLUICED" --spill-limit 1G
	says "without --spill"
	status 2 "$SLUICED" --device-memory emulated:0
	status 2 "$SLUICED" --device-memory foo=1G
	says "'foo' is no device"
	status 2 "$SLUICED" --device-memory emulated:=1G
	status 2 "$SLUICED" --device-memory :0=1G
	status 2 "$SLUICED" --device-memory emulated:0.1=1G
	# As nvidia-smi has it, and as the kernel does.
	status 2 "$SLUICED" --device-memory 00000000:FB:00.0=1G --device-memory 0000:fb:00.0=1G
	says "0000:fb:00.0 twice"
	status 0 "$SLUICED" --help
	status 0 "$SLUICED" --version
	status 1 "$sluice" store ls --socket "$folder/nobody"
	says "nobody"
	status 1 "$SLUICED" --socket "$SLUICE_STORE"
	says "already"
	status 2 "$SLUICED" --socket "$folder/other" --spill-limit 1G
	says "without --spill"
	status 2 "$SLUICED" --socket "$folder/other" --spill /proc
	says "cannot make a file"
	status 2 "$SLUICED" --socket "$folder/other" --group "no one"
	says "there is no group 'no one'"
	status 2 "$sluice" store stat --json --prometheus
	status 0 "$sluice" store --version
}

a_file_at_the_path_of_the_socket_stays() {
	local n
	mkdir here
	echo precious > here/file
	ln -s file here/link
	for n in here/file here/link here; do
		status 1 "$SLUICED" --socket $n
		says "something else than a socket"
	done
	holds here file link
	[ "$(cat here/file)" = precious ] || fail "the file was written to"
	[ ! -e here.lock ] || fail "a lock was left"
}

small_blobs_of_many_processes_take_little() {
	local other=$folder/little
	"$SLUICED" --memory 1M --device-memory emulated:0=2M --socket "$other" &
	trap "kill $!" EXIT
	echo x > file
	for ((i = 0; i < 500; i++)); do
		"$sluice" store stat --socket "$other" > /dev/null 2>&1 && break
		sleep 0.02
	done
	for ((i = 0; i < 20; i++)); do
		status 0 "$sluice" store put --socket "$other" "small/$i" file
	done
	status 0 "$sluice" store stat --socket "$other" --json
	json out 'j["memory_bytes"] == 20 * 4096'
	head -c 3M /dev/zero > large
	status 1 "$sluice" cp --device emulated:0 large "store://x?socket=$other"
	says "0 are in use"
}

without_a_limit_as_much_is_spilled_as_there_is_place() {
	local other=$folder/unlimited
	"$SLUICED" --memory 4M --spill "$folder/spill" --socket "$other" &
	trap "kill $!" EXIT
	for ((i = 0; i < 500; i++)); do
		"$sluice" store stat --socket "$other" > out 2> err && break
		sleep 0.02
	done
	grep -q "may be in files .* as many as there is space for" out || fail "$(cat out)"
}

a_daemon_is_found_upgraded_and_stopped() {
	local other=$folder/other
	"$SLUICED" --memory 16M --socket "$other" 2> messages &
	trap "kill $! 2>/dev/null" EXIT
	for ((i = 0; i < 500; i++)); do
		"$sluice" store stat --socket "$other" > /dev/null 2>&1 && break
		sleep 0.02
	done
	echo precious > file
	status 0 "$sluice" store put --socket "$other" x file
	status 0 "$sluice" store upgrade --socket "$other"
	[ "$(cat out)" = "$("$SLUICED" --version)" ] || fail "$(cat out)"
	status 0 "$sluice" store stat --socket "$other" --json
	json out "j['upgrades'] == 1 and j['sealed'] == 1 and j['supervisor'] == $! == $(cat "$other.lock")"
	status 0 "$sluice" store stop --socket "$other"
	[ ! -e "$other" ] || fail "the socket is there"
	wait $! || fail "the daemon ended with status $?"
	grep -q "^sluiced: .*begins at $other: process $!, 16 MiB" messages || fail "$(cat messages)"
	grep -q "^sluiced: upgrades to" messages || fail "$(cat messages)"
	! grep died messages || fail "a planned upgrade is told as a death"
	grep -q "^sluiced: has stopped" messages || fail "$(cat messages)"
	status 1 "$sluice" store stop --socket "$other"
	says "does sluiced run there"
}

a_daemon_with_few_descriptors_says_how_many_it_needs() {
	local few='ulimit -n $0 && exec "$SLUICED" --memory 16M --socket "$1/few"'
	status 1 bash -c "$few" 63 "$folder"
	says "the daemon needs 64 descriptors, and its hard limit is 63"
	bash -c "$few" 64 "$folder" 2> messages &
	trap "kill $! 2>/dev/null" EXIT
	for ((i = 0; i < 500; i++)); do
		"$sluice" store stat --socket "$folder/few" > out 2>&1 && break
		sleep 0.02
	done
	echo precious > file
	status 0 "$sluice" store put --socket "$folder/few" a file
	status 0 "$sluice" store put --socket "$folder/few" b file
	status 0 "$sluice" store stop --socket "$folder/few"
}

a_daemon_without_standard_descriptors_writes_to_none() {
	local other=$folder/closed
	"$SLUICED" --memory 16M --socket "$other" <&- >&- 2>&- &
	trap "kill $! 2>/dev/null" EXIT
	for ((i = 0; i < 500; i++)); do
		[ -S "$other" ] && break
		sleep 0.02
	done
	status 0 "$sluice" store stat --socket "$other"
	status 0 "$sluice" store upgrade --socket "$other"
	status 0 "$sluice" store stop --socket "$other"
}

the_daemon_reads_sizes_as_the_command_does() {
	local size
	for size in 4k 4KiB 1.5GB "4 MiB" 5%; do
		status 1 timeout 10 "$SLUICED" --memory "$size" --socket /nonexistent/folder/socket
		! grep -q "is no size" err || fail "$(cat err)"
	done
	status 2 "$SLUICED" --memory 4X --socket /nonexistent/folder/socket
	says "'4X' is no size"
}

doctor_says_whether_there_is_a_store() {
	status 0 "$sluice" doctor --json
	json out 'j["store"][0]["usable"]'
	SLUICE_STORE=$folder/nobody status 0 "$sluice" doctor --json
	json out 'not j["store"][0]["usable"] and "nobody" in j["store"][0]["detail"]'
	status 0 "$sluice" doctor
	grep -q "sluiced *answers" out || fail "$(cat out)"
}

a_store_that_is_not_named_is_asked_for() {
	status 1 env -u SLUICE_STORE -u XDG_RUNTIME_DIR "$sluice" store ls
	says "--socket"
	says "SLUICE_STORE"
}

run_cases
