"""The laws of attention as data: the function that checks each, and its calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import torch

from torchyard_attention.cases import Case
from torchyard_attention.contract import BACKWARD, FORWARD
from torchyard_conformance._attention._cases import CLAIMED, FLOAT64, GRID, HIDDEN, RELATED, SMOKE
from torchyard_conformance._attention._judges import (
    _claims,
    _forward_mode,
    _gradients,
    _hidden,
    _outputs,
    _related,
    _resources,
    _verdicts,
)
from torchyard_conformance._attention._kernel import Kernel
from torchyard_conformance._attention._rulers import key_of
from torchyard_conformance._attention._smallest import smallest
from torchyard_conformance._outcome import Violated

__all__ = ["LAWS", "AttentionLaw", "judge"]

_Figures = dict[str, float]
_BOTH: Final = frozenset({FORWARD, BACKWARD})


@dataclass(frozen=True, slots=True)
class AttentionLaw:
    """How a law is held.

    Attributes:
        check: raises Violated, or NotSupported where the law says nothing; returns figures. Takes
            an implementation, and a call where the law has cases.
        cases: the calls, by name; empty: it is held once per implementation.
        quick: names of those cases that a quick look takes.
        contracts: the contracts whose implementations it is for.
    """

    check: Callable[..., _Figures]
    cases: Mapping[str, Case] = field(default_factory=dict)
    quick: frozenset[str] = frozenset()
    contracts: frozenset[str] = _BOTH

    def of(self, kernel: Kernel) -> bool:
        """Return whether the law is for an implementation."""
        return kernel.implementation.contract in self.contracts

    def case_names(self, *, quick: bool) -> Iterator[str]:
        """Yield the cases' names; one empty name where there are no cases."""
        yield from (n for n in self.cases or ("",) if not quick or n in self.quick or not n)


def judge(law: AttentionLaw, kernel: Kernel, case: str = "") -> _Figures:
    """Hold an implementation to a law on one of its cases.

    Returns:
        Figures by name, such as each error over its bound.

    Raises:
        Violated: it breaks the law; ``smallest`` is the smallest call found that does.
        NotSupported: the law does not apply to this case.
    """
    if not case:
        return law.check(kernel)
    chosen = law.cases[case]
    try:
        return law.check(kernel, chosen)
    except Violated as broken:
        least, found = smallest(lambda smaller: law.check(kernel, smaller), chosen, broken)
        raise Violated(str(found), key_of(least)) from broken


_FEW: Final = frozenset(
    {
        "causal",
        "causal-more-keys",
        "decoding",
        "empty_rows",
        "gate",
        "plain",
        "window",
        "window-out",
    }
)
_FORMS: Final[Mapping[str, Case]] = MappingProxyType(
    {
        **{name: RELATED[name] for name in ("plain", "causal", "window", "bfloat16-causal")},
        "alibi": Case("alibi", {"kv_heads": 2}, "window", "alibi"),
        "causal-out": GRID["causal-out"],
        "max_scores": GRID["max_scores"],
        "transposed": GRID["layout-transposed"],
        "empty": GRID["lengths-5-0"],
    }
)
_CAPTURED: Final[Mapping[str, Case]] = MappingProxyType(
    {
        name: GRID[name]
        for name in (
            "score-alibi",
            "score-gate",
            "score-relative_bias",
            "score-batch_bias_bfloat16",
        )
    }
)
_TWICE: Final[Mapping[str, Case]] = MappingProxyType(
    {
        name: Case(name, {"q_length": 5, "head_dim": 4, "dtype": dtype})
        for name, dtype in (("float32", torch.float32), ("float64", torch.float64))
    }
)
_SMALL: Final = {"batch": 1, "q_heads": 2, "q_length": 9, "kv_length": 11, "head_dim": 8}
_TANGENTS: Final[Mapping[str, Case]] = MappingProxyType(
    {
        "plain": Case("plain", _SMALL),
        "grouped-causal": Case("grouped-causal", {**_SMALL, "kv_heads": 1}, "causal"),
        "alibi": Case("alibi", _SMALL, "causal", "alibi"),
        "float64": Case("float64", {**_SMALL, "dtype": torch.float64}),
    }
)


def _form(check: Callable[..., _Figures]) -> AttentionLaw:
    return AttentionLaw(check, _FORMS, frozenset({"alibi", "causal-out", "plain"}))


def _bits(check: Callable[..., _Figures]) -> AttentionLaw:
    return AttentionLaw(check, CLAIMED, _FEW)


