#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# sluice cp with -r, -p and several sources, from outside: tree_test.sh PATH_OF_SLUICE [CASE...]
# shellcheck source=tests/cli/tools.sh
. "$(dirname -- "$0")/tools.sh"

# A tree of files, folders, links and holes, called from.
tree() {
	local i
	mkdir -p from/a/b from/empty from/closed
	for i in 1 2 3 4 5 6 7 8 9; do noise $((i * 1000)) > from/a/$i; done
	noise 3000000 > from/a/b/large
	: > from/a/b/nothing
	truncate -s 9M from/a/b/holes
	ln -s b/large from/a/link
	ln -s nowhere from/dangling
	echo text > "from/with blank, ümlaut and
newline"
	chmod 640 from/a/1
	chmod 750 from/a/b
	echo text > from/closed/file
	chmod 555 from/closed
}

# What find says of each file of a tree: FORMAT.
listed() {
	(cd "$1" && find . -printf "%p $2\n" | sort)
}

a_tree_is_copied_as_cp_does() {
	umask 027
	tree
	cp -r from right
	status 0 "$sluice" cp -r from to
	diff -r --no-dereference from to > diff || fail "$(cat diff)"
	[ "$(listed to '%y %m %l')" = "$(listed right '%y %m %l')" ] ||
		fail "$(diff <(listed to '%y %m %l') <(listed right '%y %m %l'))"
	[ "$(stat -c %b to/a/b/holes)" = 0 ] || fail "the holes are gone"
	grep -q '^14 files, 2.9 MiB in .*, and 9.0 MiB of holes$' err || fail "summary: $(cat err)"
	mkdir into
	status 0 "$sluice" cp -r from/ from/a/link to/a/1 into
	[ "$(ls into)" = "$(printf '1\nfrom\nlink')" ] || fail "$(ls into)"
	[ "$(readlink into/link)" = b/large ] || fail "the link was followed"
	diff -r --no-dereference from into/from > diff || fail "$(cat diff)"
	(cd from && "$sluice" cp -rq . ../dot) || fail "from the working directory"
	diff -r --no-dereference from dot > diff || fail "$(cat diff)"
	rm -rf into/*
	status 0 "$sluice" cp from/a/link from/a/2 into
	same from/a/b/large into/link
	[ ! -L into/link ] || fail "without -r a link is followed"
}

folders_that_are_there_are_merged() {
	tree
	mkdir -p to/from/a to/from/other
	echo old > to/from/a/1
	echo old > to/from/dangling
	echo mine > to/from/a/mine
	status 1 "$sluice" cp -r from to
	says "'to/from/a/1' exists; use -f"
	says "'to/from/dangling' exists; use -f"
	[ "$(cat to/from/a/1 to/from/a/mine)" = "$(printf 'old\nmine')" ] || fail "it was overwritten"
	same from/a/2 to/from/a/2
	chmod u+w to/from/closed # which is as its source, and closed to users
	status 0 "$sluice" cp -rf from to
	same from/a/1 to/from/a/1
	[ "$(readlink to/from/dangling)" = nowhere ] || fail "the link is missing"
	[ "$(cat to/from/a/mine)" = mine ] || fail "mine is gone"
	rm -rf to/from/a
	echo file > to/from/a
	status 1 "$sluice" cp -rf from to
	says "'to/from/a' is no directory"
	[ "$(cat to/from/a)" = file ] || fail "the file is gone"
	rm -rf to/from
	mkdir -p to/from/a/2
	status 1 "$sluice" cp -rf from to
	says "'to/from/a/2' is a directory"
	same from/a/3 to/from/a/3
}

a_link_replaces_neither_its_file_nor_a_device() {
	local long
	long=$(printf '%0255d' 0)
	mkdir from
	echo text > file
	ln -s ../file from/link
	ln -s nowhere "from/$long"
	ln file other
	status 1 "$sluice" cp -rf from/link file
	says "are the same file"
	status 1 "$sluice" cp -rf from/link other
	[ "$(cat file other)" = "$(printf 'text\ntext')" ] || fail "the file is lost"
	mkfifo fifo
	status 1 "$sluice" cp -rf from/link fifo
	says "'fifo' is neither a file nor a link"
	[ -p fifo ] || fail "it was replaced"
	status 0 "$sluice" cp -r from to
	status 0 "$sluice" cp -rf from/. to
	holds to "$long" link
}

errors_of_one_do_not_stop_the_others() {
	mkdir -p from/sub to
	echo text > from/one
	echo text > from/two
	mkfifo from/fifo
	status 1 "$sluice" cp from/one nothing from/sub from/two to
	says "'nothing'"
	says "'from/sub' is a directory, which -r copies"
	holds to one two
	status 1 "$sluice" cp -rf from to
	says "'from/fifo' is a FIFO, which -r does not copy"
	holds to/from one sub two
	status 1 "$sluice" cp -r from /dev/null to
	status 1 "$sluice" cp from/one from/two new
	says "'new' is no directory"
	status 1 "$sluice" cp -r from/one from/two store://x
	says "no directory"
	[ ! -e new ] || fail "there is something"
	status 1 "$sluice" cp -r from -
	says "'-' is no directory"
	[ ! -e ./- ] || fail "standard output became a directory"
}

# Port 1 refuses connections.
messages_about_several_do_not_show_passwords() {
	local to remote=http://user:SECRET@127.0.0.1:1/x
	mkdir to
	echo text > x
	for to in to "$remote" - new; do
		status 1 env SLUICE_HTTP_ATTEMPTS=1 SLUICE_LOG=debug "$sluice" cp x "$remote?sig=SECRET" "$remote" "$to"
		says "sluice cp: "
		! grep SECRET err out > shown || fail "$(cat shown)"
	done
}

sync_copies_what_differs_between_folders() {
	tree
	status 0 "$sluice" sync from to
	diff -r --no-dereference from to > diff || fail "$(cat diff)"
	status 0 "$sluice" sync --dry-run from to/
	[ ! -s out ] || fail "again: $(cat out)"
	echo more >> from/a/1
	touch -d "next minute" from/a/2
	rm to/a/3
	touch -d 2001-01-01 from/a/4
	ln -sfn elsewhere from/dangling
	echo mine > to/a/mine
	ln -s nowhere to/a/mine-too
	mkdir to/hollow
	status 0 "$sluice" sync --dry-run --delete from to
	[ "$(sort out)" = "$(printf 'delete to/a/mine\ndelete to/a/mine-too\nfrom/a/1 -> to/a/1\nfrom/a/2 -> to/a/2\nfrom/a/3 -> to/a/3\nfrom/dangling -> to/dangling')" ] || fail "$(cat out)"
	status 0 "$sluice" sync --delete --exclude '*/mine' from to
	[ "$(cat out)" = "delete to/a/mine-too" ] || fail "$(cat out)"
	rm -d to/a/mine to/hollow
	diff -r --no-dereference from to > diff || fail "$(cat diff)"
}

