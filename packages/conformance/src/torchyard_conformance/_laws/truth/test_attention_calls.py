"""Attention: accepted calls have right results, and change nothing else."""

from __future__ import annotations

from collections.abc import Callable

from torchyard_conformance import law
from torchyard_conformance._attention._trial import trials
from torchyard_conformance._trials._trial import Trial

Record = Callable[[str, float | str], None]


@law(
    "truth.attention-matches-reference",
    profiles=("attention-core", "smoke"),
    cases=trials("truth.attention-matches-reference"),
)
def test_outputs_match_the_reference(case: Trial, record: Record) -> None:
    """What it accepts is as close to the float64 reference as naive arithmetic is.

    Each call of the grid is computed, and the greatest and the root mean square error of out,
    lse and max_scores are compared with those of a naive computation in the inputs' dtype; up
    to twice as much is accepted. The figures are errors over their bounds: 1 is the bound.

    Why: supports() is a promise; a kernel that is wrong for a mask, a group of heads or an odd
    length is wrong in somebody's model.

    Fix: the smallest failing call names the sizes; a ratio far above 1 is a wrong formula, one
    little above it a sum in too narrow a type.
    """
    case.hold(record)


@law(
    "truth.attention-gradients-match-reference",
    profiles=("attention-full", "smoke"),
    cases=trials("truth.attention-gradients-match-reference"),
)
def test_gradients_match_the_reference(case: Trial, record: Record) -> None:
    """Gradients are as close to the float64 reference as naive arithmetic is.

    As for outputs, for the gradients of query, key, value and of what score_mod captures, once
    with a gradient of the lse and once without.

    Why: a gradient that is wrong by a factor still trains, to something else.

    Fix: gradients of key and value are sums over the query heads that share them; a gradient
    of the lse is added to the softmax's; query's and key's carry the scale.
    """
    case.hold(record)


@law(
    "truth.attention-stated-form",
    profiles=("attention-core", "smoke"),
    cases=trials("truth.attention-stated-form"),
)
def test_results_have_the_stated_form(case: Trial, record: Record) -> None:
    """Results have the form that the contract states, and are those that were asked for.

    Shapes, dtypes, device, contiguous strides, no history, and no output more or less.

    Why: callers view, save and pass results on without looking: a transposed out or an lse in
    the inputs' dtype fails far away.

    Fix: call contiguous() on what is transposed; lse and max_scores are float32, or float64
    for float64 inputs, natural logarithms, and absent where they were not asked for.
    """
    case.hold(record)


@law(
    "truth.attention-inputs-left-alone",
    profiles=("attention-core", "smoke"),
    cases=trials("truth.attention-inputs-left-alone"),
)
def test_inputs_are_left_alone(case: Trial, record: Record) -> None:
    """Inputs are neither changed nor kept, and results do not lie in their memory.

    Inputs are given memory of their own whose end can be seen; gradients and outputs are looked
    for in it.

    Why: a changed key corrupts a cache, a kept one is a leak of gigabytes, an alias changes
    with the next layer.

    Fix: clone what is written to, and key caches by sizes and texts rather than by tensors.
    """
    case.hold(record)


@law(
    "truth.attention-results-stay",
    profiles=("attention-core", "smoke"),
    cases=trials("truth.attention-results-stay"),
)
def test_results_stay(case: Trial, record: Record) -> None:
    """A result stays as it is while further calls are computed.

    Why: an output buffer that is used again looks right in every test with one call and is
    wrong in every model with two layers.

    Fix: allocate new outputs in each call; only scratch memory may be kept.
    """
    case.hold(record)


@law(
    "truth.attention-state-left-alone",
    profiles=("attention-core", "smoke"),
    cases=trials("truth.attention-state-left-alone"),
)
def test_state_is_left_alone(case: Trial, record: Record) -> None:
    """A call leaves torch's and the process's settings as they were.

    Default dtype and device, random numbers, gradient and deterministic modes, number of
    threads, precision of products, autocast and the treatment of denormal numbers.

    Why: one kernel's flag, such as flushing denormals to zero, would change what every other
    library computes.

    Fix: set and restore around the kernel, also where it raises; use a Generator of your own
    for random numbers.
    """
    case.hold(record)


