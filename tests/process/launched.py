"""The program under test, and the processes that it has started: what tests that kill some of them share."""
import os
import pathlib
import sys

TRIREME = str(pathlib.Path(sys.argv.pop(1)).resolve()) if len(sys.argv) > 1 else "trireme"


def environment_of(pid):
    try:
        text = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return {}
    return dict(item.split("=", 1) for item in text.split("\0") if "=" in item)


def ranks_of(launcher):
    """Processes of a launcher that live, by the rank they were started as."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            is_ours = os.readlink(f"/proc/{pid}/exe") == TRIREME
        except (OSError, IndexError):
            continue
        if int(fields[1]) == launcher and is_ours and fields[0] != "Z":
            rank = environment_of(pid).get("TRIREME_RANK")
            if rank is not None:
                found[int(rank)] = int(pid)
    return found