sync_keeps_links_that_it_has_copied_through() {
	mkdir -p from/a to else
	echo text | tee from/a/x > from/b-y
	ln -s ../else to/a
	ln -s ../else to/b
	ln -s ../else to/mine
	status 0 "$sluice" sync --delete from to
	[ "$(sort out)" = "$(printf 'delete to/b\ndelete to/mine')" ] || fail "$(cat out)"
	[ "$(cat to/a/x)" = text ] || fail "the copy is gone"
}

times_beyond_all_clocks_are_compared() {
	mkdir from
	echo text > from/a
	touch -d @9500000000 from/a # in 2271, beyond 64 bits of nanoseconds
	[ "$(stat -c %Y from/a)" = 9500000000 ] || skip "no such times here"
	echo text > from/b
	status 0 "$sluice" sync from to
	touch -d @9500000001 to/a to/b
	status 0 "$sluice" sync --dry-run from to
	[ ! -s out ] || fail "$(cat out)"
	touch -d @1 to/a
	status 0 "$sluice" sync --dry-run from to
	[ "$(cat out)" = "from/a -> to/a" ] || fail "$(cat out)"
}

sync_refuses_what_is_no_pair_of_folders() {
	mkdir -p a/b c
	echo text > a/file
	ln -s a link
	status 2 "$sluice" sync a
	status 2 "$sluice" sync a b c
	status 1 "$sluice" sync a/file c
	says "'a/file' is no folder"
	status 1 "$sluice" sync --delete none c
	says "'none' is no folder"
	status 1 "$sluice" sync --delete c none/deep
	for pair in "a a" "a a/b" "a/b a" "link a/." ". a" "a/b/ ./" "a a/new" "a link/new/deep" ". ./new"; do
		# shellcheck disable=SC2086 # two words
		status 1 "$sluice" sync --delete $pair
		says "are one, or one is in the other"
	done
	[ "$(cat a/file)" = text ] && [ ! -e a/new ] || fail "a file is gone, or a folder was made"
	echo mine > c/mine
	mkfifo a/fifo
	status 1 "$sluice" sync --delete a c
	says "nothing is deleted"
	[ -e c/mine ] || fail "it was removed"
	status 0 "$sluice" sync --delete --exclude fifo link c
	holds c b file
	status 1 "$sluice" sync --no-sign-request a s3://
	status 1 "$sluice" cp -r --no-sign-request a s3://
	[ ! -e s3: ] || fail "s3:// became a folder"
	status 2 "$sluice" cp --update a/file c
	says "are for -r"
	status 2 "$sluice" cp -r --update --skip-existing a c
	status 1 "$sluice" cp -r --update a/file c
	says "'a/file' is no folder"
}

