# SPDX-License-Identifier: Apache-2.0
"""Sub-groups, handles and futures, sends and receives, checkpoints beside training."""
import gc
import os
import tempfile
import threading
import time
import unittest
from datetime import timedelta

import torch
import torch.distributed as dist

import ranks

try:
    import torch.distributed.checkpoint as dcp
except ImportError:
    dcp = None
BIG = 3_000_000  # elements: more than any ring holds


class Groups(unittest.TestCase):
    def setUp(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def test_groups_that_only_members_make(self):
        pair, rest = dist.new_group([0, 1]), dist.new_group(list(range(1, self.world)))
        everybody = dist.new_group()
        again = dist.new_group([0, 1])
        for _ in range(3):
            if self.rank < 2:
                tensor = torch.tensor([self.rank + 1])
                dist.all_reduce(tensor, group=pair)
                self.assertEqual(tensor.item(), 3)
                dist.broadcast(tensor.fill_(self.rank), 1, group=again)
                self.assertEqual(tensor.item(), 1)
            if self.rank >= 1:
                parts = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world - 1)]
                dist.all_gather(parts, torch.tensor([self.rank]), group=rest)
                self.assertEqual([int(p) for p in parts], list(range(1, self.world)))
            tensor = torch.ones(1)
            dist.all_reduce(tensor, group=everybody)
            self.assertEqual(tensor.item(), self.world)
        if self.rank < 2:
            dist.destroy_process_group(again)
        dist.barrier()

    def test_a_group_of_one(self):
        groups = [dist.new_group([r]) for r in range(self.world)]
        tensor = torch.full((3,), float(self.rank))
        dist.all_reduce(tensor, group=groups[self.rank])
        out = [torch.empty(3)]
        dist.all_gather(out, tensor, group=groups[self.rank])
        self.assertTrue(torch.equal(out[0], torch.full((3,), float(self.rank))))

    def test_handles_end_in_order_and_can_be_asked(self):
        tensors = [torch.full((1000,), float(i)) for i in range(8)]
        works = [dist.all_reduce(t, async_op=True) for t in tensors]
        works[-1].wait()
        for i, (work, tensor) in enumerate(zip(works, tensors)):
            self.assertTrue(work.is_completed() and work.is_success())
            self.assertTrue(torch.equal(tensor, torch.full((1000,), float(i * self.world))))
        work = dist.all_reduce(tensors[0], async_op=True)
        deadline = time.time() + 20
        while not work.is_completed() and time.time() < deadline:
            pass
        self.assertTrue(work.is_completed())

    def test_a_handle_that_is_dropped_still_ends(self):
        tensor = torch.ones(100)
        dist.all_reduce(tensor, async_op=True)
        gc.collect()
        dist.barrier()
        self.assertEqual(tensor[0].item(), self.world)

    def test_futures(self):
        tensor = torch.full((10,), self.rank + 1.0)
        future = dist.all_reduce(tensor, async_op=True).get_future()
        doubled = future.then(lambda f: f.value()[0] * 2)
        want = float(sum(range(1, self.world + 1)))
        self.assertEqual(future.wait()[0][0].item(), want)
        self.assertEqual(doubled.wait()[3].item(), 2 * want)
        work = dist.all_reduce(torch.ones(1), async_op=True)
        work.wait()
        self.assertEqual(work.get_future().wait()[0].item(), self.world)

    def test_a_callback_may_wait_for_other_operations(self):
        def by_work(future):
            tensor = future.value()[0].clone()
            dist.all_reduce(tensor, async_op=True).wait()
            return tensor

        def by_future(future):
            return dist.all_reduce(future.value().clone(), async_op=True).get_future().wait()[0]

        def blocking(future):
            tensor = future.value().clone()
            dist.all_reduce(tensor)
            return tensor

        future = dist.all_reduce(torch.ones(10), async_op=True).get_future()
        future = future.then(by_work).then(by_future).then(blocking)
        self.assertEqual(future.wait()[0].item(), self.world ** 4)

    def test_threads_with_a_group_each_do_not_meet(self):
        """Each rank's threads come in an order of their own: rank 0 makes the calls of one group first, rank 1 those of
        the other."""
        groups = [dist.new_group(), dist.new_group()]
        results = [0, 0]

        def calls(index):
            for i in range(20):
                tensor = torch.full((10 + 5000 * index,), float(i))
                dist.all_reduce(tensor, group=groups[index])
                results[index] += int(tensor[0].item() == i * self.world)

        order = [0, 1] if self.rank == 0 else [1, 0]
        threads = [threading.Thread(target=calls, args=(index,)) for index in order]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, [20, 20])

    def test_a_group_waits_while_another_works(self):
        """Rank 0 stands in an operation of one group until the others have made one of another group with it."""
        groups = [dist.new_group(), dist.new_group()]
        late = torch.ones(3)
        if self.rank == 0:
            work = dist.all_reduce(late, group=groups[0], async_op=True)
        dist.barrier(group=groups[1])
        if self.rank != 0:
            work = dist.all_reduce(late, group=groups[0], async_op=True)
        work.wait()
        self.assertEqual(late[0].item(), self.world)

    def test_receive_from_any_rank(self):
        tensor = torch.full((1000,), float(self.rank))
        if self.rank == 0:
            got = []
            for _ in range(self.world - 1):
                source = dist.recv(tensor)
                self.assertEqual(tensor[-1].item(), source)
                got.append(source)
            self.assertEqual(sorted(got), list(range(1, self.world)))
        else:
            dist.send(tensor, 0)
        dist.barrier()

    def test_other_threads_of_python_run_while_one_waits(self):
        """Rank 0 waits for rank 1 in a barrier; rank 1 for a thread of rank 0."""
        store = dist.distributed_c10d._get_default_store()
        dist.barrier()
        if self.rank == 0:
            speaker = threading.Timer(0.2, lambda: store.set("a thread runs", "yes"))
            speaker.start()
            dist.barrier()
            speaker.join()
        else:
            store.wait(["a thread runs"], timedelta(seconds=20))
            dist.barrier()

    def test_send_and_receive(self):
        for count in (0, 1, 1000, BIG):
            tensor = torch.arange(count, dtype=torch.float32)
            if self.rank == 0:
                dist.send(tensor, 1)
                dist.send(tensor + 1, 1, tag=7)
            elif self.rank == 1:
                got = torch.empty(count)
                self.assertEqual(dist.recv(got, 0), 0)
                self.assertTrue(torch.equal(got, tensor))
                dist.recv(got, 0, tag=7)
                self.assertTrue(torch.equal(got, tensor + 1))
        columns = torch.zeros(3, 4)
        if self.rank == 0:
            dist.send(torch.arange(3.0), 1)
        elif self.rank == 1:
            dist.recv(columns[:, 2], 0)
            self.assertTrue(torch.equal(columns[:, 2], torch.arange(3.0)))
            self.assertEqual(columns.sum().item(), 3)

    def test_all_ranks_send_to_all_whatever_the_order(self):
        """Each rank asks in an order of its own, with more than what rings hold."""
        for first_sends in (True, False):
            sent = [torch.full((BIG // 4,), 10.0 * self.rank + r) for r in range(self.world)]
            got = [torch.empty(BIG // 4) for _ in range(self.world)]
            others = [r for r in range(self.world) if r != self.rank]
            if self.rank % 2:
                others.reverse()
            asks = [lambda r=r: dist.isend(sent[r], r) for r in others]
            takes = [lambda r=r: dist.irecv(got[r], r) for r in others]
            order = asks + takes if first_sends != (self.rank == 1) else takes + asks
            for work in [ask() for ask in order]:
                work.wait()
            for r in others:
                self.assertEqual(got[r][-1].item(), 10.0 * r + self.rank)

    def test_a_batch_of_sends_and_receives(self):
        right, left = (self.rank + 1) % self.world, (self.rank - 1) % self.world
        got = torch.empty(BIG // 4)
        own = torch.full((BIG // 4,), float(self.rank))
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, own, right), dist.P2POp(dist.irecv, got, left)])
        for work in works:
            work.wait()
        self.assertEqual(got[5].item(), left)

    def test_a_send_that_nobody_waits_for_arrives(self):
        if self.rank == 0:
            dist.isend(torch.tensor([5.0]), 1)
            time.sleep(0.2)
        elif self.rank == 1:
            got = torch.empty(1)
            dist.irecv(got, 0).wait()
            self.assertEqual(got.item(), 5)
        dist.barrier()

    def test_pairs_inside_a_group(self):
        group = dist.new_group([self.world - 1, 0])
        if self.rank == 0:
            dist.send(torch.tensor([3.0]), self.world - 1, group=group)
        elif self.rank == self.world - 1:
            got = torch.empty(1)
            dist.recv(got, 0, group=group)
            self.assertEqual(got.item(), 3)

    def test_threads_end_with_their_group(self):
        def count():
            return len(os.listdir("/proc/self/task"))

        before = count()
        group = dist.new_group()
        for work in [dist.all_reduce(torch.ones(3), group=group, async_op=True) for _ in range(3)]:
            work.get_future().then(lambda future: future.value()).wait()
        self.assertGreater(count(), before)
        del work
        dist.destroy_process_group(group)
        del group
        gc.collect()
        deadline = time.time() + 20  # a joined thread is seen for a moment
        while count() > before and time.time() < deadline:
            time.sleep(0.01)
        self.assertEqual(count(), before)

    @unittest.skipUnless(hasattr(dcp, "async_save"), "torch 2 only")
    def test_a_checkpoint_is_saved_by_a_group_beside_training(self):
        group = dist.new_group()
        own = f"rank {self.rank}"
        state = {"model": torch.arange(50_000.0), own: torch.full((50_000,), self.rank + 1.0), "step": 3}
        folder = [tempfile.TemporaryDirectory() if self.rank == 0 else None]
        names = [folder[0].name if self.rank == 0 else None]
        dist.broadcast_object_list(names)
        for turn in range(2):
            path, want = f"{names[0]}/{turn}", state["model"].clone()
            saved = dcp.async_save(state, checkpoint_id=path, process_group=group)
            for step in range(1_000_000):  # until the save is through on all ranks
                told = torch.tensor([int(saved.done()), step])
                dist.all_reduce(told)
                self.assertEqual(told[1].item(), step * self.world)
                state["model"] += 1  # what is saved is a copy
                if told[0].item() == self.world:
                    break
            saved.result()
            got = {"model": torch.zeros(50_000), own: torch.zeros(50_000), "step": 0}
            dcp.load(got, checkpoint_id=path, process_group=group)
            self.assertTrue(torch.equal(got["model"], want) and torch.equal(got[own], state[own]))
            self.assertEqual(got["step"], 3)
        dist.barrier()
        if self.rank == 0:
            folder[0].cleanup()


if __name__ == "__main__":
    ranks.main()
