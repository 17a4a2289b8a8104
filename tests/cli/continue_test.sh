#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# sluice cp --continue, from outside: continue_test.sh PATH_OF_SLUICE [CASE...]
# With STRESS set the copies that are killed at random are many.
# shellcheck source=tests/cli/tools.sh
. "$(dirname -- "$0")/tools.sh"

# Objects of the fault server consist of the file pattern; what it sent for an ID is counted.
unset http_proxy https_proxy HTTPS_PROXY all_proxy ALL_PROXY no_proxy NO_PROXY
noise 1048573 > "$scratch/pattern"
coproc servers { exec "$python" "$(dirname -- "$0")/../engine/http/fault_server.py" --root "$scratch" \
	--pattern "$scratch/pattern" --until-eof; }
read -r line <&"${servers[0]}" || exit 1
fault=http://127.0.0.1:$(sed 's/plain=\([0-9]*\).*/\1/' <<< "$line")
export SLUICE_HTTP_BACKOFF_MS=5 SLUICE_HTTP_BACKOFF_MAX_MS=20 SLUICE_HTTP_STALL_MS=20000 SLUICE_HTTP_ATTEMPTS=3 SLUICE_HTTP_RETRY_MS=20000
size=6000001

# object VERSION: what the fault server has under that version.
object() {
	local i from=$((7919 * ${1:-0}))
	for ((i = 0; i <= size / 1048573 + 1; i++)); do cat "$scratch/pattern"; done | tail -c +$((from + 1)) |
		head -c $size
}

# Bytes of bodies that were sent below ID.
sent() {
	local line="" server
	exec {server}<> "/dev/tcp/127.0.0.1/${fault##*:}"
	printf 'GET /_/%s HTTP/1.1\r\n\r\n' "$1" >&"$server"
	until [ "${line% *}" = sent ]; do read -r line <&"$server" || exit 1; done
	exec {server}>&-
	echo "${line#* }"
}

