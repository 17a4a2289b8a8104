#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The command on datasets of HDF5 files: arrays_test.sh PATH_OF_SLUICE [CASE...]
# shellcheck source=tests/cli/tools.sh
. "$(dirname -- "$0")/tools.sh"

# run.h5, and the same arrays by numpy as *.wanted.npy.
made() {
	/usr/bin/python3 -c 'import h5py' 2> /dev/null || skip "there is no h5py"
	/usr/bin/python3 - <<- 'END'
		import h5py, numpy
		data = {
		    "u": numpy.arange(60 * 700 * 30, dtype="f4").reshape(60, 700, 30), "big": numpy.arange(12, dtype=">i2").reshape(3, 4),
		    "scalar": numpy.array(7.5), "none": numpy.zeros((0, 3), "i1"), "in/words": numpy.array([b"a", b"ethanol"], "S7"),
		    "in/rows": numpy.array([(1.5, 2, [3, 4])], [("x", "<f4"), ("n", "<i8"), ("v", "<i2", (2,))]),
		    "in/deep/z": numpy.array([1 + 2j, 3], "c8"),
		}
		with h5py.File("run.h5", "w") as file:
		    for name, array in data.items():
		        options = {"chunks": (7, 100, 30), "shuffle": True, "compression": "gzip"} if name == "u" else {}
		        file.create_dataset(name, data=array, **options)
		        numpy.save(name.replace("/", "_") + ".wanted.npy", array)
		    file.create_dataset("text", data=["a"])
	END
}

# lines FILE LINE...: these are the lines of the file, blanks counted as one.
lines() {
	local file=$1
	shift
	[ "$(tr -s ' ' < "$file")" = "$(printf '%s\n' "$@")" ] || fail "$file: $(cat "$file")"
}

# alike FILE NAME: both are the same array, for numpy.
alike() {
	/usr/bin/python3 - "$1" "$2" <<- 'END' || fail "$1 and $2 differ"
		import sys, numpy
		one, two = map(numpy.load, sys.argv[1:])
		sys.exit(one.dtype != two.dtype or one.shape != two.shape or one.tobytes() != two.tobytes())
	END
	[ $(($(head -c 4096 "$1" | head -n 1 | wc -c) % 64)) = 0 ] || fail "the header of $1 has no multiple of 64 bytes"
}

datasets_are_listed() {
	made
	status 0 "$sluice" ls run.h5#/
	grep -v text out > rest
	lines rest ' 24 >i2 [3, 4] /big' ' /in/' ' 0 |i1 [0, 3] /none' ' 8 <f8 [] /scalar' \
		' 5040000 <f4 [60, 700, 30] /u shuffle deflate'
	grep -q '/text  .*variable' out || fail "$(cat out)"
	status 0 "$sluice" ls run.h5#/in
	lines out ' /in/deep/' " 16 [('x', '<f4'), ('n', '<i8'), ('v', '<i2', (2,))] [1] /in/rows" ' 14 |S7 [2] /in/words'
	status 0 "$sluice" ls -r "file://$PWD/run.h5#/in/"
	lines out ' 16 <c8 [2] /in/deep/z' " 16 [('x', '<f4'), ('n', '<i8'), ('v', '<i2', (2,))] [1] /in/rows" ' 14 |S7 [2] /in/words'
	status 0 "$sluice" ls run.h5#/u
	lines out ' 5040000 <f4 [60, 700, 30] /u shuffle deflate'
	status 0 "$sluice" ls --json run.h5#/
	grep '"/u"' out > u.json
	json u.json 'j == {"name": "/u", "shape": [60, 700, 30], "chunk": [7, 100, 30], "type": "<f4", "filters": "shuffle deflate", "length": 5040000, "refused": None}'
	grep '"/in"' out > in.json
	json in.json 'j == {"name": "/in", "group": True}'
	grep '"/text"' out > text.json
	json text.json '"variable" in j["refused"] and j["type"] is None'
	status 1 "$sluice" ls run.h5#/not
	says not
	status 1 "$sluice" ls not.h5#/
	says not.h5
}

a_dataset_is_described() {
	made
	status 0 "$sluice" stat run.h5#/u
	grep -v 'allocated\|permissions\|modified\|direct\|backend' out > rest
	lines rest 'type <f4' 'shape [60, 700, 30]' 'chunk [7, 100, 30]' 'filters shuffle deflate' 'uri run.h5#/u' 'kind dataset' \
		'length 5040000 bytes (4.8 MiB)'
	status 0 "$sluice" stat --json run.h5#/big
	json out 'j["shape"] == [3, 4] and j["chunk"] is None and j["type"] == ">i2" and j["filters"] == "" and j["length"] == 24'
	status 1 "$sluice" stat run.h5#/in
	says "group"
}

a_copy_is_a_file_of_numpy() {
	local name
	made
	for name in u big scalar none in/words in/rows in/deep/z; do
		status 0 "$sluice" cp -q "run.h5#/$name" copy.npy
		alike copy.npy "${name//\//_}.wanted.npy"
		rm copy.npy
	done
	"$sluice" cp -q run.h5#/u - > piped.npy || fail "status $?"
	same piped.npy u.wanted.npy
	status 0 "$sluice" cp -q --through emulated run.h5#/u through.npy
	same through.npy u.wanted.npy
	status 0 "$sluice" cp -q --checksum --durable run.h5#/u sum.npy
	same sum.npy u.wanted.npy
	mkdir folder
	status 0 "$sluice" cp -q run.h5#/u run.h5#/in/words folder
	holds folder u.npy words.npy
	same folder/words.npy in_words.wanted.npy
	status 0 "$sluice" cp -q -p run.h5#/u time.npy
	[ "$(stat -c %Y time.npy)" = "$(stat -c %Y run.h5)" ] || fail "another time"
	printf 'a file' > 'odd#'
	mkdir 'odd#d' && printf 'a file' > 'odd#d/u'
	status 0 "$sluice" cp -q 'odd#d/u' plain
	same plain 'odd#d/u'
}

a_copy_that_fails_leaves_nothing() {
	local at
	made
	at=$(/usr/bin/python3 -c 'import h5py; print(h5py.File("run.h5")["u"].id.get_chunk_info(50).byte_offset)')
	printf 'damaged' | dd of=run.h5 bs=1 seek="$at" conv=notrunc status=none
	rm ./*.npy
	printf old > u.npy
	status 1 "$sluice" cp -q -f run.h5#/u u.npy
	says "deflate"
	[ "$(cat u.npy)" = old ] || fail "u.npy was replaced"
	status 1 "$sluice" cp -q run.h5#/u new.npy
	status 1 "$sluice" cp -q run.h5#/text new.npy
	status 1 "$sluice" cp -q run.h5#/not new.npy
	status 1 "$sluice" cp -q --continue run.h5#/big new.npy
	says "--continue"
	status 1 "$sluice" cp -q -f run.h5#/big run.h5
	says "same file"
	status 1 "$sluice" cp -q run.h5#/big run.h5#/other
	holds . err out run.h5 u.npy
}

a_dataset_is_measured() {
	made
	status 0 "$sluice" bench read --json --repeat 2 --op-size 1M run.h5#/u
	json out 'j["bytes"] == 5040000 and j["uri"] == "run.h5#/u"'
	status 0 "$sluice" bench read --cold --repeat 1 run.h5#/u
}

run_cases
