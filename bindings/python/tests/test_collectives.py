# SPDX-License-Identifier: Apache-2.0
"""Every collective of torch.distributed, with every type, in place, elsewhere, empty, packed and uneven."""
import unittest
import warnings

import torch
import torch.distributed as dist

import ranks

FLOATS = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
INTS = [torch.int64, torch.int32, torch.int8, torch.uint8]
COMPLEX = [torch.complex64, torch.complex128]
MOVED = FLOATS + INTS + COMPLEX + [torch.bool, torch.int16]
LENGTHS = [0, 1, 7, 1000, 70001]


def of(rank, count, dtype):
    """What a rank contributes: small numbers, whose sums every type holds."""
    values = (torch.arange(count) * (rank + 1)) % 5
    return values.to(dtype) if dtype != torch.bool else values > 2


class Collectives(unittest.TestCase):
    def setUp(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        warnings.simplefilter("ignore")

    def all(self, count, dtype):
        return [of(r, count, dtype) for r in range(self.world)]

    def same(self, got, want):
        self.assertEqual(got.dtype, want.dtype)
        self.assertTrue(torch.equal(got, want), f"got {got}, want {want}")

    def test_all_reduce_of_all_types_and_operations(self):
        for dtype in FLOATS + INTS:
            wide = torch.float64 if dtype.is_floating_point else torch.int64
            for count in LENGTHS:
                stack = torch.stack(self.all(count, wide))
                wants = {dist.ReduceOp.SUM: stack.sum(0), dist.ReduceOp.MIN: stack.min(0)[0],
                         dist.ReduceOp.MAX: stack.max(0)[0], dist.ReduceOp.PRODUCT: stack.prod(0)}
                for op, want in wants.items():
                    tensor = of(self.rank, count, dtype)
                    dist.all_reduce(tensor, op=op)
                    self.same(tensor, want.to(dtype))

    def test_all_reduce_averages(self):
        for dtype in FLOATS:
            tensor = torch.full((10,), self.rank * self.world, dtype=dtype)
            dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
            self.same(tensor, torch.full((10,), self.world * (self.world - 1) / 2, dtype=dtype))

    def test_all_reduce_of_elements_times_a_factor(self):
        make = getattr(dist, "_make_nccl_premul_sum", None)
        tensor = torch.full((9,), 2.0)
        dist.all_reduce(tensor, op=make(0.5 * (self.rank + 1)))
        self.same(tensor, torch.full((9,), float(sum(range(1, self.world + 1)))))
        inputs = [torch.full((3,), float(r + 1)) for r in range(self.world)]
        out = torch.empty(3)
        dist.reduce_scatter(out, inputs, op=make(2.0))
        self.same(out, torch.full((3,), 2.0 * self.world * (self.rank + 1)))

    def test_all_reduce_of_complex_and_bool(self):
        for dtype in COMPLEX:
            tensor = torch.full((5,), complex(self.rank, 1), dtype=dtype)
            dist.all_reduce(tensor)
            self.same(tensor, torch.full((5,), complex(sum(range(self.world)), self.world), dtype=dtype))
        for op, want in [(dist.ReduceOp.SUM, True), (dist.ReduceOp.MAX, True), (dist.ReduceOp.PRODUCT, False),
                         (dist.ReduceOp.MIN, False)]:
            tensor = torch.tensor([self.rank == 0])
            dist.all_reduce(tensor, op=op)
            self.same(tensor, torch.tensor([want]))

    def test_all_reduce_of_what_does_not_lie_in_one_piece(self):
        base = torch.zeros(6, 8)
        part = base.t()[1:4]
        part.fill_(self.rank + 1.0)
        dist.all_reduce(part)
        total = float(sum(range(1, self.world + 1)))
        self.same(part, torch.full((3, 6), total))
        self.assertEqual(base.sum().item(), total * 18)
        channels_last = torch.ones(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
        dist.all_reduce(channels_last if self.rank else channels_last.contiguous())
        if self.rank:
            self.same(channels_last.contiguous(), torch.full((2, 3, 4, 4), float(self.world)))
        negative = torch.full((3,), self.rank + 2j).conj().imag  # torch keeps the sign aside
        self.assertTrue(negative.is_neg())
        outputs = [torch.empty(3) for _ in range(self.world)]
        dist.all_gather(outputs, negative)
        for got in outputs:
            self.same(got, torch.full((3,), -2.0))

    def test_all_reduce_of_a_scalar_and_a_leaf(self):
        scalar = torch.tensor(self.rank + 1)
        dist.all_reduce(scalar)
        self.assertEqual(scalar.item(), sum(range(1, self.world + 1)))
        leaf = torch.ones(4, 4, requires_grad=True)
        dist.all_reduce(leaf.t()[:2] if self.rank < 0 else leaf)
        self.same(leaf.detach(), torch.full((4, 4), float(self.world)))

    def test_all_reduce_of_several(self):
        tensors = [torch.full((n,), self.rank + 1.0) for n in (3, 0, 100)]
        dist.all_reduce_coalesced(tensors)
        for tensor in tensors:
            self.same(tensor, torch.full_like(tensor, sum(range(1, self.world + 1))))

    def test_all_reduce_of_sparse_tensors_is_that_of_dense_ones(self):
        shapes = [((9,), 1), ((5, 4), 2), ((6, 3), 1), ((2, 3, 4), 2)]  # of the tensor, and how many dimensions are sparse
        for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.int64):
            for shape, sparse_dim in shapes:
                for count in (0, 1, 6 * self.rank):  # indices come more than once, in no order, or on no rank
                    places = torch.stack([(torch.arange(count) * (5 + i) + self.rank) % shape[i] for i in range(sparse_dim)])
                    values = (torch.arange(count) % 3 + 1).reshape(-1, *[1] * (len(shape) - sparse_dim)).to(dtype)
                    tensor = torch.sparse_coo_tensor(places, values.expand(count, *shape[sparse_dim:]), shape)
                    want = tensor.to_dense()
                    dist.all_reduce(want)
                    dist.all_reduce(tensor)
                    self.assertTrue(tensor.is_sparse and tensor.is_coalesced() and tensor.sparse_dim() == sparse_dim)
                    self.same(tensor.to_dense(), want)
        tensor = torch.eye(3).to_sparse()
        dist.all_reduce(tensor, async_op=True).wait()
        self.same(tensor.to_dense(), torch.eye(3) * self.world)

    def test_broadcast_and_reduce(self):
        for root in range(self.world):
            for dtype in MOVED:
                tensor = of(self.rank, 50, dtype)
                dist.broadcast(tensor, root)
                self.same(tensor, of(root, 50, dtype))
            tensor = of(self.rank, 1000, torch.float32)
            dist.reduce(tensor, root)
            self.same(tensor, sum(self.all(1000, torch.float32)) if self.rank == root else
                      of(self.rank, 1000, torch.float32))

    def test_all_gather(self):
        for dtype in MOVED:
            for count in LENGTHS:
                own = of(self.rank, count, dtype)
                outputs = [torch.empty(count, dtype=dtype) for _ in range(self.world)]
                dist.all_gather(outputs, own)
                for got, want in zip(outputs, self.all(count, dtype)):
                    self.same(got, want)
        into = torch.empty(self.world * 6, dtype=torch.int32)
        dist.all_gather_into_tensor(into, of(self.rank, 6, torch.int32))
        self.same(into, torch.cat(self.all(6, torch.int32)))

    def test_all_gather_of_different_lengths_and_into_columns(self):
        outputs = [torch.empty(3 * r + 1) for r in range(self.world)]
        dist.all_gather(outputs, torch.full((3 * self.rank + 1,), float(self.rank)))
        for r, got in enumerate(outputs):
            self.same(got, torch.full((3 * r + 1,), float(r)))
        outputs = [torch.empty(r) for r in range(self.world)]
        dist.all_gather(outputs, torch.full((self.rank,), float(self.rank)))
        self.same(torch.cat(outputs), torch.cat([torch.full((r,), float(r)) for r in range(self.world)]))
        table = torch.zeros(4, self.world)
        dist.all_gather(list(table.unbind(1)), torch.full((4,), self.rank + 1.0))
        self.same(table, torch.arange(1, self.world + 1, dtype=torch.float32).expand(4, self.world))

    def test_reduce_scatter(self):
        for count in LENGTHS:
            inputs = [of(self.rank + r, count, torch.float32) for r in range(self.world)]
            out = torch.empty(count)
            dist.reduce_scatter(out, inputs)
            want = sum(of(r + self.rank, count, torch.float32) for r in range(self.world))
            self.same(out, want)
            dist.reduce_scatter_tensor(out.zero_(), torch.cat(inputs))
            self.same(out, want)
        inputs = [torch.ones(r + 2, dtype=torch.int64) for r in range(self.world)]
        out = torch.empty(self.rank + 2, dtype=torch.int64)
        dist.reduce_scatter(out, inputs)
        self.same(out, torch.full((self.rank + 2,), self.world))

    def test_gather_and_scatter(self):
        for root in range(self.world):
            for dtype in (torch.float32, torch.bool, torch.int16):
                mine = self.rank == root
                outputs = [torch.empty(9, dtype=dtype) for _ in range(self.world)] if mine else None
                dist.gather(of(self.rank, 9, dtype), outputs, dst=root)
                for got, want in zip(outputs or [], self.all(9, dtype)):
                    self.same(got, want)
                out = torch.empty(9, dtype=dtype)
                dist.scatter(out, self.all(9, dtype) if mine else None, src=root)
                self.same(out, of(self.rank, 9, dtype))

    def test_all_to_all(self):
        inputs = [torch.full((self.rank + 2 * r,), 10.0 * self.rank + r) for r in range(self.world)]
        outputs = [torch.empty(r + 2 * self.rank) for r in range(self.world)]
        dist.all_to_all(outputs, inputs)
        for r, got in enumerate(outputs):
            self.same(got, torch.full((r + 2 * self.rank,), 10.0 * r + self.rank))
        single = torch.empty(2 * self.world, 3)
        dist.all_to_all_single(single, torch.full((2 * self.world, 3), float(self.rank)))
        self.same(single[:, 0], torch.arange(self.world).repeat_interleave(2).float())
        sends = [r + 1 for r in range(self.world)]
        receives = [self.rank + 1] * self.world
        out = torch.empty(sum(receives), 2, dtype=torch.int32)
        dist.all_to_all_single(out, torch.full((sum(sends), 2), self.rank, dtype=torch.int32), receives, sends)
        self.same(out[:, 1], torch.arange(self.world, dtype=torch.int32).repeat_interleave(self.rank + 1))

    def test_objects_and_barriers(self):
        objects = [None] * self.world
        dist.all_gather_object(objects, {"rank": self.rank, "text": "x" * self.rank})
        self.assertEqual([o["rank"] for o in objects], list(range(self.world)))
        told = [objects if self.rank == 0 else None]
        dist.broadcast_object_list(told)
        self.assertEqual(told[0], objects)
        dist.barrier()
        dist.barrier(async_op=True).wait()

    def test_several_in_one_region(self):
        if not hasattr(dist.distributed_c10d, "_time_estimator"):
            self.skipTest("torch 2 only")
        manager = dist.distributed_c10d._coalescing_manager
        tensors = [torch.full((n,), self.rank + 1.0) for n in (5, 9)]
        with manager(device=torch.device("cpu"), async_ops=True) as region:
            for tensor in tensors:
                dist.all_reduce(tensor)
        region.wait()
        for tensor in tensors:
            self.same(tensor, torch.full_like(tensor, sum(range(1, self.world + 1))))
        outputs = [torch.empty(n * self.world) for n in (2, 4)]
        with manager(device=torch.device("cpu")):
            for out in outputs:
                dist.all_gather_into_tensor(out, torch.full((out.numel() // self.world,), float(self.rank)))
        for out in outputs:
            self.same(out, torch.arange(self.world).float().repeat_interleave(out.numel() // self.world))


if __name__ == "__main__":
    ranks.main()
