#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The command on tensors in files: tensors_test.sh PATH_OF_SLUICE [CASE...]
# shellcheck source=tests/cli/tools.sh
. "$(dirname -- "$0")/tools.sh"

# safetensors FILE JSON BYTES
safetensors() {
	python - "$@" <<- 'END'
		import struct, sys
		json = sys.argv[2].encode()
		with open(sys.argv[1], "wb") as file:
		    file.write(struct.pack("<Q", len(json)) + json + bytes(int(sys.argv[3])))
	END
}

# is FILE LINE...: these are the lines of the file, blanks counted as one.
is() {
	local file=$1
	shift
	[ "$(tr -s ' ' < "$file")" = "$(printf '%s\n' "$@")" ] || fail "$file: $(cat "$file")"
}

tensors_are_listed_in_the_order_of_their_bytes() {
	safetensors a.safetensors '{"b":{"dtype":"BF16","shape":[2,512],"data_offsets":[8,2056]},
		"a\u202e\n":{"dtype":"F64","shape":[],"data_offsets":[0,8]},"__metadata__":{"by":"\u001bhand"}}' 2056
	status 0 "$sluice" tensors ls a.safetensors
	is out ' 8 B float64 [] a\u202e\u000a' ' 2.0 KiB bfloat16 [2, 512] b' '2 tensors, 2.0 KiB'
	status 0 "$sluice" tensors ls --metadata a.safetensors
	is out "a.safetensors: safetensors, $(stat -c %s a.safetensors) bytes" ' by = \u001bhand'
	safetensors c '{"c":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}}' 2
	status 0 "$sluice" tensors ls a.safetensors "file://$PWD/c"
	is out ' 8 B float64 [] a\u202e\u000a in a.safetensors' ' 2.0 KiB bfloat16 [2, 512] b in a.safetensors' \
		" 2 B float4_e2m1 [4] c in file://$PWD/c" '3 tensors, 2.0 KiB'
	echo '{"weight_map":{"c":"c","b":"a.safetensors"}}' > index.json
	status 0 "$sluice" tensors ls index.json
	grep -q '^3 tensors' out || fail "$(cat out)"
}

arrays_that_numpy_writes_are_listed() {
	/usr/bin/python3 -c 'import numpy' || skip "there is no numpy"
	/usr/bin/python3 - > expected <<- 'END'
		import numpy
		types = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32",
		         "float64", "complex64", "complex128"]
		arrays = {}
		for i, name in enumerate(types):
		    shape = [(), (0,), (3,), (2, 3), (4, 0, 5), (1,) * 16, (7, 1, 2, 3)][i % 7]
		    arrays["\u00e4/" + name] = array = numpy.ones(shape, name)
		    numpy.save(f"{name}.npy", array)
		    print(f" {array.nbytes} B {name} {list(shape)} {name} in {name}.npy")
		numpy.savez("all.npz", **arrays)
		numpy.savez_compressed("small.npz", **arrays)
		numpy.save("fortran.npy", numpy.asfortranarray(numpy.ones((2, 3))))
		numpy.save("big.npy", numpy.ones(3, ">f4"))
		numpy.savez("none.npz")
	END
	status 0 "$sluice" tensors ls $(sed 's/.* in //' expected)
	grep -v tensors out | tr -s ' ' > listed
	cmp -s listed expected || fail "$(diff listed expected)"
	status 0 "$sluice" tensors ls all.npz
	grep -v tensors out | tr -s ' ' > listed
	sed 's/\([^ ]*\) in .*$/ä\/\1/' expected > wanted
	cmp -s listed wanted || fail "$(diff listed wanted)"
	status 0 "$sluice" tensors ls none.npz
	is out '0 tensors, 0 B'
	status 1 "$sluice" tensors ls small.npz
	says "it is compressed"
	status 1 "$sluice" tensors ls fortran.npy
	says "Fortran"
	status 1 "$sluice" tensors ls big.npy
	says "big endian"
}

