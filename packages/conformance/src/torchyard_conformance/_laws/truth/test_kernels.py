"""Kernels: verdicts are correct, and accepted calls have right results."""

from __future__ import annotations

from collections.abc import Callable

from torchyard_conformance import law
from torchyard_conformance._kernels._trial import trials
from torchyard_conformance._trials._trial import Trial

Record = Callable[[str, float | str], None]


@law(
    "truth.kernels-accept-something",
    profiles=("kernels", "smoke"),
    cases=trials("truth.kernels-accept-something"),
)
def test_it_accepts_some_calls(case: Trial, record: Record) -> None:
    """It accepts some of the calls that the kit has for the contract.

    The figures say how many it accepts, and how many it refuses with each code.

    Why: every other law is about calls that are accepted; an implementation that accepts none
    would pass them all.

    Fix: look at the codes among the figures: they say which of its limits refuses everything.
    """
    case.hold(record)


@law(
    "truth.kernels-refuse-with-a-reason",
    profiles=("kernels", "smoke"),
    cases=trials("truth.kernels-refuse-with-a-reason"),
)
def test_a_refusal_has_a_reason(case: Trial, record: Record) -> None:
    """What it refuses, it refuses with a code of its own and a text, whenever it is asked.

    All requests are asked twice, the second time backwards, and with them dtypes that few
    support. An exception inside of supports(), or an answer that is no Verdict, is no reason.

    Why: decisions are kept and written to locks, and the text is all that a user sees of an
    implementation that was not chosen.

    Fix: return Verdict.no(code, text) on every path, from the request and the platform alone.
    """
    case.hold(record)


@law(
    "truth.kernels-refuse-when-demanded",
    profiles=("kernels", "smoke"),
    cases=trials("truth.kernels-refuse-when-demanded"),
)
def test_a_refusal_stands_when_demanded(case: Trial, record: Record) -> None:
    """What it refuses is an error when it is demanded by name, with the same code, before it runs.

    Each refused request is resolved with the implementation demanded.

    Why: a demand that quietly runs something else, or computes what it said it cannot, is a
    wrong measurement or a wrong model.

    Fix: let supports() depend on nothing but the request and the platform, so that the
    registry hears the same answer as the kit.
    """
    case.hold(record)


@law(
    "truth.kernels-match-reference",
    profiles=("kernels", "smoke"),
    cases=trials("truth.kernels-match-reference"),
)
def test_results_match_the_reference(case: Trial, record: Record) -> None:
    """What it accepts is what the contract's reference says, or as near as naive arithmetic is.

    A selection has one answer. The greatest and the root mean square error of everything else is
    compared with those of a naive computation in the inputs' dtype, both against float64; up to
    twice as much is accepted. The figures are errors over their bounds: 1 is the bound.

    Why: supports() is a promise; a kernel that is wrong for an odd size or one dtype is wrong in
    somebody's model.

    Fix: the case's name says what is special about it; a ratio far above 1 is a wrong formula,
    one little above it a sum in too narrow a type.
    """
    case.hold(record)


@law(
    "truth.kernels-any-memory",
    profiles=("kernels", "smoke"),
    cases=trials("truth.kernels-any-memory"),
)
def test_inputs_may_have_any_memory_layout(case: Trial, record: Record) -> None:
    """Results do not depend on the inputs' memory layout, and empty inputs give empty results.

    Inputs start at an offset, have gaps, or are transposed; in some calls a size is 0.

    Why: slices of caches, transposed weights and the last, empty batch of an epoch are ordinary
    inputs.

    Fix: read through data_ptr() and strides, or call contiguous() first; return early where
    there is nothing to compute.
    """
    case.hold(record)


@law(
    "truth.kernels-stated-form",
    profiles=("kernels", "smoke"),
    cases=trials("truth.kernels-stated-form"),
)
def test_results_have_the_stated_form(case: Trial, record: Record) -> None:
    """Results have the shapes and dtypes that the op states for fake tensors.

    They are contiguous, on the device, and without history.

    Why: torch.compile and torch.export plan memory and generate code by what the op states; a
    result of another form is read as that one.

    Fix: look at the figures' expected and returned forms; indices are int64, and call
    contiguous() on what is transposed.
    """
    case.hold(record)