# Bytes that the state beside NAME has.
noted() {
	local blocks n
	[ -e ".$1.sluice-state" ] || { echo 0 && return; }
	blocks=$(tail -n 2 ".$1.sluice-state" | head -n 1)
	n=${blocks//./}
	n=$((${#n} * 262144))
	[ "${blocks: -1}" = '#' ] && n=$((n - ${#blocks} * 262144 + size))
	echo $n
}

# Or all has come: a stop does not hold up what is behind it.
reached() { [ -e "$1" ] || [ "$(noted "$1")" -ge "$2" ]; }

# The object in the current folder, and what came of the first attempt: all but the last megabyte, where the
# server dies.
begin() {
	object > from
	SLUICE_HTTP_BACKOFF_MS=150 SLUICE_HTTP_BACKOFF_MAX_MS=300 SLUICE_HTTP_RETRY_MS=800 \
		status 1 "$sluice" cp --continue "$fault/$1/x?size=$size&fault=status:503&at=5200000&${2:-}" to
	says "kept"
	[ ! -e to ] || fail "it has its name"
	[ "$(noted to)" -gt 0 ] || fail "nothing is noted"
}

a_server_that_died_is_asked_only_for_what_is_missing() {
	local had
	begin died
	[ "$(stat -c %a .to.sluice-state)" = 600 ] || fail "the state is for others to read"
	had=$(noted to)
	before=$(sent died)
	status 0 "$sluice" cp --continue "$fault/died/x?size=$size" to
	same from to
	says "are there"
	[ $(($(sent died) - before)) = $((size - had)) ] || fail "$(($(sent died) - before)) came, $had of $size were there"
	holds . err from out to
}

without_the_option_nothing_stays_and_a_large_loss_tells_of_it() {
	export SLUICE_HTTP_RETRY_MS=600
	status 1 "$sluice" cp "$fault/plain/x?size=$size&fault=status:503&at=5200000" to
	grep -q continue err && fail "$(cat err)"
	status 1 "$sluice" cp "$fault/large/x?size=80000000&fault=status:503&at=30000000" to
	says "--continue"
	holds . err out
}

an_interrupt_keeps_what_came() {
	local had before
	object > from
	SLUICE_HTTP_STALL_MS=20000 "$sluice" cp --continue "$fault/int/x?size=$size&fault=stall:0&at=5200000" to 2> err &
	await reached to 3000000
	kill -TERM $!
	wait $!
	says "interrupted"
	says "kept"
	had=$(noted to)
	before=$(sent int)
	status 0 "$sluice" cp --continue "$fault/int/x?size=$size" to
	same from to
	[ $(($(sent int) - before)) = $((size - had)) ] || fail "$(($(sent int) - before)) came, $had of $size were there"
}

# Between the kills 2 MB come and are noted; what is noted is not fetched again.
kill_9_loses_only_what_was_not_noted() {
	local stop had before=0 pid
	object > from
	for stop in 2200000 4100000 5900000; do
		[ ! -e to ] || break
		before=$(sent kill)
		had=$(noted to)
		SLUICE_HTTP_STALL_MS=20000 "$sluice" cp -q --continue "$fault/kill/x?size=$size&fault=stall:0&at=$stop" to &
		pid=$!
		await reached to $((stop / 262144 * 262144 - 1600000))
		kill -9 $pid 2> /dev/null
		wait $pid 2> /dev/null
	done
	# Where it had what lies behind a stop in time, the next one stopped nothing.
	[ ! -e to ] || { same from to && return; }
	had=$(noted to)
	before=$(sent kill)
	status 0 "$sluice" cp --continue "$fault/kill/x?size=$size" to
	same from to
	[ "$had" -gt 4000000 ] || fail "only $had were noted"
	[ $(($(sent kill) - before)) = $((size - had)) ] || fail "$(($(sent kill) - before)) came, $had of $size were there"
	holds . err from out to
}

another_version_is_copied_from_the_start() {
	begin version
	object 3 > new
	status 0 "$sluice" cp --continue "$fault/version/x?size=$size&version=3" to
	says "SRC has changed"
	same new to
	rm to
	begin length
	size=3000001 object > new
	status 0 "$sluice" cp --continue "$fault/length/x?size=3000001" to
	says "another length"
	same new to
	rm to
	begin source
	status 0 "$sluice" cp --continue "$fault/source/y?size=$size" to
	says "another SRC"
	same from to
}

unrecognised_state_is_copied_from_the_start() {
	object > from
	SLUICE_HTTP_RETRY_MS=600 status 1 "$sluice" cp --continue "$fault/none/x?size=$size&etag=none&fault=status:503&at=5200000" to
	says "cannot be continued"
	holds . err from out
	status 0 "$sluice" cp --continue "$fault/none/x?size=$size&etag=none" to
	same from to
	rm to
	begin weak
	status 0 "$sluice" cp --continue "$fault/weak/x?size=$size&etag=weak" to
	says "cannot be continued"
	same from to
	rm to
	begin ranges
	status 0 "$sluice" cp --continue "$fault/ranges/x?size=$size&ranges=no" to
	says "no ranges"
	same from to
	rm to
	begin unknown
	status 0 "$sluice" cp --continue "$fault/unknown/x?size=$size&ranges=no&head=nolength&length=no" to
	says "length is not known"
	same from to
	holds . err from out to
}

without_a_strong_etag_the_time_tells() {
	local had before options="size=$size&etag=none&modified=1700000000"
	object > from
	object 1 > new
	SLUICE_HTTP_RETRY_MS=600 status 1 "$sluice" cp --continue "$fault/time/x?$options&fault=status:503&at=5200000" to
	says "a query"
	holds . err from new out
	options="$options&fault=status:503&at=5200000&times=3"
	SLUICE_HTTP_RETRY_MS=800 SLUICE_HTTP_BACKOFF_MS=2000 SLUICE_HTTP_BACKOFF_MAX_MS=2000 \
		status 1 "$sluice" cp --continue "$fault/times/x;$options" to
	had=$(noted to)
	before=$(sent times)
	status 0 "$sluice" cp --continue "$fault/times/x;$options" to
	says "has no strong ETag"
	same from to
	# And the byte that an opening asks for where HEAD tells no ETag.
	[ "$had" -gt 0 ] && [ $(($(sent times) - before)) = $((size - had + 1)) ] ||
		fail "$(($(sent times) - before)) came, $had of $size were there"
	rm to
	status 1 "$sluice" cp --continue "$fault/changes/x;${options%&fault*}&change=3" to
	status 0 "$sluice" cp --continue "$fault/changes/x;${options%&fault*}&change=3" to
	same new to
}

# A lie about a range would leave zeros in the copy.
a_damaged_state_is_not_believed() {
	begin damaged
	sed -i 's/^\(#*\)\./\1#/' .to.sluice-state
	status 0 "$sluice" cp --continue "$fault/damaged/x?size=$size" to
	says "damaged"
	same from to
	rm to
	begin torn
	truncate -s 60 .to.sluice-state
	status 0 "$sluice" cp --continue "$fault/torn/x?size=$size" to
	says "damaged"
	same from to
	rm to
	begin stateless
	rm .to.sluice-state
	status 0 "$sluice" cp --continue "$fault/stateless/x?size=$size" to
	says "no state"
	same from to
	rm to
	begin partless
	cp .to.sluice-state kept
	rm .to.sluice-part
	status 0 "$sluice" cp --continue "$fault/partless/x?size=$size" to
	says "damaged, or of another file"
	same from to
	rm to
	begin short
	truncate -s 5000000 .to.sluice-part
	status 0 "$sluice" cp --continue "$fault/short/x?size=$size" to
	same from to
	rm to kept
	holds . err from out
}

a_part_that_was_cut_and_is_long_again_is_not_believed() {
	begin cut
	truncate -s 1000000 .to.sluice-part
	truncate -s $size .to.sluice-part
	status 0 "$sluice" cp --continue "$fault/cut/x?size=$size" to
	same from to
	rm to
	begin longer
	echo more >> .to.sluice-part
	status 0 "$sluice" cp --continue "$fault/longer/x?size=$size" to
	says "damaged"
	same from to
	holds . err from out to
}

a_second_process_is_refused() {
	local first
	object > from
	SLUICE_HTTP_STALL_MS=20000 "$sluice" cp -q --continue "$fault/two/x?size=$size&fault=stall:0&at=5200000" to &
	first=$!
	await reached to 3000000
	status 1 "$sluice" cp --continue "$fault/two/x?size=$size" to
	says "another process"
	[ -e .to.sluice-part ] || fail "the part is gone"
	kill -9 $first
	wait $first 2> /dev/null
	status 0 "$sluice" cp --continue "$fault/two/x?size=$size" to
	says "are there"
	same from to
}

no_secret_is_in_the_state() {
	begin secret "token=s3cret"
	grep -rq -e s3cret -e token . --exclude=from && fail "$(grep -rl s3cret .)"
	status 0 "$sluice" cp --continue "http://me:s3cret@${fault#http://}/secret/x?size=$size&token=another" to
	says "are there"
	same from to
}

a_local_file_is_continued_unless_it_changed() {
	noise 9000001 > from
	(
		ulimit -f 5000
		status 1 "$sluice" cp --continue from to
	)
	status 1 "$sluice" cp --continue from nowhere/to
	status 0 "$sluice" cp --continue from to
	same from to
	cat from | status 0 "$sluice" cp -f --continue - to
	says "cannot be continued"
}

permissions_are_those_of_a_copy_without_it() {
	noise 100000 > from
	chmod 440 from
	mkdir plain continued
	for flags in "" --continue; do
		where=${flags:+continued}
		where=${where:-plain}
		(umask 027 && status 0 "$sluice" cp $flags from $where/new)
		echo old > $where/old
		chmod 604 $where/old
		status 1 "$sluice" cp $flags from $where/old
		says "-f"
		status 0 "$sluice" cp -f $flags from $where/old
		ln -s old $where/link
		status 0 "$sluice" cp -f $flags from $where/link
		[ -L $where/link ] || fail "the link is gone"
	done
	[ "$(cd plain && stat -c '%n %a' ./*)" = "$(cd continued && stat -c '%n %a' ./*)" ] || fail "$(stat -c '%n %a' */*)"
	holds continued link new old
}

special_files_and_laid_traps_are_refused() {
	noise 1000 > from
	mkfifo pipe
	for to in - pipe /dev/null "$fault/x/y" store://x; do
		status 1 "$sluice" cp -f --continue from "$to"
		says "--continue"
	done
	echo mine > mine
	ln -s mine .to.sluice-part
	status 1 "$sluice" cp --continue from to
	rm .to.sluice-part
	ln -s mine .to.sluice-state
	status 1 "$sluice" cp --continue from to
	says "no regular file"
	rm .to.sluice-state
	mkdir .to.sluice-part
	status 1 "$sluice" cp --continue from to
	rmdir .to.sluice-part
	ln mine .to.sluice-part
	status 1 "$sluice" cp --continue from to
	says "this user alone"
	[ "$(cat mine)" = mine ] || fail "it was written through"
	[ ! -e to ] || fail "there is something"
	status 2 "$sluice" cp --continue --checksum from to
	says "--checksum"
	status 2 "$sluice" cp --continue from s3://bucket/key
	says "an interrupted upload begins anew"
}

# Holes that are too small to be left out, for longer than one chunk.
many_small_holes_are_copied() {
	local i
	noise 102400 > piece
	for ((i = 0; i < 64; i++)); do dd if=piece of=from bs=4k seek=$((i * 34)) conv=notrunc status=none; done
	status 0 "$sluice" cp --continue from to
	same from to
}

# Killed at random moments until it is done; the object changes now and then.
random_kills_never_give_a_wrong_byte() {
	local round version=0 pid tries
	export SLUICE_MAX_CONNECTIONS=4
	for ((round = 0; round < ${STRESS:+40}+1; round++)); do
		for ((tries = 0; tries < 60; tries++)); do
			[ $((RANDOM % 20)) = 0 ] && version=$((version + 1))
			"$sluice" cp -q --continue "$fault/random/x?size=$size&version=$version&pace=20000:20" to 2> err &
			pid=$!
			sleep 0.$((RANDOM % 9))$((RANDOM % 10))
			kill -$((RANDOM % 2 ? 9 : 2)) $pid 2> /dev/null
			wait $pid 2> /dev/null && break
		done
		[ -e to ] || status 0 "$sluice" cp -q --continue "$fault/random/x?size=$size&version=$version" to
		object $version > from
		same from to
		rm to
	done
}

# Something that another program might do to the part, or to the state.
disturb() {
	[ -e .to.sluice-part ] && [ -e .to.sluice-state ] || return
	case $((RANDOM % 8)) in
	0) truncate -s $((RANDOM * size / 32768)) .to.sluice-part ;;
	1) truncate -s $((size + 1 + RANDOM)) .to.sluice-part ;;
	2) truncate -s $((RANDOM * size / 32768)) .to.sluice-part && truncate -s $size .to.sluice-part ;;
	3) rm .to.sluice-part ;;
	4) rm .to.sluice-state ;;
	5) truncate -s $((RANDOM % 300)) .to.sluice-state ;;
	6) echo '####' >> .to.sluice-state ;;
	7) sed -i 's/\.\.\./.#./' .to.sluice-state ;;
	esac
}

