#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The command on a machine whose driver of CUDA is tests/lib/fake_cuda/fake_cuda.c, which lies in FAKE_CUDA_FOLDER:
# cuda_test.sh PATH_OF_SLUICE [CASE...]
# shellcheck source=tests/cli/tools.sh
. "$(dirname -- "$0")/tools.sh"
export LD_LIBRARY_PATH=${FAKE_CUDA_FOLDER:?is not set}
unset CUDA_DEVICE_MAX_CONNECTIONS CUDA_VISIBLE_DEVICES

doctor_shows_drivers_and_what_each_device_has() {
	status 0 "$sluice" doctor --json
	json out '[d["name"] for d in j["drivers"]] == ["CUDA driver", "CUDA channels", "GPUDirect"]'
	json out 'j["drivers"][0]["usable"] and j["drivers"][0]["detail"].startswith("CUDA 13.0")'
	json out '[d["name"] for d in j["devices"]] == ["cuda:0", "cuda:1", "emulated:0", "emulated:1"]'
	json out '[d["real"] for d in j["devices"]] == [True, True, False, False]'
	json out 'j["devices"][0]["detail"] == "Fake GPU, compute capability 9.0"'
	json out 'j["devices"][1]["pci"] == "0000:fb:00.0" and j["devices"][2]["pci"] is None'
	json out 'j["devices"][0]["numa_node"] is None and j["devices"][0]["cores_there"] is None'
	json out 'all(d["stream_order"] and d["free_bytes"] == d["memory_bytes"] == 16 << 30
		for d in j["devices"])'
	json out 'j["devices"][0]["driver"] == j["drivers"][0]["detail"]'
	status 0 "$sluice" doctor
	grep -qF '+ cuda:1           Fake GPU, compute capability 9.0' out || fail "$(cat out)"
	grep -qF '  memory: 16.0 GiB of 16.0 GiB free' out || fail "$(cat out)"
	grep -qF '  stream order: yes, ' out || fail "$(cat out)"
	grep -qF '  at 0000:fb:00.0' out || fail "$(cat out)"
	FAKE_CUDA_NO_WORDS=1 status 0 "$sluice" doctor
	grep -qF '  stream order: no, ' out || fail "$(cat out)"
}

doctor_shows_the_channels_as_the_environment_has_them() {
	status 0 "$sluice" doctor --json
	json out 'not j["drivers"][1]["usable"] and "is not set" in j["drivers"][1]["detail"]'
	json out '"CUDA_DEVICE_MAX_CONNECTIONS=32" in j["drivers"][1]["remedy"]'
	CUDA_DEVICE_MAX_CONNECTIONS=12 status 0 "$sluice" doctor --json
	json out 'not j["drivers"][1]["usable"] and "12" in j["drivers"][1]["detail"]'
	CUDA_DEVICE_MAX_CONNECTIONS=32 status 0 "$sluice" doctor --json
	json out 'j["drivers"][1]["usable"] and j["drivers"][1]["remedy"] is None'
}

doctor_tells_whether_cufile_is_used() {
	local found='[d for d in j["features"] if d["name"] == "cufile"][0]'
	status 0 "$sluice" doctor --json
	json out "not $found['usable'] and 'by name only' in $found['detail']"
	SLUICE_BACKEND=cufile status 0 "$sluice" doctor --json
	json out "$found['usable'] and 'by cuFile' in $found['effect']"
}

bench_names_the_backend_that_moves_the_bytes() {
	local bench=("$sluice" bench read from --backend cufile --repeat 1 --json)
	noise 1000000 > from
	status 0 "${bench[@]}" --memory device
	json out 'j["backend"] == "cufile"'
	status 0 "${bench[@]}" --memory device --order stream
	json out 'j["backend"] == "auto"'
	SLUICE_CUFILE_STREAMS=1 status 1 "${bench[@]}" --memory device --order stream
	says 'in stream order: that needs nvidia-fs'
	status 0 "${bench[@]}" --memory emulated
	json out 'j["backend"] == "auto"'
	status 0 "${bench[@]}"
	json out 'j["backend"] == "auto"'
}