@law(
    "truth.kernels-memory-left-alone",
    profiles=("kernels", "smoke"),
    cases=trials("truth.kernels-memory-left-alone"),
)
def test_memory_is_left_alone(case: Trial, record: Record) -> None:
    """Inputs are as they were, and nothing is written beside what is to be written.

    Every tensor is inside a larger allocation of its own, all of which is compared afterwards;
    results are not in it, unless the call says so.

    Why: one element too many is another tensor's first; a changed weight is a changed model.

    Fix: treat the last elements of a row apart from whole vectors, and clone what is written to.
    """
    case.hold(record)


@law(
    "truth.linear-packed-weights",
    profiles=("kernels", "smoke"),
    cases=trials("truth.linear-packed-weights"),
)
def test_packed_weights_are_what_they_were_packed_from(case: Trial, record: Record) -> None:
    """Products with a packed weight are those with the numbers that it stands for.

    Panels, 8 and 4 bits, with one scale per output or per group, symmetric and not; outputs and
    depths that fill no whole panel. The figures are errors over the bound for plain weights.

    Why: a file of packed weights is read by every processor; one that reads padding as weights,
    or a group's scale a group too late, gives words that look almost right.

    Fix: a panel's elements past the weight's sizes are padding, and 0.
    """
    case.hold(record)


@law(
    "truth.recurrent-recorded-gradients",
    profiles=("kernels", "smoke"),
    cases=trials("truth.recurrent-recorded-gradients"),
)
def test_recorded_gradients_are_right(case: Trial, record: Record) -> None:
    """A forward that says that torch differentiates what it does has right gradients.

    Gradients of the input, the states and every weight are compared with those of float64 steps.
    A forward that does not say so is not judged; its gradients are recurrent_backward's.

    Why: training goes through it without another check; a detached state trains to something
    else.

    Fix: use operations that torch records on the call's own tensors, or leave
    ``differentiable`` out.
    """
    case.hold(record)


@law(
    "truth.pointwise-written-lists",
    profiles=("kernels", "smoke"),
    cases=trials("truth.pointwise-written-lists"),
)
def test_lists_are_written(case: Trial, record: Record) -> None:
    """Where a call says what to write to, that is written, and it may be what is read.

    Results go to tensors of their own, and to the very lists that the function reads; a second
    result is computed from what was there before the first was written.

    Why: an optimiser's step writes parameters and moments in place.

    Fix: read an element of all inputs before any result of its group is written there.
    """
    case.hold(record)


@law(
    "truth.kernels-drop-no-tangent",
    profiles=("kernels", "smoke"),
    cases=trials("truth.kernels-drop-no-tangent"),
)
def test_no_tangent_is_dropped(case: Trial, record: Record) -> None:
    """The op around it has the right tangents in forward mode, or refuses by name.

    All floating-point inputs move at once, weights and captured tensors among them. torch.func.jvp
    and dual numbers of torch.autograd.forward_ad are tried, and compared with differences of the
    float64 reference. A TransformError is as good as a tangent; one that is missing, zero or wrong
    breaks the law. The figures are the greatest error over its bound, and how many ways were
    refused.

    Why: torch takes a missing tangent for zero, so a Hessian or a sensitivity is wrong in silence.

    Fix: leave the op's dispatch keys for autograd and torch.func to the component, also on your
    device; where you register a kernel there, call a torch.autograd.Function with a rule for jvp.
    """
    case.hold(record)


@law(
    "truth.kernels-memory-does-not-grow",
    profiles=("kernels", "smoke"),
    cases=trials("truth.kernels-memory-does-not-grow"),
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
    "truth.kernels-cost-near-reference",
    profiles=("kernels", "smoke"),
    cases=trials("truth.kernels-cost-near-reference"),
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