def _forward(check: Callable[..., _Figures], cases: Mapping[str, Case]) -> AttentionLaw:
    return AttentionLaw(check, cases, _FEW | SMOKE, frozenset({FORWARD}))


def _backward(check: Callable[..., _Figures], cases: Mapping[str, Case]) -> AttentionLaw:
    return AttentionLaw(check, cases, _FEW | SMOKE | {*_TWICE}, frozenset({BACKWARD}))


LAWS: Final[Mapping[str, AttentionLaw]] = MappingProxyType(
    {
        "truth.attention-accepts-something": AttentionLaw(_verdicts.accepts_something),
        "truth.attention-refuses-with-a-reason": AttentionLaw(_verdicts.refuses_with_a_reason),
        "truth.attention-refuses-when-demanded": AttentionLaw(_verdicts.refuses_when_demanded),
        "truth.attention-verdict-is-pure": AttentionLaw(_verdicts.answers_purely),
        "truth.attention-verdict-is-cheap": AttentionLaw(_verdicts.answers_cheaply),
        "truth.attention-verdict-of-fake-tensors": AttentionLaw(_verdicts.answers_for_fakes),
        "truth.attention-stated-form": _form(_outputs.has_the_stated_form),
        "truth.attention-inputs-left-alone": _form(_outputs.leaves_inputs_alone),
        "truth.attention-results-stay": _form(_outputs.results_stay),
        "truth.attention-state-left-alone": _form(_outputs.changes_no_state),
        "truth.attention-memory-does-not-grow": AttentionLaw(_resources.keeps_no_memory),
        "truth.attention-cost-near-reference": AttentionLaw(
            _resources.costs_little_beside_the_reference
        ),
        "truth.attention-matches-reference": _forward(_outputs.matches_reference, GRID),
        "truth.attention-gradients-match-reference": _backward(
            _outputs.gradients_match_reference, GRID
        ),
        "truth.attention-captured-on-demand": _backward(_gradients.captured_on_demand, _CAPTURED),
        "truth.attention-double-backward": _backward(
            _gradients.differentiates_twice_or_says_no, _TWICE
        ),
        "truth.attention-drops-no-tangent": AttentionLaw(
            _forward_mode.drops_no_tangent, _TANGENTS, frozenset({"plain", "grouped-causal"})
        ),
        "numerics.attention-masked-nan-stays-out": _forward(_hidden.hidden_stays_out, HIDDEN),
        "numerics.attention-seen-nan-is-shown": _forward(_hidden.seen_nan_is_shown, HIDDEN),
        "numerics.attention-masked-nan-in-gradients": _backward(
            _hidden.hidden_stays_out_of_gradients, HIDDEN
        ),
        "numerics.attention-bad-row-stays-alone": AttentionLaw(
            _hidden.bad_row_stays_alone, HIDDEN, _FEW
        ),
        "numerics.attention-gradcheck": _backward(_gradients.gradients_are_differences, FLOAT64),
        "numerics.attention-empty-rows": AttentionLaw(_hidden.empty_rows_are_empty, HIDDEN, _FEW),
        "numerics.attention-fresh-memory": _bits(_claims.reads_no_fresh_memory),
        "numerics.attention-calls-at-once": _bits(_claims.computes_in_threads),
        "numerics.attention-deterministic-on-demand": _bits(_claims.deterministic_on_demand),
        "numerics.attention-deterministic": _bits(_claims.is_deterministic),
        "numerics.attention-batch-invariant": _bits(_claims.is_batch_invariant),
        "numerics.attention-full-blocks-as-partial": _forward(
            _related.full_blocks_as_partial, RELATED
        ),
        "numerics.attention-order-of-blocks": _forward(_related.order_of_blocks, RELATED),
        "numerics.attention-appended-hidden-keys": _forward(_related.appended_hidden_keys, RELATED),
        "numerics.attention-merged-parts-of-keys": _forward(_related.merged_parts_of_keys, RELATED),
        "numerics.attention-rows-in-chunks": _forward(_related.rows_in_chunks, RELATED),
        "numerics.attention-permuted-heads": _forward(_related.permuted_batch_and_heads, RELATED),
        "numerics.attention-shared-heads": _forward(_related.shared_heads_written_out, RELATED),
        "numerics.attention-scaled-values": _forward(_related.scaled_values, RELATED),
        "numerics.attention-pages-anywhere": _forward(_related.pages_anywhere, RELATED),
    }
)
"""By the law's id."""
