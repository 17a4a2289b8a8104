# SPDX-License-Identifier: Apache-2.0
"""Pictures for the examples, with nothing but Python."""

import struct
import zlib


def bars(path, rows, unit="s"):
    """Write an SVG with a row of bars for each name: {name: [(from, to), ...]}."""
    end = max(to for parts in rows.values() for _, to in parts)
    lines = []
    for i, (name, parts) in enumerate(rows.items()):
        y, colour = 10 + 40 * i, ("#4477aa", "#ee6677", "#228833", "#ccbb44")[i % 4]
        lines.append(f'<text x="10" y="{y + 20}">{name}</text>')
        lines += [f'<rect x="{130 + 600 * a / end:.1f}" y="{y}" width="{max(600 * (b - a) / end, 1):.1f}" height="30" '
                  f'fill="{colour}" stroke="white"/>' for a, b in parts]
    height = 40 * len(rows) + 40
    lines.append(f'<text x="130" y="{height - 12}">0</text><text x="730" y="{height - 12}" text-anchor="end">'
                 f"{end:.3g} {unit}</text>")
    with open(path, "w") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="750" height="{height}" font-family="sans-serif" '
                   'font-size="14">\n<rect width="100%" height="100%" fill="white"/>\n')
        file.write("\n".join(lines) + "\n</svg>\n")


def grey(path, array):
    """Write a PNG of a two-dimensional array, from black for its least number to white."""
    low, high = float(array.min()), float(array.max())
    pixels = ((array - low) * (255 / (high - low or 1))).astype("u1")
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, 0, 0, 0, 0)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9))
                   + chunk(b"IEND", b""))
