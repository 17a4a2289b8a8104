#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: links_test.sh SLUICED: fails if the daemon needs any library but those of the C compiler.
needed=$(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
more=$(echo "$needed" | grep -Ev '^(libc|libm|libpthread|libdl|libasan|libubsan|libtsan|libgcc_s|ld-linux.*)\.so')
[ -z "$more" ] && [ -n "$needed" ] && exit 0
echo "sluiced needs" $more
exit 1
