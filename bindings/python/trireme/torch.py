# SPDX-License-Identifier: Apache-2.0
"""import trireme.torch; torch.distributed.init_process_group("trireme")

Ranks come from torchrun, `trireme launch` and everything else that sets RANK; from mpirun, srun and the others that
Trireme knows; or from the arguments of init_process_group.
"""
import atexit
import importlib
import os
import socket
from datetime import timedelta

import torch
import torch.distributed as dist

from . import _C

_rendezvous = importlib.import_module("torch.distributed.rendezvous")  # a function of torch hides the module's name


def _create(options, _backend_options=None):
    timeout = options.timeout
    if not isinstance(timeout, timedelta):
        timeout = timedelta(seconds=timeout)
    return _C.create(options.store, options.group_rank, options.group_size, timeout, options.group_id,
                     options.global_ranks_in_group)


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
        store = dist.TCPStore(host, int(port), world, False, timeout, False)
    yield store, rank, world


def _env(url, **kwargs):
    """env://, where RANK may be said by another starter."""
    if "RANK" in os.environ or "rank=" in url:
        return _env_of_torch(url, **kwargs)
    return _meet(url, **kwargs)


def _leave():
    if os.getpid() == _PID:  # a fork has no links of its own
        _C.leave_all()


def register():
    """Makes the backend known to torch.distributed; importing this module does it."""
    if hasattr(dist.Backend, "TRIREME"):
        return
    known = {"devices": ["cpu"]} if int(torch.__version__.split(".")[0]) >= 2 else {}
    dist.Backend.register_backend("trireme", _create, extended_api=True, **known)
    dist.register_rendezvous_handler("trireme", _meet)
    # torch has no way to extend a scheme, and `init_process_group("trireme")` means env://.
    _rendezvous._rendezvous_handlers["env"] = _env
    atexit.register(_leave)


_PID = os.getpid()
_env_of_torch = _rendezvous._rendezvous_handlers["env"]
register()
