"""Event files of TensorBoard, read by docs/formats/run.md alone: records, Events, points of each tag."""
import pathlib
import struct


def crc32c(data, crc=0xFFFFFFFF, table=[]):
    if not table:
        for byte in range(256):
            value = byte
            for _ in range(8):
                value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
            table.append(value)
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    at = 0
    while at < len(data):
        (length, check), event = struct.unpack_from("<QI", data, at), None
        assert check == masked(data[at:at + 8]), f"checksum of the length at byte {at}"
        event = data[at + 12:at + 12 + length]
        assert struct.unpack_from("<I", data, at + 12 + length)[0] == masked(event), f"checksum of the Event at byte {at}"
        yield event
        at += 16 + length


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def fields(data):
    """(number, value) of a message: a whole number, or bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            length = {1: 8, 5: 4}.get(key & 7)
            if length is None:
                length, at = varint(data, at)
            value = data[at:at + length]
            at += length
        yield key >> 3, value


def first(data, *path):
    for number in path:
        data = next((value for field, value in fields(data) if field == number), b"")
    return data


def event_file(folder):
    found = list(pathlib.Path(folder).glob("events.out.tfevents.*"))
    assert len(found) == 1, f"want one event file in {folder}, found {found}"
    return found[0]


def points(folder):
    """{tag: [(step, value bytes)]} in the order of the file; the graph has the tag "graph"."""
    found = {}
    for event in records(event_file(folder).read_bytes()):
        step = first(event, 2) or 0
        for number, value in fields(event):
            if number == 4:
                found.setdefault("graph", []).append((step, value))
            for field, item in fields(value) if number == 5 else ():
                tag = first(item, 1).decode()
                found.setdefault(tag, []).append((step, b"".join(bytes(v) if isinstance(v, bytes) else bytes([v])
                                                                 for f, v in fields(item) if f != 1)))
    return found