sources_of_one_name_are_refused() {
	mkdir a b to
	echo a > a/x
	echo b > b/x
	status 1 "$sluice" cp -f a/x b/x to
	says "'b/x': there was a SRC of that name already"
	[ "$(cat to/x)" = a ] || fail "$(cat to/x)"
	mkdir a/d b/d
	status 1 "$sluice" cp -rf a/d b/d/ to
	says "there was a SRC of that name"
}

a_folder_is_not_copied_into_itself() {
	mkdir -p from/sub
	echo text > from/sub/file
	status 1 "$sluice" cp -r from from/copy
	says "not copied into itself"
	same from/sub/file from/copy/sub/file
	[ ! -e from/copy/copy ] || fail "it was"
	status 1 "$sluice" cp -r from from
	says "not copied into itself"
	status 1 "$sluice" cp -rf from/sub/file from/sub
	says "are the same file"
}

a_folder_that_is_in_itself_has_no_end() {
	mkdir -p from/sub
	echo text > from/file
	unshare -m mount --bind from from/sub 2> /dev/null || skip "nothing can be mounted here"
	# shellcheck disable=SC2016 # the shell within expands it
	status 1 unshare -m bash -c 'mount --bind from from/sub && "$1" cp -r from to' - "$sluice"
	says "'from/sub' is a directory that it is in"
	holds to file
}

what_p_keeps() {
	tree
	touch -d 2001-02-03T04:05:06.789 from/a/b/large from/a/2
	touch -h -d 2002-02-03T04:05:06.789 from/a/link
	chmod 6751 from/a/2
	chmod 444 from/a/3
	chmod 0 from/a/4
	touch -d 2003-02-03T04:05:06.789 from/a/b from/closed from
	[ "$(id -u)" != 0 ] || { chown 1234:2345 from/a/5 && chown -h 1234:2345 from/a/link; }
	python -c 'import os; os.setxattr("from/a/2", "user.note", b"kept")' 2> /dev/null || : > no-xattr
	[ "$(id -u)" = 0 ] || chmod 400 from/a/4
	status 0 "$sluice" cp -rp from to
	[ "$(listed to '%y %m %U %G %T@ %l')" = "$(listed from '%y %m %U %G %T@ %l')" ] ||
		fail "$(diff <(listed from '%y %m %U %G %T@ %l') <(listed to '%y %m %U %G %T@ %l'))"
	[ -e no-xattr ] || says "'from/a/2' has extended attributes or access control lists, which are not copied; 'cp -a'"
	echo old > single
	chmod 777 single
	status 0 "$sluice" cp -fp from/a/2 single
	[ "$(stat -c '%a %Y' single)" = "$(stat -c '%a %Y' from/a/2)" ] || fail "single: $(stat -c '%a %Y' single)"
	status 0 "$sluice" cp -f from/a/2 other
	[ "$(stat -c %Y other)" != "$(stat -c %Y from/a/2)" ] || fail "without -p the time is kept"
	status 1 "$sluice" cp -p from/a/1 -
	says "-p: 'standard output' is no local file"
}

