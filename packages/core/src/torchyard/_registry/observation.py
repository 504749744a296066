"""Calls of the implementations that decisions lead to, shown to observers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from torchyard._registry.decision import Decision

if TYPE_CHECKING:
    from torchyard._registry.registry import Registry

__all__ = ["Observer", "observed", "observing"]

# Called before each call of a decision's implementation; the call is made inside what it returns.
Observer = Callable[[Decision], AbstractContextManager[Any]]


def observed(
    decision: Decision, implementation: Callable[..., Any], observers: tuple[Observer, ...]
) -> Callable[..., Any]:
    """Return an implementation whose calls the observers see, the first of them outermost."""
    if not observers:
        return implementation
    return _Observed(decision, implementation, observers)


@contextmanager
def observing(known: Registry, observer: Observer) -> Iterator[None]:
    """Let an observer see the calls of implementations that a registry resolves, in all threads.

    What was resolved before is resolved again, in the block and after it, so calls outside of it
    cost nothing. Repeated calls go through torch's dispatcher in it, as they do in a profile.

    Args:
        known: the registry.
        observer: gets the decision before each call that it leads to, and returns a context
            manager, which the call is made in.
    """
    with known._lock:
        known._observers = (*known._observers, observer)
        known._plugins_changed()
    try:
        yield
    finally:
        with known._lock:
            left = list(known._observers)
            left.remove(observer)
            known._observers = tuple(left)
            known._plugins_changed()


class _Observed:
    def __init__(
        self,
        decision: Decision,
        implementation: Callable[..., Any],
        observers: tuple[Observer, ...],
    ) -> None:
        self._decision = decision
        self._implementation = implementation
        self._observers = observers

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with ExitStack() as stack:
            for observer in self._observers:
                stack.enter_context(observer(self._decision))
            return self._implementation(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        # These compute calls past this one: repeated ones, and a decoder's layers.
        if name in ("chain", "fast_path"):
            raise AttributeError(name)
        return getattr(self._implementation, name)
