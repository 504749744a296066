"""The resolver: pure, so that every machine can be decided for on any machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from torchyard import arguments
from torchyard._contracts.contract import Request
from torchyard._contracts.implementation import Implementation, ReasonCode, Verdict
from torchyard._errors import PolicyError, UnsupportedError
from torchyard._platforms.platform import Platform
from torchyard._registry.decision import Candidate, Decision, Outcome, Source
from torchyard._registry.policy import Policy, Use

_NO_POLICY: Final = Policy()


def decide(
    contract: str,
    request: Request,
    platform: Platform,
    implementations: Sequence[Implementation],
    order: Sequence[str],
    *,
    policy: Policy = _NO_POLICY,
    absent: Sequence[Candidate] = (),
) -> Decision:
    """Choose an implementation for a request, or say why none supports it.

    Args:
        contract: ``op/version``.
        request: what is asked for.
        platform: the machine to decide for.
        implementations: what the usable plugins offer.
        order: the device's list, strongest first, the reference last.
        policy: what the user asked for.
        absent: candidates of plugins that offer nothing now, for the trace.

    Returns:
        A decision; ``chosen`` is None where none supports the request. The same arguments
        give the same decision, whatever the order of ``implementations``.
    """
    by_name = {item.name: item for item in implementations}
    ranked = rank(order, implementations, policy.enlist)
    demand = policy.use or _locked(request, policy)
    if demand is not None:
        return _decide_demanded(
            contract, request, platform, by_name, ranked, demand, policy, absent
        )
    tuned = _tuned(request, policy)
    fastest = None if tuned is None else by_name.get(tuned.implementation)
    if tuned is not None and fastest is not None and fastest.verdict(request, platform).supported:
        return _decide_demanded(contract, request, platform, by_name, ranked, tuned, policy, absent)
    considered: list[Candidate] = []
    chosen: Implementation | None = None
    for name in sorted(policy.enlist - by_name.keys() - set(ranked)):
        # Where it would have stood only its plugin knows, but the user wanted it.
        reason = _reason(name, absent)
        if reason is not None:
            considered.append(Candidate(name, Outcome.REFUSED, reason))
    place = 0
    while chosen is None and place < len(ranked):
        candidate = _candidate(ranked[place], request, platform, by_name, absent)
        if candidate.verdict.supported:
            chosen = by_name[candidate.name]
        considered.append(candidate)
        place += 1
    known = tuple(considered)
    others = partial(_not_considered, request, platform, by_name, ranked, place, absent, known)
    return Decision(contract, request, chosen, Source.ORDER, known, others)


def require(decision: Decision) -> Implementation:
    """Return the chosen implementation, or raise UnsupportedError with the whole trace."""
    if type(decision) is not Decision:
        arguments.instance("require", "decision", decision, Decision)
    if decision.chosen is None:
        raise UnsupportedError(
            f"no implementation supports this request; every candidate and its reason:\n"
            f"{decision.render()}",
            decision,
        )
    return decision.chosen


def rank(
    order: Sequence[str], implementations: Sequence[Implementation], enlist: frozenset[str]
) -> tuple[str, ...]:
    """Place the enlisted implementations into a device's list.

    One that says ``before`` is placed right before the first implementation that it names; one
    that says only ``after`` right behind the last; one that says neither is placed before the
    list's last entry, which is the reference. What an enlisted one names is placed before it is.
    """
    ranked = list(order)
    waiting = sorted(
        (item for item in implementations if item.name in enlist and item.name not in ranked),
        key=lambda item: item.name,
    )
    while waiting:
        names = {item.name for item in waiting}
        ready = [item for item in waiting if not names & {*item.before, *item.after}]
        if not ready:
            raise PolicyError(
                f"{', '.join(sorted(names))}: each is before or after another of them, in a "
                f"circle; remove one from TORCHYARD_ENLIST or demand it with TORCHYARD_USE"
            )
        ranked.insert(_place(ready[0], ranked), ready[0].name)
        waiting.remove(ready[0])
    return tuple(ranked)


def _place(item: Implementation, ranked: Sequence[str]) -> int:
    before = [ranked.index(name) for name in item.before if name in ranked]
    after = [ranked.index(name) for name in item.after if name in ranked]
    if before and after and max(after) >= min(before):
        raise PolicyError(
            f"{item.name}: is before {list(item.before)} and after {list(item.after)}, which "
            f"the order {list(ranked)} cannot satisfy; remove it from TORCHYARD_ENLIST or demand "
            f"it with TORCHYARD_USE"
        )
    if before:
        return min(before)
    if after:
        return max(after) + 1
    return max(len(ranked) - 1, 0)


def _decide_demanded(
    contract: str,
    request: Request,
    platform: Platform,
    by_name: dict[str, Implementation],
    ranked: Sequence[str],
    demand: Use,
    policy: Policy,
    absent: Sequence[Candidate],
) -> Decision:
    implementation = by_name.get(demand.implementation)
    chosen: Implementation | None = None
    if implementation is None:
        verdict = _reason(demand.implementation, absent) or _not_installed(
            demand.implementation, demand, policy
        )
    else:
        verdict = implementation.verdict(request, platform)
        if verdict.supported:
            chosen = implementation
    outcome = Outcome.CHOSEN if verdict.supported else Outcome.REFUSED
    known = (Candidate(demand.implementation, outcome, verdict),)
    others = partial(_not_asked, request, platform, by_name, ranked, absent, known)
    return Decision(contract, request, chosen, demand.source, known, others)


def _candidate(
    name: str,
    request: Request,
    platform: Platform,
    by_name: Mapping[str, Implementation],
    absent: Sequence[Candidate],
    supported: Outcome = Outcome.CHOSEN,
) -> Candidate:
    """Return a listed implementation's part in a decision, which is ``supported`` if it can."""
    implementation = by_name.get(name)
    if implementation is None:
        # At its place in the list, so that the trace shows what the choice went without.
        verdict = _reason(name, absent) or _not_installed(name)
    else:
        verdict = implementation.verdict(request, platform)
    return Candidate(name, supported if verdict.supported else Outcome.REFUSED, verdict)