# stopped COMMAND...: the command is killed after a moment, unless it ends before; its status.
stopped() {
	local pid
	"$@" 2> err &
	pid=$!
	sleep 0.$((RANDOM % 7))$((RANDOM % 10))
	case $((RANDOM % 8)) in
	0) ;;
	1) kill -9 $pid 2> /dev/null ;;
	*) kill -TERM $pid 2> /dev/null ;;
	esac
	wait $pid 2> /dev/null
}

# Killed, disturbed, and of an object that changes also in the middle: whole, or an error.
a_disturbed_download_is_whole_or_an_error() {
	local round tries version change is
	export SLUICE_MAX_CONNECTIONS=4 SLUICE_PIECE_BYTES=256K
	for ((round = 0; round < ${STRESS:+60}+2; round++)); do
		size=$((1000000 + RANDOM * 150))
		version=$((RANDOM % 100))
		# After so many requests, which are often more than there are.
		change=$((RANDOM % 2 ? RANDOM % 40 : 1000))
		for ((tries = 0; tries < 8; tries++)); do
			[ $((RANDOM % 2)) != 0 ] || disturb
			stopped "$sluice" cp -q --continue \
				"$fault/disturbed$round/x?size=$size&version=$version&change=$change&pace=30000:20" to
			is=$?
			[ ! -e to ] || break
			[ $is != 0 ] || fail "there is no copy and no error"
			[ $is -gt 128 ] || [ -s err ] || fail "there is no sentence"
		done
		[ -e to ] || { "$sluice" cp -q --continue "$fault/disturbed$round/x?size=$size&version=$version&change=$change" to 2> err ||
			"$sluice" cp -q --continue "$fault/disturbed$round/x?size=$size&version=$version&change=$change" to; } || fail "$(cat err)"
		object $version > from
		object $((version + 1)) > next
		cmp -s from to || cmp -s next to || fail "size $size, version $version, change $change: neither is whole"
		rm -f to
	done
}