losses_are_named_once() {
	mkdir from
	echo text > from/1
	echo text > from/2
	ln from/1 from/one
	ln from/2 from/two
	status 0 "$sluice" cp -qrp from to
	[ "$(wc -l < err)" = 1 ] || fail "$(cat err)"
	says "has hard links, which are not copied; 'cp -a' copies them"
	diff -r from to > diff || fail "$(cat diff)"
	[ "$(stat -c %h to/one)" = 1 ] || fail "it is a link"
	status 0 "$sluice" cp -qr from plain
	[ ! -s err ] || fail "$(cat err)"
}

# A list that gives the user 4321 all, and is the default of what is made in the directory.
p_keeps_no_access_lists_of_the_directory() {
	mkdir -m 755 to from
	echo text > from/file
	chmod 640 from/file
	python -c 'import os, struct
entries = (1, 7, -1), (2, 7, 4321), (4, 5, -1), (16, 7, -1), (32, 5, -1)
os.setxattr("to", "system.posix_acl_default", struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *e) for e in entries))' \
		2> /dev/null || skip "no access control lists here"
	status 0 "$sluice" cp -p from/file to
	status 0 "$sluice" cp -rp from to
	python -c 'import os, sys; sys.exit(any(os.listxattr(f) for f in ("to/file", "to/from", "to/from/file")))' ||
		fail "another user has access"
	[ "$(listed to/from '%m')" = "$(listed from '%m')" ] || fail "$(listed to/from '%m')"
}

preserved_owner_may_be_another_user() {
	[ "$(id -u)" = 0 ] || skip "only root may become another user"
	local as=(setpriv --reuid 4321 --regid 4321 --clear-groups)
	chmod 711 "$scratch"
	chmod 777 .
	"${as[@]}" bash -c 'cd "$1" && "$2" --version' - "$PWD" "$sluice" > /dev/null 2>&1 || skip "no other user gets here"
	echo text > from
	chmod 6755 from
	touch -d 2001-01-01 from
	status 0 "${as[@]}" "$sluice" cp -p from to
	[ "$(stat -c '%U %a %Y' to)" = "UNKNOWN 755 $(stat -c %Y from)" ] || fail "$(stat -c '%U %a %Y' to)"
	mkdir sticky
	chmod 3777 sticky
	status 0 "${as[@]}" "$sluice" cp -rp sticky kept
	status 0 "${as[@]}" "$sluice" cp -r sticky made
	[ "$(stat -c %a kept made | tr '\n' ' ')" = "1777 $(printf '1%o' $((0777 & ~$(umask)))) " ] ||
		fail "$(stat -c %a kept made)"
}

the_bar_counts_bytes_of_files_that_are_being_copied() {
	mkdir to
	mkfifo a b
	TERM=xterm timeout 60 script -qec "'$sluice' cp a b to" /dev/null < /dev/null > terminal &
	exec 3> a 4> b
	noise 3000000 >&3
	noise 3000000 >&4
	await grep -Eq 'to  [1-9][0-9.]* MiB' terminal
	exec 3>&-
	await grep -Eq 'to  1 file, [1-9][0-9.]* MiB' terminal
	exec 4>&-
	wait $!
	[ "$(stat -c %s to/a to/b | tr '\n' ' ')" = "3000000 3000000 " ] || fail "$(ls -l to)"
}

an_interrupt_leaves_no_half_file() {
	local i
	mkdir from to
	for i in 1 2 3 4 5 6 7 8; do truncate -s 1T from/$i; done
	noise 4096 >> from/1
	"$sluice" cp -r --checksum from to 2> err > out &
	until [ -n "$(ls -A to/from 2> /dev/null)" ]; do sleep 0.02; done
	kill -TERM $! 2> /dev/null
	wait $!
	[ $? != 0 ] || fail "it was not interrupted"
	holds to/from
}