def _not_considered(
    request: Request,
    platform: Platform,
    by_name: Mapping[str, Implementation],
    ranked: Sequence[str],
    place: int,
    absent: Sequence[Candidate],
    considered: Sequence[Candidate],
) -> tuple[Candidate, ...]:
    """Return the candidates behind the considered ones: the rest of the list from ``place`` on,
    what no list names, and the plugins that offer nothing now."""
    found = [
        _candidate(name, request, platform, by_name, absent, Outcome.NOT_NEEDED)
        for name in ranked[place:]
    ]
    for name in sorted(set(by_name) - set(ranked)):
        verdict = by_name[name].verdict(request, platform)
        if verdict.supported:
            verdict = Verdict.no(
                ReasonCode.NOT_LISTED,
                f"supported, but no list of device {request.device!r} names it",
                f"opt in with TORCHYARD_ENLIST={name}, or demand it with TORCHYARD_USE",
            )
        found.append(Candidate(name, Outcome.NOT_LISTED, verdict))
    return (*found, *_unnamed(absent, (*considered, *found)))


def _not_asked(
    request: Request,
    platform: Platform,
    by_name: Mapping[str, Implementation],
    ranked: Sequence[str],
    absent: Sequence[Candidate],
    considered: Sequence[Candidate],
) -> tuple[Candidate, ...]:
    """Return the candidates beside a demanded one: listed, unlisted, and absent plugins."""
    names = [name for name in ranked if name in by_name]
    names += sorted(set(by_name) - set(names))
    demanded = {candidate.name for candidate in considered}
    found = [
        Candidate(name, Outcome.NOT_ASKED, by_name[name].verdict(request, platform))
        for name in names
        if name not in demanded
    ]
    return (*found, *_unnamed(absent, (*considered, *found)))


def _locked(request: Request, policy: Policy) -> Use | None:
    if not policy.locked:
        return None
    name = dict(policy.locked).get(request.bucket())
    return None if name is None else Use(name, Source.LOCK)


def _tuned(request: Request, policy: Policy) -> Use | None:
    if not policy.tuned:
        return None
    name = dict(policy.tuned).get(request.bucket())
    return None if name is None else Use(name, Source.TUNED)


def _reason(name: str, absent: Sequence[Candidate]) -> Verdict | None:
    """Return why the plugin of an implementation offers nothing now, where it is known."""
    plugin = f"{name.partition('.')[0]}.*"
    return next((candidate.verdict for candidate in absent if candidate.name == plugin), None)


def _unnamed(absent: Sequence[Candidate], trace: Sequence[Candidate]) -> list[Candidate]:
    """Return the absent plugins that no candidate of the trace speaks for yet."""
    spoken_for = {candidate.name.partition(".")[0] for candidate in trace}
    return [candidate for candidate in absent if candidate.name.partition(".")[0] not in spoken_for]


def _not_installed(name: str, demand: Use | None = None, policy: Policy = _NO_POLICY) -> Verdict:
    plugin = name.partition(".")[0]
    wanted = {
        None: "named by the device's list",
        Source.ARGUMENT: "asked for by the call's argument",
        Source.CONTEXT: "asked for by torchyard.use",
        Source.ENVIRONMENT: "asked for by TORCHYARD_USE",
        Source.LOCK: f"asked for by the lock file {policy.lock_path}",
        Source.TUNED: "measured to be the fastest",
        Source.ORDER: "asked for",
    }[None if demand is None else demand.source]
    return Verdict.no(
        ReasonCode.MISSING,
        f"{wanted}, but no usable plugin offers it",
        f"install the distribution of plugin {plugin!r}, or see `torchyard plugins`",
    )
