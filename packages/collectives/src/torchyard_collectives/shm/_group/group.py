"""The process group behind the backend ``"shm"``: its collectives."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup, Work

from torchyard_collectives._torch_compat import let_compiler_read
from torchyard_collectives.shm._group.base import EngineGroup, milliseconds_of
from torchyard_collectives.shm._group.overloads import overloaded
from torchyard_collectives.shm._group.sparse import all_reduce_sparse
from torchyard_collectives.shm._group.tensors import (
    check_alike,
    dense,
    parse_operation,
    put_back,
    real,
    room,
)
from torchyard_collectives.shm._group.uncompiled import eager

__all__ = ["SharedMemoryGroup"]

Tensors = list[Tensor]


@eager
class SharedMemoryGroup(EngineGroup):
    """Collectives of torch.distributed, through an engine."""

    # Reductions.

    @overloaded
    def allreduce(self, tensors: Tensors, opts: Any) -> Work:
        """Combine tensors of all ranks, in place."""
        if (other := self._other(tensors)) is not None:
            return other.allreduce(tensors, opts)
        return self._all_reduce(tensors, opts)

    @overloaded
    def allreduce_coalesced(self, tensors: Tensors, opts: Any) -> Work:
        """Combine many tensors."""
        if (other := self._other(tensors)) is not None:
            return other.allreduce_coalesced(tensors, opts)
        return self._all_reduce(tensors, opts)

    def _all_reduce(self, tensors: Tensors, opts: Any) -> Work:
        reduction = parse_operation(opts.reduceOp)
        limit = self._limit(opts)

        def body() -> None:
            for tensor in tensors:
                if tensor.layout is not torch.strided:
                    all_reduce_sparse(self._engine, tensor, reduction, self._ranks, limit)
                    continue
                whole = room(tensor)
                if whole is not tensor:
                    whole.copy_(tensor.detach())
                if reduction.factor is not None:
                    whole.detach().mul_(reduction.factor)
                numbers = real("all_reduce", whole, reduction)
                self._engine.all_reduce(numbers, reduction.number, limit)
                put_back([tensor], [whole])

        return self._start(body, tensors, opts.asyncOp)

    @overloaded
    def reduce(self, tensors: Tensors, opts: Any) -> Work:
        """Combine tensors of all ranks on one of them."""
        if (other := self._other(tensors)) is not None:
            return other.reduce(tensors, opts)
        reduction = parse_operation(opts.reduceOp)
        limit, root = self._limit(opts), self._root(opts)

        def body() -> None:
            for tensor in tensors:
                whole = dense(tensor)
                if reduction.factor is not None:
                    whole = whole.detach() * reduction.factor
                numbers = real("reduce", whole, reduction)
                self._engine.reduce(numbers, reduction.number, root, limit)
                if root == self._rank:
                    put_back([tensor], [whole])

        return self._start(body, tensors, opts.asyncOp)

    @overloaded
    def reduce_scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> Work:
        """Combine lists of tensors of all ranks; each gets its own."""
        if (other := self._other(outputs)) is not None:
            return other.reduce_scatter(outputs, inputs, opts)
        check_alike("reduce_scatter", *outputs, *(source for each in inputs for source in each))

        def body() -> None:
            for out, sources in zip(outputs, inputs, strict=True):
                self._reduce_scatter(out, sources, opts)

        return self._start(body, outputs, opts.asyncOp)

    def _reduce_scatter(self, out: Tensor, sources: Sequence[Tensor], opts: Any) -> None:
        if len(sources) != self._ranks:
            raise ValueError(
                f"reduce_scatter: expected a tensor for each of {self._ranks} ranks, got "
                f"{len(sources)}"
            )
        reduction = parse_operation(opts.reduceOp)
        wholes = [dense(source) for source in sources]
        if reduction.factor is not None:
            wholes = [whole.detach() * reduction.factor for whole in wholes]
        place = room(out)
        self._engine.reduce_scatter(
            real("reduce_scatter", place, reduction),
            [real("reduce_scatter", whole, reduction) for whole in wholes],
            reduction.number,
            self._limit(opts),
        )
        put_back([out], [place])

    @overloaded
    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any) -> Work:
        """Combine a tensor of all ranks; each gets its part of it."""
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    @overloaded
    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Work:
        """Likewise, with many tensors."""
        if (other := self._other(outputs)) is not None:
            return _preferring(other, "reduce_scatter_single_coalesced", outputs, inputs, opts)
        for out, source in zip(outputs, inputs, strict=True):
            check_alike("reduce_scatter", out, source)

        def body() -> None:
            for out, source in zip(outputs, inputs, strict=True):
                self._reduce_scatter(out, self._parts("reduce_scatter", source, out), opts)

        return self._start(body, outputs, opts.asyncOp)

    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # Movements.

    def _parts(self, what: str, whole: Tensor, part: Tensor) -> Sequence[Tensor]:
        """Divide a tensor that holds one for each rank, all like ``part``."""
        if whole.numel() != part.numel() * self._ranks:
            raise ValueError(
                f"{what}: expected {self._ranks} times the {part.numel()} elements of one rank, "
                f"got {whole.numel()}"
            )
        return dense(whole).detach().view(-1).tensor_split(self._ranks)

    @overloaded
    def broadcast(self, tensors: Tensors, opts: Any) -> Work:
        """Copy tensors of one rank to all."""
        if (other := self._other(tensors)) is not None:
            return other.broadcast(tensors, opts)
        limit, root = self._limit(opts), self._root(opts)

        def body() -> None:
            for tensor in tensors:
                place = dense(tensor) if root == self._rank else room(tensor)
                self._engine.broadcast(place, root, limit)
                if root != self._rank:
                    put_back([tensor], [place])

        return self._start(body, tensors, opts.asyncOp)

    @overloaded
    def allgather(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Work:
        """Copy tensors of all ranks to all."""
        if (other := self._other(inputs)) is not None:
            return other.allgather(outputs, inputs, opts)
        for targets, tensor in zip(outputs, inputs, strict=True):
            check_alike("all_gather", tensor, *targets)
        limit = self._limit(opts)

        def body() -> None:
            for targets, tensor in zip(outputs, inputs, strict=True):
                self._check_count("all_gather", targets)
                places = [room(target) for target in targets]
                self._engine.all_gather(places, dense(tensor), limit)
                put_back(targets, places)

        return self._start(body, [t for targets in outputs for t in targets], opts.asyncOp)

    @overloaded
    def allgather_coalesced(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Work:
        """Likewise, with ``outputs[r][i]`` from rank r's ``inputs[i]``."""
        return self.allgather([list(each) for each in zip(*outputs, strict=True)], inputs, opts)

    @overloaded
    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any) -> Work:
        """Copy tensors of all ranks to all, one behind the other."""
        return self.all_gather_single_coalesced([output], [input], opts)

    @overloaded
    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Work:
        """Likewise, with many tensors."""
        if (other := self._other(inputs)) is not None:
            return _preferring(other, "all_gather_single_coalesced", outputs, inputs, opts)
        for out, tensor in zip(outputs, inputs, strict=True):
            check_alike("all_gather", out, tensor)
        limit = self._limit(opts)

        def body() -> None:
            for out, tensor in zip(outputs, inputs, strict=True):
                place = room(out)
                parts = self._parts("all_gather", place, tensor)
                self._engine.all_gather(parts, dense(tensor), limit)
                put_back([out], [place])

        return self._start(body, outputs, opts.asyncOp)

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced

    @overloaded
    def gather(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Work:
        """Copy tensors of all ranks to one."""
        if (other := self._other(inputs)) is not None:
            return other.gather(outputs, inputs, opts)
        limit, root = self._limit(opts), self._root(opts)
        targets = outputs[0] if root == self._rank else []
        check_alike("gather", inputs[0], *targets)

        def body() -> None:
            if root == self._rank:
                self._check_count("gather", targets)
            places = [room(target) for target in targets]
            self._engine.gather(places, dense(inputs[0]), root, limit)
            put_back(targets, places)

        return self._start(body, targets, opts.asyncOp)

    @overloaded
    def scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> Work:
        """Copy tensors of one rank, each to another."""
        if (other := self._other(outputs)) is not None:
            return other.scatter(outputs, inputs, opts)
        limit, root = self._limit(opts), self._root(opts)
        check_alike("scatter", *outputs, *(inputs[0] if root == self._rank else []))

        def body() -> None:
            sources = [dense(source) for source in inputs[0]] if root == self._rank else []
            if root == self._rank:
                self._check_count("scatter", sources)
            place = room(outputs[0])
            self._engine.scatter(place, sources, root, limit)
            put_back(outputs, [place])

        return self._start(body, outputs, opts.asyncOp)

    @overloaded
    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Work:
        """Copy each rank's tensors, each to another rank."""
        if (other := self._other(inputs)) is not None:
            return other.alltoall(outputs, inputs, opts)
        check_alike("all_to_all", *outputs, *inputs)
        limit = self._limit(opts)

        def body() -> None:
            self._check_count("all_to_all", outputs)
            self._check_count("all_to_all", inputs)
            places = [room(out) for out in outputs]
            self._engine.all_to_all(places, [dense(source) for source in inputs], limit)
            put_back(outputs, places)

        return self._start(body, outputs, opts.asyncOp)

    @overloaded
    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,
        output_split_sizes: list[int],
        input_split_sizes: list[int],
        opts: Any,
    ) -> Work:
        """Copy parts of each rank's tensor to the others; sizes are of the first dimension."""
        if (other := self._other([input])) is not None:
            return _preferring(
                other,
                "all_to_all_single",
                output,
                input,
                output_split_sizes,
                input_split_sizes,
                opts,
            )
        check_alike("all_to_all", output, input)
        limit = self._limit(opts)

        def body() -> None:
            place = room(output)
            targets = self._split("output", place, output_split_sizes)
            sources = self._split("input", dense(input), input_split_sizes)
            self._engine.all_to_all(targets, sources, limit)
            put_back([output], [place])

        return self._start(body, [output], opts.asyncOp)

    alltoall_base = all_to_all_single

    def _split(self, what: str, tensor: Tensor, sizes: Sequence[int]) -> Sequence[Tensor]:
        length = tensor.shape[0] if tensor.dim() else 0
        expected = f"the first dimension of {length}"
        if not sizes and length % self._ranks == 0:
            sizes = [length // self._ranks] * self._ranks
        if len(sizes) != self._ranks or sum(sizes) != length:
            raise ValueError(
                f"all_to_all: {what} split sizes: expected {self._ranks} that sum to {expected}, "
                f"got {list(sizes)}"
            )
        return torch.split(tensor.detach(), list(sizes))

    def _check_count(self, what: str, tensors: Sequence[Tensor]) -> None:
        if len(tensors) != self._ranks:
            raise ValueError(
                f"{what}: expected a tensor for each of {self._ranks} ranks, got {len(tensors)}"
            )

    @overloaded
    def barrier(self, opts: Any) -> Work:
        """Wait until all ranks are here."""
        limit = self._limit(opts)
        return self._start(lambda: self._engine.barrier(limit), [], opts.asyncOp)

    def monitored_barrier(
        self, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        """Wait until all ranks are here; the error names all that are not, whatever is asked."""
        limit = self._milliseconds if timeout is None else milliseconds_of(timeout)
        self._start(lambda: self._engine.barrier(limit), [], False)


let_compiler_read(SharedMemoryGroup, "_device_types")


def _preferring(group: ProcessGroup, name: str, *arguments: Any) -> Work:
    """Call a method that older torch has by another name alone."""
    method = getattr(group, name, None) or getattr(group, _OLDER[name])
    work: Work = method(*arguments)
    return work


_OLDER = {
    "all_gather_single_coalesced": "allgather_into_tensor_coalesced",
    "all_to_all_single": "alltoall_base",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced",
}