# The same for a local file, of which others cut and add bytes between the runs and meanwhile: it has always the beginning of
# a stream of bytes.
a_disturbed_copy_is_whole_or_an_error() {
	local round tries before after is
	noise 24000000 > stream
	for ((round = 0; round < ${STRESS:+80}+4; round++)); do
		head -c $((RANDOM * 700)) stream > from
		for ((tries = 0; tries < 8; tries++)); do
			size=$(stat -c %s from)
			[ $((RANDOM % 3)) != 0 ] || disturb
			[ $((RANDOM % 3)) != 0 ] || head -c $((RANDOM * 700)) stream > from
			before=$(stat -c %s from)
			after=$before
			(
				[ $((RANDOM % 2)) = 0 ] || ulimit -f $((RANDOM % 24000))
				SLUICE_PIECE_BYTES=64K stopped "$sluice" cp -q --continue from to
			) &
			if [ $((RANDOM % 2)) = 0 ]; then
				sleep 0.0$((RANDOM % 5))
				after=$((RANDOM * 700))
				if [ $after -lt "$before" ]; then
					truncate -s $after from
				else
					tail -c +$((before + 1)) stream | head -c $((after - before)) >> from
				fi
			fi
			wait $!
			is=$?
			[ ! -e to ] || break
			[ $is != 0 ] || fail "there is no copy and no error"
		done
		[ -e to ] || { before=$(stat -c %s from) && after=$before && status 0 "$sluice" cp -q --continue from to; }
		is=$(stat -c %s to)
		cmp -s -n "$is" to stream || fail "it is no beginning of the source"
		[ "$is" -ge $((before < after ? before : after)) ] && [ "$is" -le $((before > after ? before : after)) ] ||
			fail "it has $is bytes, and the source had $before and $after"
		rm -f to .to.sluice-*
	done
}

run_cases