tensors_are_copied_into_a_new_file() {
	python - <<- 'END'
		import json, random, struct
		random.seed(1)
		for file, names in ("a", ["x.1", "y\u202e\"", "x.2"]), ("b", ["z", "x.3"]):
		    header, data = {}, b""
		    for i, name in enumerate(names):
		        shape = [[0, 3], [], [5, 700001]][i]
		        n = [0, 2, 7000010][i]
		        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [len(data), len(data) + n]}
		        data += random.randbytes(n)
		    text = json.dumps(header).encode()
		    open(f"{file}.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data)
	END
	status 0 "$sluice" tensors cp a.safetensors b.safetensors all.safetensors
	status 0 "$sluice" tensors ls all.safetensors
	grep -v '^5 tensors' out > listed
	status 0 "$sluice" tensors ls a.safetensors b.safetensors
	grep -v '^5 tensors' out | sed 's/  in [ab].*//' | cmp -s - listed || fail "$(cat out listed)"
	status 0 "$sluice" tensors cp --name 'x.*' --name z all.safetensors some.safetensors
	status 0 "$sluice" tensors ls some.safetensors
	grep -q '^4 tensors' out || fail "$(cat out)"
	tail -c 7000010 a.safetensors | cmp -s - <(tail -c 7000012 some.safetensors | head -c 7000010) || fail "bytes differ"
	status 0 "$sluice" tensors cp a.safetensors a.safetensors
	status 0 "$sluice" tensors ls a.safetensors
	grep -q '^3 tensors' out || fail "$(cat out)"
	status 0 "$sluice" tensors cp all.safetensors saves
	status 0 "$sluice" tensors cp saves/model.safetensors.index.json whole.safetensors
	cmp all.safetensors whole.safetensors || fail "not the same by way of a folder"
	status 0 "$sluice" tensors cp a.safetensors saves
	[ "$(ls saves | wc -l)" = 2 ] || fail "an old file stays: $(ls saves)"
	status 1 "$sluice" tensors cp --name nothing a.safetensors none
	says "no tensor has such a name"
	[ ! -e none ] || fail "a file was made"
	status 1 "$sluice" tensors cp a.safetensors folder/none
	says "folder/none"
	status 2 "$sluice" tensors cp a.safetensors
	says "is missing"
}

wrong_files_and_wrong_usage_are_named() {
	head -c 1000 /dev/zero > zeros.npy
	status 1 "$sluice" tensors ls zeros.npy
	says "it is neither .safetensors nor an index of such files, .npy or .npz"
	local line
	status 1 "$sluice" tensors ls missing.safetensors
	says "missing.safetensors"
	echo text > text
	status 1 "$sluice" tensors ls text
	says "'text': it is neither .safetensors nor"
	safetensors short '{"c":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}}' 1
	status 1 "$sluice" tensors ls short
	says "'short': tensor 'c': it has 2 bytes from 61 on, and the file 62"
	for line in "" unknown ls "ls --unknown text" --unknown; do
		status 2 "$sluice" tensors $line
		[ -s err ] && [ ! -s out ] || fail "'$line': $(cat out err)"
	done
	status 0 "$sluice" tensors --help
	grep -q '^  ls ' out || fail "$(cat out)"
	status 0 "$sluice" tensors ls --help
	grep -q '^Usage: sluice tensors ls ' out || fail "$(cat out)"
}

loads_are_measured() {
	local of
	safetensors a.safetensors '{"a":{"dtype":"U8","shape":[3000000],"data_offsets":[0,3000000]},
		"b":{"dtype":"U8","shape":[7],"data_offsets":[3000000,3000007]}}' 3000007
	safetensors b.safetensors '{"c":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}}' 2
	for of in "" "--device emulated" "--device emulated --stream"; do
		status 0 "$sluice" tensors bench $of --rounds 2 a.safetensors b.safetensors
		grep -q '^3 tensors in 2 files, 2.9 MiB, to ' out || fail "$(cat out)"
		grep -qE '^loaded at [0-9.]+ [MG]B/s, read without tensors at [0-9.]+ [MG]B/s: [0-9.]+ of it$' out ||
			fail "$(cat out)"
	done
	grep -q 'to emulated:0 in stream order$' out || fail "$(cat out)"
	safetensors none '{}' 0
	status 1 "$sluice" tensors bench none
	says "no tensors with bytes"
	status 2 "$sluice" tensors bench --stream a.safetensors
	says "needs a --device"
}

# The server has no index, and is silent about the upload.
a_second_interrupt_ends_a_copy_to_a_silent_server() {
	safetensors a.safetensors '{"a":{"dtype":"U8","shape":[7],"data_offsets":[0,7]}}' 7
	timeout 60 "$python" - "$sluice" <<- 'END' || fail "the copy did not end by the second interrupt"
		import http.server, os, signal, subprocess, sys, threading

		class Server(http.server.BaseHTTPRequestHandler):
		    def do_GET(self):
		        self.send_error(404)
		    do_HEAD = do_GET
		    def do_PUT(self):
		        asked.set()
		        ended.wait()
		    do_DELETE = do_PUT

		asked, ended = threading.Event(), threading.Event()
		server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
		threading.Thread(target=server.serve_forever, daemon=True).start()
		keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
		endpoint = f"--endpoint-url=http://127.0.0.1:{server.server_port}"
		copy = subprocess.Popen([sys.argv[1], "tensors", "cp", endpoint, "a.safetensors", "s3://bucket/prefix"],
		                        env=os.environ | keys)
		asked.wait()
		status = None
		for patience in 1, 10:
		    copy.send_signal(signal.SIGINT)
		    try:
		        status = copy.wait(patience)
		        break
		    except subprocess.TimeoutExpired:
		        pass
		copy.kill()
		ended.set()
		sys.exit(status != -signal.SIGINT)
	END
}

run_cases
