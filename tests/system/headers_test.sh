#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# headers_test.sh INCLUDE: a C++ program includes every header, and has each struct and enum without the word
# `struct` or `enum` before its name: none has the name of a function. A program of 0.1 compiles with compat.h, and streams
# of CUDA and HIP pass without a cast, in C and in C++.
set -euo pipefail
include=${1:?usage: ${0##*/} INCLUDE}
here=$(dirname "$0")
command -v g++ > /dev/null || { echo "there is no g++"; exit 77; }
strict=(-Wall -Wextra -Wshadow -Werror -pedantic-errors -fsyntax-only -I "$include")
# As a header of the system, which may have warnings; without MPI its header is left out.
read -ra mpi <<< "$({ pkg-config --cflags-only-I ompi-c || pkg-config --cflags-only-I mpich; } 2> /dev/null |
	sed 's/-I/-isystem /g')"
complete=$(grep -ohE '^(struct|enum) sluice_[a-z0-9_]+ \{' "$include"/sluice/*.h | cut -d' ' -f2 | sort -u)
[ "$(wc -w <<< "$complete")" -gt 20 ] || { echo "few structs were found: $complete"; exit 1; }
for standard in c++11 c++20; do
	{
		for header in "$include"/sluice/*.h; do
			[ "${header##*/}" = mpi.h ] && [ ${#mpi[@]} = 0 ] || echo "#include <sluice/${header##*/}>"
		done
		for name in $complete; do
			echo "$name *use(const $name &one); inline $name copy_$name(const $name &one) { return one; }"
		done
	} | g++ -std=$standard "${strict[@]}" "${mpi[@]}" -x c++ -
done
for language in "gcc -std=c11" "g++ -std=c++11 -x c++"; do
	$language "${strict[@]}" -include sluice/compat.h "$here/program_0_1.c"
	$language "${strict[@]}" "$here/streams.c"
	if $language "${strict[@]}" "$here/program_0_1.c" 2> /dev/null; then
		echo "a program of 0.1 compiles without compat.h ($language)"
		exit 1
	fi
done
