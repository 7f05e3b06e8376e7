"""Folders of small PNG files, one sub-folder for each class."""
import pathlib
import random
import struct
import zlib


def png(pixels, side):
    """Gray, 8 bits; pixels: rows one after the other."""
    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
    rows = b"".join(b"\0" + bytes(pixels[y * side:(y + 1) * side]) for y in range(side))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def make(folder, count=200, side=40):
    """Noisy stripes, horizontal or vertical."""
    draw = random.Random(1)
    for i in range(count):
        kind, wave = ("horizontal", "vertical")[i % 2], draw.randrange(2, 6)
        at = (lambda x, y: y) if i % 2 == 0 else (lambda x, y: x)
        pixels = [at(x, y) // wave % 2 * 150 + draw.randrange(100) for y in range(side) for x in range(side)]
        path = pathlib.Path(folder) / kind
        path.mkdir(parents=True, exist_ok=True)
        (path / f"{i}.png").write_bytes(png(pixels, side))
