"""Attention: results that have the same bits."""

from __future__ import annotations

from collections.abc import Callable

from torchyard_conformance import law
from torchyard_conformance._attention._trial import trials
from torchyard_conformance._trials._trial import Trial

Record = Callable[[str, float | str], None]


@law(
    "numerics.attention-deterministic-on-demand",
    profiles=("attention-core", "smoke"),
    cases=trials("numerics.attention-deterministic-on-demand"),
)
def test_it_is_deterministic_where_torch_is_told_so(case: Trial, record: Record) -> None:
    """Where deterministic algorithms are on and it accepts that, calls repeat bit by bit.

    Why: torch.use_deterministic_algorithms is how users ask for it.

    Fix: refuse requests with deterministic=True as E_DETERMINISM, or sum in a fixed order: no
    atomic additions, no work that goes to whoever is first.
    """
    case.hold(record)


@law(
    "numerics.attention-deterministic",
    profiles=("attention-core", "smoke"),
    cases=trials("numerics.attention-deterministic"),
)
def test_the_claim_of_determinism_holds(case: Trial, record: Record) -> None:
    """Where it claims to be deterministic, bits depend on no run and no number of threads.

    Calls are repeated with 1, 2, 3 and 5 threads. An implementation that claims nothing is not
    judged.

    Why: users choose an implementation for evaluation or for a debugging session by this claim.

    Fix: cut work by sizes and never by the number of threads, and add partial sums in the
    order of their places; or do not claim it.
    """
    case.hold(record)


@law(
    "numerics.attention-batch-invariant",
    profiles=("attention-core", "smoke"),
    cases=trials("numerics.attention-batch-invariant"),
)
def test_the_claim_of_batch_invariance_holds(case: Trial, record: Record) -> None:
    """Where it claims to be batch-invariant, a batch entry's bits do not depend on its companions.

    The first and the last entry are computed alone, and all in the opposite order. An
    implementation that claims nothing is not judged.

    Why: a server that batches requests would otherwise answer the same question differently,
    and training on its samples would see other probabilities than it used.

    Fix: choose tiles and splits from a head's own sizes, not from how many heads there are to
    share between processors; matrix products of libraries usually do not keep this; or do not
    claim it.
    """
    case.hold(record)
