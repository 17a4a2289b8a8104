# SPDX-License-Identifier: Apache-2.0
#
# A thin front to meson and ninja. make help says what there is.

# As last time if it is not said; /usr/local the first time.
prefix ?= $(PREFIX)

.PHONY: all python wheel demo demo-files check check-python check-gpu stress bench bench-local bench-weights bench-models bench-save bench-python bench-http bench-s3 bench-writer bench-arrays bench-mpi bench-store bench-gpu bench-store-gpu format install uninstall clean help

all:
	@scripts/build build --buildtype=release -Dtests=false $(if $(prefix),--prefix=$(prefix))

python:
	@scripts/bootstrap python
	@$(MAKE) --no-print-directory all
	@ninja -C build package
	@scripts/give-back build
	@echo 'PYTHONPATH=$(CURDIR)/build/python python3 -m sluice'

wheel:
	@scripts/bootstrap wheel
	@scripts/wheel

demo:
	@scripts/bootstrap demo
	@$(MAKE) --no-print-directory all
	@scripts/demo

demo-files:
	@scripts/bootstrap build
	@$(MAKE) --no-print-directory all
	@scripts/demo-files

# By ROOM="http s3" the suites of these alone.
check:
	@scripts/bootstrap check
	@ROOM="$(ROOM)" scripts/check

check-python:
	@scripts/bootstrap check
	@scripts/check python

check-gpu:
	@scripts/check-gpu || [ $$? -eq 77 ]

stress:
	@scripts/bootstrap check
	@scripts/check stress wide

# All that the machine allows, some minutes; BENCH_FLAGS="--long" takes hours.
bench:
	@scripts/bootstrap bench
	@/usr/bin/python3 bench/all $(BENCH_FLAGS)

bench-local:
	@scripts/bootstrap bench
	@$(MAKE) --no-print-directory all
	@ninja -C build bench/bench_small
	@bench/local $(BENCH_FLAGS)

bench-http:
	@scripts/bootstrap bench
	@$(MAKE) --no-print-directory all
	@bench/http $(BENCH_FLAGS)

bench-s3:
	@scripts/bootstrap bench s3
	@$(MAKE) --no-print-directory all
	@/usr/bin/python3 bench/s3 $(BENCH_FLAGS)

bench-writer:
	@scripts/bootstrap bench
	@$(MAKE) --no-print-directory all
	@ninja -C build bench/bench_writer bench/bench_writer_frames
	@bench/writer $(BENCH_FLAGS)

bench-arrays: python
	@scripts/bootstrap bench
	@ninja -C build bench/bench_arrays
	@/usr/bin/python3 bench/arrays $(BENCH_FLAGS)

bench-mpi:
	@scripts/bootstrap bench
	@$(MAKE) --no-print-directory all
	@ninja -C build bench_mpi_programs
	@bench/mpi $(BENCH_FLAGS)

bench-store:
	@scripts/bootstrap bench
	@$(MAKE) --no-print-directory all
	@ninja -C build bench/bench_store bench/bench_catalogue
	@bench/store $(BENCH_FLAGS)

bench-weights: python
	@bench/weights $(BENCH_FLAGS)

bench-save: python
	@bench/save $(BENCH_FLAGS)

bench-models: python
	@bench/models $(BENCH_FLAGS)

bench-python: python
	@/usr/bin/python3 bench/python $(BENCH_FLAGS)

# On a machine with a GPU, which need not be Debian: nothing is installed, and what it lacks may lie in
# carry/.
bench-gpu:
	@PKG_CONFIG_PATH=$(CURDIR)/carry:$$PKG_CONFIG_PATH scripts/build build/gpu --buildtype=release -Dtests=false
	@ninja -C build/gpu bench/bench_device
	@bench/device $(BENCH_FLAGS)

bench-store-gpu:
	@PKG_CONFIG_PATH=$(CURDIR)/carry:$$PKG_CONFIG_PATH scripts/build build/gpu --buildtype=release -Dtests=false
	@ninja -C build/gpu bench/bench_store_gpu
	@bench/store-gpu $(BENCH_FLAGS)

format:
	@scripts/bootstrap format
	@scripts/check-format --fix

install: all
	@meson install -C build --no-rebuild; status=$$?; scripts/give-back build; exit $$status

uninstall:
	@ninja -C build uninstall; status=$$?; scripts/give-back build; exit $$status

clean:
	rm -rf build

help:
	@echo 'make              build the library and the command into build/'
	@echo 'make python       build the Python package into build/python'
	@echo 'make wheel        a wheel of it in build/wheel, with all libraries that it needs; by pip and auditwheel'
	@echo 'make demo         simulate, store 200 images in the background, and look at some in demo/'
	@echo 'make demo-files   copy a file of 1 GiB with sluice, cp and dd, and compare'
	@echo 'make check        build and run the tests; some minutes'
	@echo '                  only the tests of some folders of tests/: ROOM="http s3"'
	@echo 'make check-python the tests of the Python package with numpy 2, torch, mypy and ruff of PyPI'
	@echo 'make check-gpu    the tests on an NVIDIA GPU; skipped without one'
	@echo 'make stress       the tests that take long'
	@echo 'make bench        all of the following that the machine allows, and a page with plots; BENCH_FLAGS=--long for hours'
	@echo 'make bench-local  compare with fio and dd; BENCH_FLAGS="--quick --gate"'
	@echo 'make bench-weights weights of a model into memory or a GPU, beside other loaders'
	@echo 'make bench-save    tensors to storage while a loop goes on, beside other ways to save'
	@echo 'make bench-models collections in the store, beside other ways to share tensors'
	@echo 'make bench-python the Python package beside other ways to read in Python'
	@echo 'make bench-http   compare with curl and aria2c, on an nginx of its own'
	@echo 'make bench-s3     compare with rclone and s3cmd, on a gateway of its own'
	@echo 'make bench-writer compare with H5Dwrite, on frames of a simulation'
	@echo 'make bench-arrays datasets of HDF5 files beside H5Dread, h5py and zarr'
	@echo 'make bench-mpi    frames of the ranks of MPI beside parallel HDF5'
	@echo 'make bench-store  the store beside bare sockets, memcpy and iceoryx'
	@echo 'make bench-gpu    measure on an NVIDIA GPU; skipped where there is none'
	@echo 'make bench-store-gpu hands memory of a GPU from process to process, by the store and without it'
	@echo 'make format       format the sources with clang-format'
	@echo 'make install      install; DESTDIR= and prefix= are honoured, which is as last time, or /usr/local'
	@echo 'make uninstall    remove what make install has installed last'
	@echo 'make clean        remove build/'
	@echo
	@echo 'demo and check install what they need with scripts/bootstrap; plain make does not.'