# The fake then refuses to start with any other number.
commands_ask_for_32_channels_unless_the_user_says_otherwise() {
	noise 5000 > from
	export FAKE_CUDA_CONNECTIONS=32
	status 0 "$sluice" bench read from --memory device --repeat 1
	status 0 "$sluice" cp -q --through device:1 from to
	same from to
	CUDA_DEVICE_MAX_CONNECTIONS=7 status 1 "$sluice" bench read from --memory device
	says "there is no device: cuInit() says CUDA_ERROR_INVALID_DEVICE (101)"
	FAKE_CUDA_CONNECTIONS=7 CUDA_DEVICE_MAX_CONNECTIONS=7 \
		status 0 "$sluice" bench read from --memory device --repeat 1
}

a_driver_that_cannot_be_used_is_named() {
	LD_LIBRARY_PATH=$FAKE_CUDA_FOLDER/old status 0 "$sluice" doctor --json
	json out 'j["drivers"][0]["detail"].endswith(": it is older than CUDA 12.0")'
	json out '[d["name"] for d in j["devices"]] == ["emulated:0", "emulated:1"]'
	FAKE_CUDA_INIT=201 status 0 "$sluice" doctor --json
	json out '[d["name"] for d in j["drivers"]] == ["CUDA driver"]'
	json out 'j["drivers"][0]["detail"] == "cuInit() says CUDA_ERROR_INVALID_CONTEXT (201)"'
	json out '"nvidia-smi" in j["drivers"][0]["remedy"]'
	FAKE_CUDA_INIT=100 status 1 "$sluice" cp --through device:1 from to
	says 'there is no device: cuInit() says 100; "emulated" is one made of threads'
}

a_device_is_the_nth_that_is_real() {
	local order
	noise 9000001 > from
	for order in host stream; do
		status 0 "$sluice" bench read from --memory device:1 --order $order --op-size 1M --repeat 1 --json
		json out "j['memory'] == 'cuda:1' and j['bytes'] == 9000001"
	done
	for device in device device:0 device:1 cuda cuda:1; do
		rm -f to
		status 0 "$sluice" cp -q --through $device from to
		same from to
	done
	status 1 "$sluice" bench read from --memory device:2
	says 'there is no device "device:2", but cuda:0, cuda:1'
	status 1 "$sluice" cp --through cuda:2 from to2
	says 'there is no device "cuda:2", but cuda:0, cuda:1'
	FAKE_CUDA_NO_WORDS=1 status 1 "$sluice" bench read from --memory device --order stream
	says "cuda:0 has no stream order"
}

a_list_of_tensors_has_all_collections_but_one_on_a_device_that_is_not_there() {
	# A path of a socket is short.
	folder=$(mktemp -d "${TMPDIR:-/tmp}/sluice-cuda.XXXXXX") || exit 1
	export SLUICE_STORE=$folder/socket
	"$SLUICED" --memory 64M --device-memory cuda:0=64M &
	trap 'kill '$!'; rm -rf -- "$folder"' EXIT
	for ((i = 0; i < 500; i++)); do
		"$sluice" store stat > /dev/null 2>&1 && break
		sleep 0.02
	done
	python - <<-'TEXT'
		import struct
		text = b'{"w":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}'
		open("model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + b"abc")
	TEXT
	status 0 "$sluice" store put first model.safetensors --tensors
	status 0 "$sluice" store put there model.safetensors --device cuda:0
	status 0 "$sluice" store put last model.safetensors --tensors
	LD_LIBRARY_PATH='' status 1 "$sluice" store ls --tensors --json
	says "'there': "
	[ "$(grep -c '"tensor": "w"' out)" = 2 ] || fail "$(cat out)"
	status 0 "$sluice" store ls --tensors --json
	[ "$(grep -c '"tensor": "w"' out)" = 3 ] || fail "$(cat out)"
}

run_cases
