"""The program under test, and the processes that it has started: what tests that kill some of them share."""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import unittest

TRIREME = str(pathlib.Path(sys.argv.pop(1)).resolve()) if len(sys.argv) > 1 else "trireme"

# What nohup or a shell's & ignores here, programs would ignore too; of a signal that is caught they get the default.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda *_: None)

# Seconds after which something that should end or appear is taken for hung: no test waits so long on any machine.
LIMIT_S = 240

# A Python that has what `make pypi` gets, or nothing is there.
PYPI = os.environ.get("TRIREME_PYPI", "/tmp/trireme-venv/bin/python")


def long_test(method):
    """A test that only `make test-all` runs."""
    return method if "TRIREME_TEST_ALL" in os.environ else unittest.skip("one of make test-all")(method)


def pypi_has(module):
    return pathlib.Path(PYPI).exists() and subprocess.run([PYPI, "-c", f"import {module}"], capture_output=True).returncode == 0


def has_address_sanitizer():
    """It takes terabytes of addresses for itself, so no limit of addresses (ulimit -v) can be tested with it."""
    path = shutil.which(TRIREME)
    return path is not None and b"__asan_init" in pathlib.Path(path).read_bytes()


def environment_of(pid):
    try:
        text = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return {}
    return dict(item.split("=", 1) for item in text.split("\0") if "=" in item)


def workers_in(folder):
    """Workers that live and whose command was given in a folder, whoever is their launcher, by rank."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
            is_ours = os.readlink(f"/proc/{pid}/exe") == TRIREME and os.readlink(f"/proc/{pid}/cwd") == str(pathlib.Path(folder).resolve())
        except (OSError, IndexError):
            continue
        rank = environment_of(pid).get("TRIREME_RANK")
        if is_ours and state != "Z" and rank is not None:
            found[int(rank)] = int(pid)
    return found


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
