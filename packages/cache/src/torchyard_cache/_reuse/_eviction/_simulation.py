"""What each policy would have saved on a trace of requests, without a model."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from torchyard import arguments
from torchyard_cache._reuse._eviction._costs import DOUBLING, page_cost
from torchyard_cache._reuse._eviction._entries import Entries
from torchyard_cache._reuse._eviction._policies import POLICIES

__all__ = ["Replay", "chat_trace", "prompt_trace", "simulate"]

# Of each argument of an invented trace, all of whose tokens are in memory at some time.
_MOST: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Replay:
    """What a policy saved on a trace.

    Attributes:
        policy: its name.
        tokens: of all prompts.
        tokens_saved: that were found.
        cost_saved: what they would have cost, in tokens at the beginning of a prompt; a later token
            costs more.
        evictions: pages that were dropped for others.
    """

    policy: str
    tokens: int
    tokens_saved: int
    cost_saved: float
    evictions: int


def simulate(
    trace: Iterable[Sequence[int]],
    *,
    budget: int,
    page: int = 64,
    doubling: float = DOUBLING,
    policies: Sequence[str] = tuple(POLICIES),
) -> tuple[Replay, ...]:
    """Replay prompts, in their order, on each policy; the best by cost comes first.

    Args:
        trace: token ids of each prompt.
        budget: pages that memory holds.
        page: tokens of a page.
        doubling: tokens before a token at which it costs twice as much as without any:
            ``Reuse.doubling`` of the model.
        policies: names.

    Raises:
        TypeError, ValueError: an argument does not fit.
    """
    of = "simulate"
    budget = arguments.integer(of, "budget", budget, least=1)
    page = arguments.integer(of, "page", page, least=1)
    doubling = arguments.number(of, "doubling", doubling, least=1.0)
    given: Sequence[str] = arguments.sequence(of, "policies", policies)
    names = [arguments.choice(of, "policies", name, POLICIES) for name in given]
    expected = "token ids of at least one prompt, as lists"
    refused = isinstance(trace, (str, bytes, Mapping)) or hasattr(trace, "tolist")
    if refused or not isinstance(trace, Iterable):
        raise arguments.wrong_kind(of, "trace", expected, trace)
    prompts = [_ids(place, prompt) for place, prompt in enumerate(trace)]
    if not prompts:
        raise arguments.wrong_value(of, "trace", expected, "none")
    replays = [_replay(prompts, name, budget, page, doubling) for name in names]
    return tuple(sorted(replays, key=lambda replay: -replay.cost_saved))


def _ids(place: int, prompt: object) -> tuple[int, ...]:
    name = f"trace[{place}]"
    return arguments.sequence("simulate", name, prompt, arguments.integer)


def _replay(
    prompts: list[tuple[int, ...]], policy: str, budget: int, page: int, doubling: float
) -> Replay:
    entries: Entries[None] = Entries(budget, POLICIES[policy], float("inf"))
    tokens = saved = 0
    cost_saved = 0.0
    for prompt in prompts:
        tokens += len(prompt)
        missed = False
        before = ""
        for place in range((len(prompt) - 1) // page):
            part = prompt[place * page : (place + 1) * page]
            key = f"{hash((before, part)):x}"
            cost = page_cost(place * page, page, doubling)
            missed = missed or entries.get(key) is None
            if missed:
                entries.put(key, None, 1, cost, before)
            else:
                saved += page
                cost_saved += cost
            before = key
    return Replay(policy, tokens, saved, cost_saved, entries.evictions)


def prompt_trace(
    requests: int, *, prompts: int = 50, length: int = 1500, seed: int = 0
) -> Iterator[list[int]]:
    """Yield requests that begin with one of some system prompts, of Zipf's popularity.

    Args:
        requests: how many.
        prompts: how many different beginnings.
        length: about how many tokens of a beginning.
        seed: of the random numbers.

    Raises:
        TypeError, ValueError: an argument does not fit.
    """
    of = "prompt_trace"
    requests = arguments.integer(of, "requests", requests, least=0)
    prompts = arguments.integer(of, "prompts", prompts, least=1, most=_MOST)
    length = arguments.integer(of, "length", length, least=2, most=_MOST)
    return _prompts(requests, prompts, length, arguments.integer(of, "seed", seed))


def _prompts(requests: int, prompts: int, length: int, seed: int) -> Iterator[list[int]]:
    chosen = random.Random(seed)
    systems = [
        [chosen.randrange(50_000) for _ in range(chosen.randrange(length // 2, length * 2))]
        for _ in range(prompts)
    ]
    weights = [1 / (rank + 1) for rank in range(prompts)]
    for _ in range(requests):
        (system,) = chosen.choices(systems, weights)
        yield [*system, *(chosen.randrange(50_000) for _ in range(chosen.randrange(20, 300)))]


def chat_trace(
    chats: int, *, turns: int = 10, length: int = 200, seed: int = 0
) -> Iterator[list[int]]:
    """Yield the turns of chats that go on at the same time, each with all that was said before.

    Args:
        chats: how many.
        turns: of each.
        length: about how many tokens are said in a turn.
        seed: of the random numbers.

    Raises:
        TypeError, ValueError: an argument does not fit.
    """
    of = "chat_trace"
    chats = arguments.integer(of, "chats", chats, least=0, most=_MOST)
    turns = arguments.integer(of, "turns", turns, least=1, most=_MOST)
    length = arguments.integer(of, "length", length, least=2, most=_MOST)
    return _chats(chats, turns, length, arguments.integer(of, "seed", seed))


def _chats(chats: int, turns: int, length: int, seed: int) -> Iterator[list[int]]:
    chosen = random.Random(seed)
    said: dict[int, list[int]] = {chat: [] for chat in range(chats)}
    open_ = [chat for chat in range(chats) for _ in range(turns)]
    chosen.shuffle(open_)
    for chat in open_:
        more = chosen.randrange(length // 2, length * 2)
        said[chat] += [chosen.randrange(50_000) for _ in range(more)]
        yield list(said[chat])
