# SPDX-License-Identifier: Apache-2.0
"""import trireme.horovod as hvd: Horovod's functions for PyTorch's CPU tensors, over Trireme.

Works beside torch.distributed: init() takes its default group when that is Trireme's, else starts one. Operations run
in the order in which they are made, which must be the same on all ranks (ranks that differ get an error, on all of
them). Ranks may run out of data: after join() they take part in the others' all-reduces with nothing, and averages are
over the ranks that have data.
"""
import io
from collections import namedtuple
from datetime import timedelta

import torch
import torch.distributed as dist

from . import torch as _backend  # noqa: F401  (registers it)

Average, Sum, Min, Max, Product = "average", "sum", "min", "max", "product"
_OPS = {Average: dist.ReduceOp.AVG, Sum: dist.ReduceOp.SUM, Min: dist.ReduceOp.MIN, Max: dist.ReduceOp.MAX,
        Product: dist.ReduceOp.PRODUCT}

_group = None  # torch's process group
_own = False  # init() made it


def init(timeout=timedelta(minutes=30)):
    """Joins the job this process was started in."""
    global _group, _own
    if _group is not None:
        return
    if not dist.is_initialized():
        dist.init_process_group("trireme", timeout=timeout)
        _group, _own = dist.distributed_c10d._get_default_group(), True
    elif dist.get_backend() == "trireme" or dist.get_backend() == "TRIREME":
        _group = dist.distributed_c10d._get_default_group()
    else:
        _group = dist.new_group(backend="trireme", timeout=timeout)


def shutdown():
    global _group, _own
    if _own and dist.is_initialized():
        dist.destroy_process_group()
    _group, _own = None, False


def is_initialized():
    return _group is not None


def _members():
    if _group is None:
        raise ValueError("trireme.horovod: want init() first")
    return _group


def _native():
    """The C++ group: torch 2 has one of its own around it."""
    group = _members()
    return group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else group


def rank():
    return _members().rank()


def size():
    return _members().size()


def local_rank():
    return _native().local_rank()


def local_size():
    return _native().local_size()


# --- handles: what an operation still has to do is done by synchronize ------------------------------------------------

_Handle = namedtuple("_Handle", "work finish")


def poll(handle):
    """Has it ended? Never blocks."""
    return all(work.is_completed() for work in handle.work)


def synchronize(handle):
    """Waits for an asynchronous operation and returns its result."""
    for work in handle.work:
        work.wait()
    return handle.finish()


def _operation(average, op):
    if average is not None and op is not None:
        raise ValueError("allreduce: want average or op, got both")
    if average is not None:
        op = Average if average else Sum
    op = Average if op is None else op
    if op not in _OPS:
        raise ValueError(f"allreduce: want Average, Sum, Min, Max or Product, got {op!r}")
    return op


def _start_allreduce(tensors, name, op, prescale, postscale):
    """In place; contiguous tensors of one type travel as one."""
    works, scattered = [], []
    if prescale != 1.0:
        for tensor in tensors:
            tensor.mul_(prescale)
    by_type = {}
    for tensor in tensors:
        by_type.setdefault(tensor.dtype, []).append(tensor)
    for group in by_type.values():
        flat = group[0] if len(group) == 1 else torch.cat([tensor.reshape(-1) for tensor in group])
        works.append(_native().all_reduce_joined([flat], _OPS[op], name or ""))
        if len(group) > 1:
            scattered.append((flat, group))

    def finish():
        for flat, group in scattered:
            for tensor, part in zip(group, flat.split([tensor.numel() for tensor in group])):
                tensor.copy_(part.view_as(tensor))
        if postscale != 1.0:
            for tensor in tensors:
                tensor.mul_(postscale)
        return tensors

    return _Handle(works, finish)


@torch.no_grad()
def grouped_allreduce_async_(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0):
    return _start_allreduce(list(tensors), name, _operation(average, op), prescale_factor, postscale_factor)


def grouped_allreduce_async(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0):
    copies = [tensor.detach().clone() for tensor in tensors]
    return grouped_allreduce_async_(copies, average, name, op, prescale_factor, postscale_factor)


@torch.no_grad()
def _of_one(handle):
    return handle._replace(finish=lambda: handle.finish()[0])


def allreduce_async_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0):
    return _of_one(grouped_allreduce_async_([tensor], average, name, op, prescale_factor, postscale_factor))


def allreduce_async(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0):
    return _of_one(grouped_allreduce_async([tensor], average, name, op, prescale_factor, postscale_factor))


def _blocking(start):
    def call(*args, **kwargs):
        with torch.no_grad():
            return synchronize(start(*args, **kwargs))
    return call


def _as_function(tensors, call, adjoint):
    """call(tensors) as a function that autograd knows: the adjoint takes the gradients of the results."""
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(_context, *inputs):
            return tuple(call(inputs))

        @staticmethod
        def backward(_context, *gradients):
            return tuple(adjoint(gradients))

    return list(Function.apply(*tensors))


