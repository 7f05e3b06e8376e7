# SPDX-License-Identifier: Apache-2.0
"""The functions of Horovod, and ranks that run out of data."""
import unittest

import torch

import ranks
import trireme.horovod as hvd


class Horovod(unittest.TestCase):
    def setUp(self):
        self.rank, self.size = hvd.rank(), hvd.size()
        self.sum = float(sum(range(1, self.size + 1)))

    def test_places(self):
        self.assertTrue(hvd.is_initialized())
        self.assertEqual((hvd.local_rank(), hvd.local_size()), (self.rank, self.size))

    def test_allreduce(self):
        own = torch.full((4,), self.rank + 1.0)
        self.assertEqual(hvd.allreduce(own)[0].item(), self.sum / self.size)
        self.assertEqual(hvd.allreduce(own, op=hvd.Sum)[0].item(), self.sum)
        self.assertEqual(hvd.allreduce(own, average=False)[0].item(), self.sum)
        self.assertEqual(hvd.allreduce(own, op=hvd.Min)[0].item(), 1)
        self.assertEqual(hvd.allreduce(own, op=hvd.Max)[0].item(), self.size)
        self.assertEqual(hvd.allreduce(own, op=hvd.Sum, prescale_factor=2.0, postscale_factor=10.0)[0].item(),
                         20 * self.sum)
        self.assertEqual(own[0].item(), self.rank + 1)
        hvd.allreduce_(own, op=hvd.Sum)
        self.assertEqual(own[0].item(), self.sum)
        with self.assertRaisesRegex(ValueError, "want average or op, got both"):
            hvd.allreduce(own, average=True, op=hvd.Sum)

    def test_allreduce_has_a_gradient(self):
        x = torch.full((3,), 2.0, requires_grad=True)
        (hvd.allreduce(x, op=hvd.Sum) * (self.rank + 1)).sum().backward()
        self.assertEqual(x.grad[0].item(), self.sum)

    def test_several_at_once(self):
        tensors = [torch.full((3, 2), self.rank + 1.0), torch.tensor([self.rank + 1]), torch.full((5,), 1.0)]
        first, second, third = hvd.grouped_allreduce(tensors, op=hvd.Sum)
        self.assertEqual((first[2, 1].item(), second.item(), third[0].item()), (self.sum, self.sum, self.size))
        handle = hvd.allreduce_async(tensors[0], op=hvd.Sum)
        while not hvd.poll(handle):
            pass
        self.assertEqual(hvd.synchronize(handle)[0, 0].item(), self.sum)

    def test_gather_broadcast_and_exchange(self):
        got = hvd.allgather(torch.full((self.rank + 1, 2), float(self.rank)))
        want = [float(r) for r in range(self.size) for _ in range(r + 1)]
        self.assertEqual(got[:, 1].tolist(), want)
        tensor = torch.full((3,), float(self.rank))
        self.assertEqual(hvd.broadcast(tensor, 1)[0].item(), 1)
        self.assertEqual(tensor[0].item(), self.rank)
        out, received = hvd.alltoall(torch.full((self.size * (self.rank + 1),), float(self.rank)),
                                     splits=[self.rank + 1] * self.size)
        self.assertEqual(received.tolist(), [r + 1 for r in range(self.size)])
        self.assertEqual(out.tolist(), want)
        self.assertEqual(hvd.alltoall(torch.arange(float(self.size)))[0].item(), self.rank)

    def test_reducescatter(self):
        rows = 2 * self.size + 1
        out = hvd.reducescatter(torch.arange(float(rows)), op=hvd.Sum)
        first = 0 if self.rank == 0 else 2 * self.rank + 1
        self.assertEqual(out.tolist(), [self.size * float(i) for i in range(first, 2 * self.rank + 3)])

    def test_objects_parameters_and_optimizer_state(self):
        self.assertEqual(hvd.broadcast_object({"a": [1, self.rank]}, root_rank=1), {"a": [1, 1]})
        torch.manual_seed(self.rank)
        model = torch.nn.Linear(3, 2)
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        all_weights = hvd.allgather(model.weight.detach())
        self.assertTrue(torch.equal(all_weights[:2], all_weights[-2:]))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * (self.rank + 1), momentum=0.9)
        if self.rank == 0:
            model(torch.ones(1, 3)).sum().backward()
            optimizer.step()
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        self.assertEqual(optimizer.param_groups[0]["lr"], 0.1)
        self.assertEqual(optimizer.state[model.bias]["momentum_buffer"].tolist(), [1, 1])

    def train(self, batches, passes=1):
        """The model after some steps, each on a batch of this rank's own."""
        torch.manual_seed(7)
        model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5),
                                             model.named_parameters(), backward_passes_per_step=passes)
        hvd.broadcast_parameters(model.state_dict())
        for group in batches:
            optimizer.zero_grad()
            for batch in group:
                model(batch).pow(2).mean().backward()
            optimizer.step()
        return model

    def reference(self, batches_of_all):
        """One process with the mean of the ranks' gradients."""
        torch.manual_seed(7)
        model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
        for groups in batches_of_all:
            optimizer.zero_grad()
            for group in groups:
                for batch in group:
                    (model(batch).pow(2).mean() / len(groups)).backward()
            optimizer.step()
        return model

    def batches(self, rank, steps, passes):
        generator = torch.Generator().manual_seed(100 + rank)
        return [[torch.randn(4, 6, generator=generator) for _ in range(passes)] for _ in range(steps)]

    def check(self, got, want):
        for a, b in zip(got.parameters(), want.parameters()):
            self.assertTrue(torch.allclose(a, b, atol=1e-6))

    def test_the_optimizer_averages_gradients(self):
        for passes in (1, 2):
            every = [self.batches(r, 4, passes) for r in range(self.size)]
            self.check(self.train(every[self.rank], passes), self.reference(list(zip(*every))))

    def test_ranks_that_run_out_of_data_join(self):
        steps = [5 - 2 * (r % 2) for r in range(self.size)]
        every = [self.batches(r, steps[r], 1) for r in range(self.size)]
        model = self.train(every[self.rank])
        last = hvd.join()
        self.assertEqual(last, max(r for r in range(self.size) if steps[r] == 5))
        if steps[self.rank] == 5:  # of those that have data in each step
            self.check(model, self.reference([[every[r][s] for r in range(self.size) if s < steps[r]]
                                              for s in range(5)]))
        self.assertEqual(hvd.allreduce(torch.ones(2), op=hvd.Sum)[0].item(), self.size)
        if self.rank == 0:
            least = hvd.allreduce(torch.tensor([-3, 4], dtype=torch.int8), op=hvd.Min)
            self.assertEqual(least.tolist(), [-3, 4])
            self.assertEqual(hvd.allreduce(torch.tensor([-3.5]), op=hvd.Max).tolist(), [-3.5])
        hvd.join()


if __name__ == "__main__":
    if "TRIREME_TEST_RANKS" in ranks.os.environ:
        hvd.init()
    ranks.main(init=False)