@law(
    "truth.attention-captured-on-demand",
    profiles=("attention-full", "smoke"),
    cases=trials("truth.attention-captured-on-demand"),
)
def test_captured_gradients_are_those_asked_for(case: Trial, record: Record) -> None:
    """Gradients of captured tensors are returned for exactly those that are asked for.

    Why: callers pair gradients with tensors by place.

    Fix: return None in the place of each captured tensor that call.captured_grad does not
    mark, and an empty tuple, or None everywhere, where it marks none.
    """
    case.hold(record)


@law(
    "truth.attention-double-backward",
    profiles=("attention-full", "smoke"),
    cases=trials("truth.attention-double-backward"),
)
def test_second_derivatives_are_right_or_refused(case: Trial, record: Record) -> None:
    """Second derivatives through flex_attention are right, or a DoubleBackwardError.

    Why: gradient penalties and meta-learning would otherwise train on zeros.

    Fix: compute gradients without autograd, or let the component's op wrap them; do not return
    tensors that carry a history of their own.
    """
    case.hold(record)


@law(
    "truth.attention-drops-no-tangent",
    profiles=("attention-core", "smoke"),
    cases=trials("truth.attention-drops-no-tangent"),
)
def test_no_tangent_is_dropped(case: Trial, record: Record) -> None:
    """The op around it has the right tangents in forward mode, or refuses by name.

    Of a forward flex_attention is differentiated, by torch.func.jvp and with dual numbers of
    torch.autograd.forward_ad; of a backward its gradients, by torch.func.jvp. Both are compared
    with differences of the float64 reference. A TransformError is as good as a tangent; one that is
    missing, zero or wrong breaks the law. The figures are the greatest error over its bound, and
    how many ways were refused.

    Why: torch takes a missing tangent for zero, so a Hessian or a sensitivity is wrong in silence.

    Fix: leave the op's dispatch keys for autograd and torch.func to the component, also on your
    device; where you register a kernel there, call a torch.autograd.Function with a rule for jvp.
    """
    case.hold(record)


@law(
    "truth.attention-memory-does-not-grow",
    profiles=("attention-core", "smoke"),
    cases=trials("truth.attention-memory-does-not-grow"),
    alone=True,
)
def test_memory_does_not_grow(case: Trial, record: Record) -> None:
    """Equal calls, one after another, leave the process no larger than it was.

    After some calls to get going, rounds of 16 calls are made, each with tensors of its own.
    Objects of Python are counted, and the bytes that the process and the device have given out.
    A leak grows in each of six rounds and in two of 128 calls after them; what fills a cache stops,
    and no clock is asked.

    Why: a call that keeps a little ends a server after a day, far from where it was kept.

    Fix: key caches by sizes and texts rather than by tensors, and give them an end; release what
    the kernel allocates on every way out, also where it raises.
    """
    case.hold(record)


@law(
    "truth.attention-cost-near-reference",
    profiles=("attention-core", "smoke"),
    cases=trials("truth.attention-cost-near-reference"),
    alone=True,
)
def test_cost_is_near_the_references(case: Trial, record: Record) -> None:
    """A call costs at most 20 times what the float64 reference takes for it, and 30 ms.

    The two are timed in turns on a small call, until the implementation was once fast enough, so
    that a busy machine does not count; what is slow in 20 tries is. The figure is the ratio.

    Why: a kernel that waits, compiles or reads a file in every call is right and of no use, and
    no law on results sees it.

    Fix: compile and open in `load`, once; wait for the device and not for a time. `py-spy` or
    `python -X importtime` shows where the time goes.
    """
    case.hold(record)