def grouped_allreduce(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0):
    """Differentiable for averages and sums, as Horovod's."""
    def call(values):
        return _blocking(grouped_allreduce_async)(values, average, name, op, prescale_factor, postscale_factor)

    return _as_function(list(tensors), call, call)


def allreduce(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0):
    return grouped_allreduce([tensor], average, name, op, prescale_factor, postscale_factor)[0]


allreduce_ = _blocking(allreduce_async_)
grouped_allreduce_ = _blocking(grouped_allreduce_async_)


def _flat(tensor):
    return tensor.detach().contiguous()


def _rows_of_all(tensor):
    """First dimensions of all ranks."""
    rows = [torch.empty(1, dtype=torch.int64) for _ in range(size())]
    dist.all_gather(rows, torch.tensor([tensor.shape[0]]), group=_members())
    return [int(count) for count in rows]


def allgather_async(tensor, name=None):
    """Concatenated along the first dimension, which may differ between ranks."""
    if tensor.dim() == 0:
        raise ValueError("allgather: want a tensor with a first dimension, got a scalar")
    rows = _rows_of_all(tensor)
    out = tensor.new_empty([sum(rows), *tensor.shape[1:]])
    work = dist.all_gather(list(out.split(rows)), _flat(tensor), group=_members(), async_op=True)
    return _Handle([work], lambda: out)


def broadcast_async_(tensor, root_rank, name=None):
    return _Handle([dist.broadcast(tensor.detach(), _global(root_rank), group=_members(), async_op=True)],
                   lambda: tensor)


def broadcast_async(tensor, root_rank, name=None):
    return broadcast_async_(tensor.detach().clone(), root_rank, name)


def _global(group_rank):
    """torch.distributed asks for ranks of its default group; this one has all of them, in the same order."""
    if not 0 <= group_rank < size():
        raise ValueError(f"want a rank from 0 to {size() - 1}, got {group_rank}")
    return group_rank


def alltoall_async(tensor, splits=None, name=None):
    """Rows go to ranks as splits says (equally, without it); also what each rank sent here, when splits is given."""
    if splits is None:
        if tensor.shape[0] % size() != 0:
            raise ValueError(f"alltoall: want rows that {size()} ranks divide, got {tensor.shape[0]}")
        sent = torch.full((size(),), tensor.shape[0] // size(), dtype=torch.int64)
    else:
        sent = torch.as_tensor(splits, dtype=torch.int64)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=_members())
    out = tensor.new_empty([int(received.sum()), *tensor.shape[1:]])
    work = dist.all_to_all_single(out, _flat(tensor), received.tolist(), sent.tolist(), group=_members(),
                                  async_op=True)
    return _Handle([work], lambda: out if splits is None else (out, received))


def _rows_here(rows):
    """Horovod's way to part rows: the first ranks have one more."""
    return [rows // size() + (r < rows % size()) for r in range(size())]


@torch.no_grad()
def reducescatter_async(tensor, op=None, name=None, prescale_factor=1.0, postscale_factor=1.0):
    """A piece of the first dimension of what all ranks' tensors come to."""
    rows = _rows_here(tensor.shape[0])
    given = _flat(tensor) if prescale_factor == 1.0 else _flat(tensor) * prescale_factor
    out = tensor.new_empty([rows[rank()], *tensor.shape[1:]])
    work = dist.reduce_scatter(out, list(given.split(rows)), op=_OPS[_operation(None, op)], group=_members(),
                               async_op=True)
    return _Handle([work], lambda: out if postscale_factor == 1.0 else out.mul_(postscale_factor))


allgather = _blocking(allgather_async)
broadcast = _blocking(broadcast_async)
broadcast_ = _blocking(broadcast_async_)
alltoall = _blocking(alltoall_async)
reducescatter = _blocking(reducescatter_async)


def barrier():
    dist.barrier(group=_members())


def join():
    """Says that this rank has no more data, and waits until all have said so. The rank that said it last."""
    return _native().join()


# --- objects, parameters ----------------------------------------------------------------------------------------------

def broadcast_object(value=None, root_rank=0, name=None):
    """Any object that torch.save takes, of root_rank."""
    if rank() == root_rank:
        file = io.BytesIO()
        torch.save(value, file)
        told = torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)
    count = broadcast(torch.tensor([told.numel() if rank() == root_rank else 0]), root_rank)
    data = told if rank() == root_rank else torch.empty(int(count), dtype=torch.uint8)
    broadcast_(data, root_rank)
    if rank() == root_rank:
        return value
    modern = int(torch.__version__.split(".")[0]) >= 2
    return torch.load(io.BytesIO(data.numpy().tobytes()), **({"weights_only": False} if modern else {}))