an_interrupt_ends_waits_for_fifos() {
	local i
	mkdir to
	for i in 1 2 3 4 5 6; do mkfifo $i; done
	echo text > 7
	"$sluice" cp 7 1 2 3 4 5 6 to 2> err &
	until [ -e to/7 ]; do sleep 0.02; done
	kill -TERM $!
	for ((i = 0; i < 500; i++)); do
		kill -0 $! 2> /dev/null || break
		sleep 0.02
	done
	kill -KILL $! 2> /dev/null && fail "it still runs"
	holds to 7
}

# The copy of fifo fails when it is opened, and says so to nobody.
a_reader_of_messages_that_goes_leaves_no_half_file() {
	local copy
	mkdir to
	mkfifo fifo messages
	echo old > to/fifo
	truncate -s 1T large
	"$sluice" cp --checksum large fifo to 2> messages > out &
	copy=$!
	exec 3< messages
	until [ "$(ls -A to)" != fifo ]; do sleep 0.02; done
	exec 3<&-
	: > fifo
	wait $copy
	[ $? = 141 ] || fail "it did not end by SIGPIPE"
	holds to fifo
}

# The server takes connections and answers none; a source whose copy has begun leaves nothing.
an_interrupt_ends_waits_for_servers() {
	local i port server copy
	mkdir to
	: > port
	echo text > x
	python -c 'import socket, sys, time
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
time.sleep(60)' > port &
	server=$!
	until read -r port < port; do sleep 0.02; done
	env -u http_proxy -u all_proxy "$sluice" cp x "http://127.0.0.1:$port/1" "http://127.0.0.1:$port/2" to 2> err &
	copy=$!
	until [ -e to/x ]; do sleep 0.02; done
	kill -TERM $copy
	for ((i = 0; i < 1000; i++)); do
		kill -0 $copy 2> /dev/null || break
		sleep 0.02
	done
	kill $server
	kill -KILL $copy 2> /dev/null && fail "it still runs"
	wait $copy
	[ $? = 143 ] || fail "it did not end by the signal"
	holds to x
}

# Four at a time; 16 MiB are in flight of each where a container has little memory.
large_files_fit_a_small_container() {
	local i
	mkdir from
	for i in 1 2 3 4; do yes | head -c 80000000 > from/$i; done
	unshare -rm true 2> /dev/null || skip "no mount namespaces here"
	unshare -rm bash -c 'mount -t tmpfs none /sys/fs/cgroup && mkdir /sys/fs/cgroup/memory || exit 9
		echo 268435456 | tee /sys/fs/cgroup/memory.max > /sys/fs/cgroup/memory/memory.limit_in_bytes
		exec "$@"' - "$python" -IS -c 'import resource, subprocess, sys
subprocess.run([sys.argv[1], "cp", "-qr", "from", "to"], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10)' "$sluice" > mib
	local rc=$?
	[ $rc != 9 ] || skip "no mounts in a namespace here"
	[ $rc = 0 ] || fail "status $rc"
	diff -r from to > diff || fail "$(head -3 diff)"
	! grep -qa __asan_init "$sluice" || skip "a sanitizer takes memory of its own"
	[ "$(cat mib)" -lt 160 ] || fail "$(cat mib) MiB are resident"
}

# Of many small files one thread cannot do as many as several: see docs/performance.md for how many.
many_small_files_are_copied() {
	mkdir -p from
	(cd from && head -c 4096000 /dev/urandom | split -b 4096 -a 4)
	status 0 "$sluice" cp -rq from to
	diff -r from to > diff || fail "$(head -3 diff)"
	rm -r to
	# stdbuf loads a library before that of the sanitizer.
	ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0 status 0 \
		stdbuf -o0 "$sluice" cp -rq --checksum from to
	! grep -vE '^[0-9a-f]{32}  to/x[a-z]{4}$' out > diff || fail "lines of several files are mixed: $(head -3 diff)"
	mkdir flat
	find from -type f -exec sh -c 'exec "$0" cp -q "$@" flat' "$sluice" {} + || fail "many arguments"
	diff -r from flat > diff || fail "$(head -3 diff)"
}

run_cases
