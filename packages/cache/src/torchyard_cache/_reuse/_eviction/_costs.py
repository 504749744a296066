"""``TokenCosts``: seconds that a model takes for tokens, learned from its calls."""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["DOUBLING", "TokenCosts", "page_cost"]

DOUBLING: Final = 4096
"""Tokens before a page at which it costs twice what it costs at the beginning of a prompt."""

# Calls that are looked at: a machine's speed changes with what else runs there.
_CALLS: Final = 64
# Of the squared correlation of both terms: nearer to 1, calls were too alike to tell them apart.
_ALIKE: Final = 0.99


def page_cost(begin: int, tokens: int, doubling: float = DOUBLING) -> float:
    """Return what computing tokens costs, in tokens at the beginning of a prompt.

    Each token attends to all before it, so that it costs more the more there are.

    Args:
        begin: tokens before them.
        tokens: how many.
        doubling: tokens before a token at which it costs twice as much as without any.
    """
    return tokens * (1.0 + (begin + tokens / 2) / doubling)


class TokenCosts:
    """What computing tokens after others costs: ``a * tokens + b * pairs`` seconds.

    A pair is a token and one before it, to which it attends. Both numbers are fitted to the last
    64 calls, each weighted by its time, so that short ones count as long ones do. Where calls are
    too alike to tell both apart, a token costs twice as much after 4,096 others.
    """

    def __init__(self) -> None:
        self._calls: deque[tuple[float, float]] = deque(maxlen=_CALLS)
        # Seconds of a token, a guess at first, and the tokens before it that double them.
        self._fit = 5e-4, float(DOUBLING)

    @property
    def doubling(self) -> float:
        """Tokens before a token at which it costs twice as much as without any."""
        return self._fit[1]

    def note(self, begin: int, tokens: int, seconds: float) -> None:
        """Learn from a call that computed tokens after others; not from one without either."""
        if tokens > 0 and seconds > 0:
            pairs = tokens * (begin + tokens / 2)
            self._calls.append((tokens / seconds, pairs / seconds))
            self._fit = _fitted(list(self._calls))

    def seconds(self, begin: int, tokens: int) -> float:
        """Return what computing tokens after others takes."""
        token, doubling = self._fit
        return token * page_cost(begin, tokens, doubling)


def _fitted(calls: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the seconds of a token, and how many before it double them: least squares.

    Args:
        calls: tokens and pairs of each, both divided by its seconds.
    """
    tokens = sum(token for token, _ in calls)
    pairs = sum(pair for _, pair in calls)
    both = sum(token * pair for token, pair in calls)
    tokens2 = sum(token * token for token, _ in calls)
    pairs2 = sum(pair * pair for _, pair in calls)
    if both * both < _ALIKE * tokens2 * pairs2:
        determinant = tokens2 * pairs2 - both * both
        token = (tokens * pairs2 - pairs * both) / determinant
        pair = (pairs * tokens2 - tokens * both) / determinant
        if token > 0 and pair > 0:
            return token, token / pair
    costs = [token + pair / DOUBLING for token, pair in calls]
    return sum(costs) / sum(cost * cost for cost in costs), float(DOUBLING)
