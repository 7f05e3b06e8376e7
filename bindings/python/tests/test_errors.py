# SPDX-License-Identifier: Apache-2.0
"""What is wrong is said as an exception with one line: the thing, the wanted, the got. Nobody hangs."""
import os
import re
import signal
import sys
import tempfile
import threading
import time
import unittest
from datetime import timedelta

import torch
import torch.distributed as dist

import ranks


class Arguments(unittest.TestCase):
    """Nothing is lost by a wrong argument."""

    def setUp(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def refuses(self, text, call, *args, **kwargs):
        with self.assertRaisesRegex((ValueError, RuntimeError), text):
            call(*args, **kwargs)

    def test_operations_and_types(self):
        ones = torch.ones(3, dtype=torch.int64)
        for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
            self.refuses("want one of SUM, AVG, MIN, MAX, PRODUCT and PREMUL_SUM, got a bitwise operation",
                         dist.all_reduce, ones, op=op)
        self.refuses("want numbers that can be combined .* got Short", dist.all_reduce, ones.to(torch.int16))
        self.refuses("bool: want SUM, PRODUCT, MIN or MAX, got an average", dist.all_reduce, torch.tensor([True]),
                     op=dist.ReduceOp.AVG)

    def test_sparse_tensors(self):
        sparse = torch.eye(3).to_sparse()
        for op, name in ((dist.ReduceOp.MAX, "max"), (dist.ReduceOp.AVG, "average"), (dist.ReduceOp.PRODUCT, "product")):
            self.refuses(f"a sparse tensor: want SUM of numbers, got {name}", dist.all_reduce, sparse, op=op)
        dense = "want a dense tensor .all_reduce also takes sparse COO ones., got one of layout Sparse"
        self.refuses(f"{dense}|with arguments from the 'SparseCPU' backend", dist.broadcast, sparse, 0)
        self.refuses(f"{dense}Csr|with arguments from the 'SparseCsrCPU' backend", dist.all_reduce, torch.eye(3).to_sparse_csr())
        self.assertEqual(dist.all_reduce(sparse), None)  # all is well

    def test_shapes(self):
        self.refuses(f"all_gather: want a list of {self.world} tensors, got 1", dist.all_gather, [torch.ones(2)],
                     torch.ones(2))
        self.refuses("reduce_scatter: output: want 2 elements, got 3", dist.reduce_scatter, torch.ones(3),
                     [torch.ones(2)] * self.world)
        self.refuses("all_to_all_single: input: want .* splits that make 4 rows", dist.all_to_all_single,
                     torch.ones(4), torch.ones(4), [4] + [0] * (self.world - 1), [1] * (self.world + 3))
        self.refuses("want tensors of one type, got Float and Double|same dtype|Invalid usage of tensors",
                     dist.all_gather, [torch.ones(2, dtype=torch.float64)] * self.world, torch.ones(2))

    def test_sending_to_itself(self):
        self.refuses("want another rank than this one|Invalid destination rank|self", dist.send, torch.ones(1),
                     self.rank)
        self.assertEqual(dist.all_reduce(torch.ones(1)), None)  # all is well


class Failures(unittest.TestCase):
    """Each ends its process group, so each is a job of its own."""

    def job(self, name, world=2):
        results = ranks.start([__file__, name], world)
        for status, output in results:
            self.assertEqual(status, 0, output)

    def test_ranks_that_call_different_things(self):
        self.job("mismatch")

    def test_a_limit_that_passes(self):
        self.job("late")

    def test_a_rank_that_dies(self):
        self.job("dies")

    def test_a_group_after_a_group_at_the_same_store(self):
        self.job("again")

    def test_a_future_gets_the_error(self):
        self.job("future")

    def test_ranks_with_other_roots(self):
        self.job("roots")

    def test_ranks_with_sparse_tensors_of_other_shapes(self):
        self.job("shapes")

    def test_an_operation_that_ends_with_python_is_no_crash(self):
        self.job("ends")

    def test_a_monitored_barrier_names_the_late_ranks(self):
        self.job("monitored", 3)

    def test_an_interrupt_ends_the_wait_for_other_ranks(self):
        self.job("interrupt", 1)


def fails(call, *texts):
    try:
        call()
    except RuntimeError as error:
        missing = [text for text in texts if text not in str(error)]
        assert not missing, f"want {missing} in: {error}"
        return str(error)
    raise AssertionError("nothing was raised")


def mismatch(rank):
    dist.init_process_group("trireme", timeout=timedelta(seconds=60))
    tensor = torch.ones(3 + rank)
    fails(lambda: dist.all_reduce(tensor), "trireme: ", "all_reduce", "f32 x 3", "f32 x 4")
    fails(dist.barrier, "f32 x 3")  # what happened first is said again


def late(rank):
    """Both have joined before the group is made: its limit is that of operations alone."""
    store, _, world = next(trireme.torch._meet("trireme://", timeout=timedelta(seconds=60)))
    group = trireme.torch._C.create(store, rank, world, timedelta(seconds=1), True)
    if rank == 0:
        store.wait(["joined"])
        said = fails(lambda: group.allreduce([torch.ones(3)], dist.AllreduceOptions()).wait(), "all_reduce", "rank 1", "Timed out",
                     "timeout")
        assert float(re.search(r"waited ([0-9.]+) s", said)[1]) < 60, said
        store.set("late", "1")
        store.wait(["heard"])  # which this process serves
    else:
        store.set("joined", "1")
        store.wait(["late"])
        store.set("heard", "1")


def dies(rank):
    dist.init_process_group("trireme", timeout=timedelta(seconds=60))
    dist.barrier()
    if rank == 1:
        sys.stdout.flush()
        os._exit(0)
    fails(lambda: [dist.all_reduce(torch.ones(10)) for _ in range(1000)], "rank 1 is gone")


def again(rank):
    store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), 2, rank == 0, timedelta(seconds=20))
    for turn in range(3):  # torch 1.13's own barrier at a store is for one group only
        group = trireme.torch._C.create(store, rank, 2, timedelta(seconds=20), True)
        tensor = torch.full((2,), turn + 1.0)
        group.allreduce([tensor], dist.AllreduceOptions()).wait()
        assert tensor[0].item() == 2 * (turn + 1)
    group.barrier(dist.BarrierOptions()).wait()


