# SPDX-License-Identifier: Apache-2.0
"""import trireme.torch; torch.distributed.init_process_group("trireme")

Ranks come from torchrun, `trireme launch` and everything else that sets RANK; from mpirun, srun and the others that
Trireme knows; or from the arguments of init_process_group.
"""
import atexit
import importlib
import os
import queue
import socket
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from . import _C

_rendezvous = importlib.import_module("torch.distributed.rendezvous")  # a function of torch hides the module's name


def _create(options, _backend_options=None):
    timeout = options.timeout
    if not isinstance(timeout, timedelta):
        timeout = timedelta(seconds=timeout)
    is_world = not options.global_ranks_in_group
    return _C.create(options.store, options.group_rank, options.group_size, timeout, is_world)


def _beside(call, awaited):
    """Runs a call of torch that waits for other ranks on another thread, so that Ctrl-C ends the wait; reports one that lasts."""
    result = queue.SimpleQueue()

    def run():
        try:
            result.put((call(), None))
        except BaseException as error:
            result.put((None, error))

    threading.Thread(target=run, name="rendezvous", daemon=True).start()
    pause = 10
    while True:
        try:
            value, error = result.get(timeout=pause)
            break
        except queue.Empty:
            print(f"trireme: waiting for {awaited}", file=sys.stderr, flush=True)
            pause *= 2
    if error:
        raise error
    return value


def _meet(url, timeout=timedelta(minutes=30), **_kwargs):
    """trireme://: ranks and meeting point of whoever started this process; torch's store is served by rank 0."""
    rank, world, local_world = _C.join_by_starter(min(timeout.total_seconds(), 1e6))
    store = None
    host = os.environ.get("MASTER_ADDR") or ("127.0.0.1" if local_world == world else socket.getfqdn())
    if rank == 0:
        store = dist.TCPStore(host, 0, world, True, timeout, False)
    address = _C.tell(f"{host}:{store.port}" if rank == 0 else "")
    if rank != 0:
        host, port = address.rsplit(":", 1)
        store = _beside(lambda: dist.TCPStore(host, int(port), world, False, timeout, False), f"rank 0 at {address}")
    yield store, rank, world


def _wait_for_listener(host, port, timeout):
    """Until somebody listens there or the time is over; what happens then is the caller's."""
    until = time.monotonic() + timeout.total_seconds()
    while time.monotonic() < until:
        try:
            socket.create_connection((host, port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)


def _store_of_old_torch(host, port, world, is_master=False, timeout=timedelta(minutes=30), multi_tenant=False):
    """The TCPStore of torch 1 holds Python's lock while it waits, for its server or its clients, so Ctrl-C could not end that."""
    if not is_master:
        _wait_for_listener(host, port, timeout)
    return dist.TCPStore(host, port, world, is_master, timeout, wait_for_workers=False, multi_tenant=multi_tenant)


def _is_asked_for():
    """Whether init_process_group makes a group of this backend now: torch does not tell its handlers of rendezvous."""
    frame = sys._getframe(1)
    while frame and frame.f_code.co_name != "init_process_group":
        frame = frame.f_back
    return frame is not None and "trireme" in str(frame.f_locals.get("backend")).lower()


def _meet_as_torch(url, **kwargs):
    """What torch's own env:// finds; PyTorch 1 makes its store another way meanwhile."""
    store_of_torch = _rendezvous.TCPStore
    if _IS_OLD:
        _rendezvous.TCPStore = _store_of_old_torch
    try:
        return next(_env_of_torch(url, **kwargs))
    finally:
        _rendezvous.TCPStore = store_of_torch


def _env(url, **kwargs):
    """env://, where RANK may be said by another starter; it stays as it was for other backends."""
    if not _is_asked_for():
        return _env_of_torch(url, **kwargs)
    if not os.environ.get("RANK") and "rank=" not in url:
        return _meet(url, **kwargs)
    place = f"{os.environ.get('MASTER_ADDR', '?')}:{os.environ.get('MASTER_PORT', '?')}"
    return iter([_beside(lambda: _meet_as_torch(url, **kwargs), f"the other ranks at {place}")])


def _leave():
    if os.getpid() == _PID:  # a fork has no links of its own
        _C.leave_all()


def register():
    """Makes the backend known to torch.distributed; importing this module does it."""
    if hasattr(dist.Backend, "TRIREME"):
        return
    known = {} if _IS_OLD else {"devices": ["cpu"]}
    dist.Backend.register_backend("trireme", _create, extended_api=True, **known)
    dist.register_rendezvous_handler("trireme", _meet)
    # torch has no way to extend a scheme, and `init_process_group("trireme")` means env://.
    _rendezvous._rendezvous_handlers["env"] = _env
    atexit.register(_leave)


_IS_OLD = int(torch.__version__.split(".")[0]) < 2
_PID = os.getpid()
_env_of_torch = _rendezvous._rendezvous_handlers["env"]
register()
