# SPDX-License-Identifier: Apache-2.0
"""python -m sluice: what sluice finds on this machine."""

import sys

import sluice

if sys.argv[1:] == ["--version"]:
    print(sluice.__version__)
elif not sys.argv[1:]:
    sluice.doctor()
else:
    sys.exit("usage: python -m sluice [--version]")