def future(rank):
    dist.init_process_group("trireme", timeout=timedelta(seconds=60))
    work = dist.all_reduce(torch.ones(3 + rank), async_op=True)
    fails(work.get_future().wait, "all_reduce")
    fails(work.wait, "all_reduce")
    assert work.is_completed() and not work.is_success()


def roots(rank):
    dist.init_process_group("trireme", timeout=timedelta(seconds=60))

    def calls():
        dist.broadcast(torch.full((100,), float(rank)), src=rank)
        dist.barrier()
    fails(calls, "broadcast", "root 0", "root 1")


def shapes(rank):
    dist.init_process_group("trireme", timeout=timedelta(seconds=60))
    fails(lambda: dist.all_reduce(torch.eye(3 + rank).to_sparse()), "want sparse tensors of one shape")


class Pause:
    """A global one: Python takes it away after its threads were told to end, and before the process ends."""

    def __init__(self, files):
        self.files, self.sleep, self.exists, self.open, self.remove = files, time.sleep, os.path.exists, open, os.remove

    def __del__(self):
        self.open(self.files[0], "w").close()
        while not self.exists(self.files[1]):
            self.sleep(0.01)
        self.sleep(0.2)
        for path in self.files:
            self.remove(path)


def ends(rank):
    """Rank 1 makes the operation that rank 0 waits for when rank 0's Python is half gone."""
    global pause
    dist.init_process_group("trireme", timeout=timedelta(seconds=60))
    files = [f"/tmp/trireme-ends-{os.environ['MASTER_PORT']}-{turn}" for turn in range(2)]
    if rank == 0:
        dist.all_reduce(torch.ones(3), async_op=True).get_future().then(str)  # no function of this file: its globals would stay
        pause = Pause(files)
        return
    try:
        while not os.path.exists(files[0]):
            time.sleep(0.01)
        dist.all_reduce(torch.ones(3))
    finally:
        open(files[1], "w").close()


def monitored(rank):
    dist.init_process_group("trireme", timeout=timedelta(seconds=60))
    group = dist.distributed_c10d._get_default_group()
    group.monitored_barrier(timedelta(seconds=20))
    store = dist.distributed_c10d._get_default_store()
    names = "Ranks 1, 2 failed to pass monitoredBarrier"
    if rank == 0:
        fails(lambda: group.monitored_barrier(timedelta(seconds=0.2), True), "Timed out", "timeout", f"{names} in 200 ms")
        store.set("turn", "1")
    else:  # too late: both hear of it
        store.wait(["turn"])
        fails(lambda: group.monitored_barrier(timedelta(seconds=20)),
              f"Rank {rank} successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0", names)
    dist.barrier()
    if rank == 0:
        fails(lambda: group.monitored_barrier(timedelta(0)), "Rank 0 timed out in monitoredBarrier after 1 ms",
              "Rank 1 failed to pass monitoredBarrier")
    dist.barrier()
    if rank != 0:
        fails(lambda: group.monitored_barrier(timedelta(seconds=20)), f"Rank {rank} successfully reached")
    dist.barrier()
    group.monitored_barrier(timedelta(seconds=20))  # the group still works, though ranks 1 and 2 missed a barrier
    dist.barrier()


def interrupt(rank):
    with tempfile.TemporaryDirectory() as folder:
        store = dist.FileStore(os.path.join(folder, "store"), 2)
        try:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            dist.init_process_group("trireme", store=store, rank=0, world_size=2, timeout=timedelta(seconds=60))
        except KeyboardInterrupt:
            return
        raise AssertionError("want KeyboardInterrupt")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        import trireme.torch  # noqa: F401
        globals()[sys.argv[1]](int(os.environ["RANK"]))
        sys.exit()
    if "TRIREME_TEST_RANKS" in os.environ:
        del Failures
    elif not unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromTestCase(Failures)).wasSuccessful():
        sys.exit(1)
    ranks.main(worlds=(2,))