@torch.no_grad()
def broadcast_parameters(params, root_rank=0):
    """A state_dict, named_parameters(), or a list of (name, tensor)."""
    items = sorted(params.items()) if isinstance(params, dict) else list(params)
    handles = [broadcast_async_(tensor, root_rank) for _, tensor in items if isinstance(tensor, torch.Tensor)]
    for handle in handles:
        synchronize(handle)


def broadcast_optimizer_state(optimizer, root_rank=0):
    """State and hyperparameters of root_rank's optimizer; ranks whose optimizer has no state yet get one."""
    state = broadcast_object(optimizer.state_dict() if rank() == root_rank else None, root_rank)
    if rank() != root_rank:
        optimizer.load_state_dict(state)


# --- the optimizer ----------------------------------------------------------------------------------------------------

BUCKET_BYTES = 25 << 20


def _buckets(parameters):
    """In the order in which gradients come about: the last parameters first."""
    buckets, nbytes = [[]], 0
    for parameter in reversed(parameters):
        if nbytes > BUCKET_BYTES:
            buckets.append([])
            nbytes = 0
        buckets[-1].append(parameter)
        nbytes += parameter.numel() * parameter.element_size()
    return buckets


class _DistributedOptimizer:
    """Mixed into the class of the optimizer it wraps: gradients are averaged while the backward pass goes on."""

    def _prepare(self, op, passes):
        parameters = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
        self._hvd_op, self._hvd_passes = op, passes
        self._hvd_buckets = _buckets(parameters)
        self._hvd_place = {p: i for i, bucket in enumerate(self._hvd_buckets) for p in bucket}
        self._hvd_synchronizes = True
        self._hvd_begin()
        self._hvd_sinks = [self._hvd_hook(p) for p in parameters]

    def _hvd_begin(self):
        self._hvd_left = {p: self._hvd_passes for p in self._hvd_place}
        self._hvd_missing = [len(bucket) for bucket in self._hvd_buckets]
        self._hvd_next, self._hvd_handles = 0, []

    def _hvd_hook(self, parameter):
        if hasattr(parameter, "register_post_accumulate_grad_hook"):
            return parameter.register_post_accumulate_grad_hook(self._hvd_ready)
        # torch 1.13: the node that adds to .grad; it lives as long as somebody holds it
        node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
        node.register_hook(lambda *_: self._hvd_ready(parameter))
        return node

    def _hvd_ready(self, parameter):
        if self._hvd_left[parameter] == 0:
            raise RuntimeError("trireme.horovod: want step() after "
                               f"{self._hvd_passes} backward passes (backward_passes_per_step), got one more")
        self._hvd_left[parameter] -= 1
        if self._hvd_left[parameter] > 0:
            return
        self._hvd_missing[self._hvd_place[parameter]] -= 1
        # In order, so that all ranks start the same operations in the same order.
        while self._hvd_next < len(self._hvd_buckets) and self._hvd_missing[self._hvd_next] == 0:
            self._hvd_start()

    def _hvd_start(self):
        bucket = self._hvd_buckets[self._hvd_next]
        for parameter in bucket:
            if parameter.grad is None:  # unused here, perhaps not elsewhere
                parameter.grad = torch.zeros_like(parameter)
        self._hvd_handles.append(grouped_allreduce_async_([p.grad for p in bucket], op=self._hvd_op,
                                                          name=f"bucket {self._hvd_next}"))
        self._hvd_next += 1

    def synchronize(self):
        """Waits for all gradients; step() does it."""
        while self._hvd_next < len(self._hvd_buckets):
            self._hvd_start()
        with torch.no_grad():
            for handle in self._hvd_handles:
                synchronize(handle)
        self._hvd_begin()
        self._hvd_synchronizes = False

    def step(self, closure=None):
        if self._hvd_synchronizes:
            self.synchronize()
        self._hvd_synchronizes = True
        return super().step(closure)


def DistributedOptimizer(optimizer, named_parameters=None, backward_passes_per_step=1, op=Average):
    """The optimizer; before each step the gradients of backward_passes_per_step backward passes, which torch adds up,
    are averaged (or added) over the ranks."""
    if op not in (Average, Sum):
        raise ValueError(f"DistributedOptimizer: want Average or Sum, got {op!r}")
    if named_parameters is not None:
        known = {p for _, p in named_parameters}
        used = {p for group in optimizer.param_groups for p in group["params"]}
        if not used <= known:
            raise ValueError("DistributedOptimizer: want every parameter of the optimizer in named_parameters, got "
                             f"{len(used - known)} that are not")
    cls = type(optimizer.__class__.__name__, (_DistributedOptimizer, optimizer.__class__), {})
    optimizer.__class__ = cls
    optimizer._prepare(op, backward_passes_per_step)
    return optimizer
