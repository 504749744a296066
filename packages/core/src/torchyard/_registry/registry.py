"""The registry: decisions of this process, and the callables that they lead to."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from torchyard import arguments
from torchyard._contracts.contract import ContractId, Request
from torchyard._contracts.implementation import Implementation, ReasonCode
from torchyard._environ import (
    DECIDING,
    ENVIRON,
    UNSET,
    configuration,
    decision_settings,
    none_set,
    process_environ,
    setting,
)
from torchyard._platforms.platform import Platform, imported_torch
from torchyard._plugins.activation import PluginCodeError
from torchyard._plugins.offers import Offers
from torchyard._plugins.plugin import PluginSource
from torchyard._registry.decision import Candidate, Decision, Outcome, Source
from torchyard._registry.lock import DecisionDump, read_dump
from torchyard._registry.observation import Observer, observed, observing
from torchyard._registry.policy import (
    Policy,
    context_demands,
    demanded,
    parse_enlisted,
)
from torchyard._registry.resolver import decide, require
from torchyard._registry.tuned import TunedDecisions

_LOG: Final = logging.getLogger("torchyard")
# Far more than a model has shapes; a bound, so that a server with endless shapes keeps its memory.
_KEPT_DECISIONS: Final = 4096
# Sets of settings and demands that have a decision cache at once.
_KEPT_CACHES: Final = 64

# A contract, a request, the call's own demand, the context's demands, and the settings.
_Settings = tuple[str, str, str, str]
_Key = tuple[ContractId, Request, str | None, object, _Settings]
# The contract's name, what usable plugins offer, a candidate for each plugin that offers nothing,
# and the device's list.
_Candidates = tuple[str, tuple[Implementation, ...], tuple[Candidate, ...], tuple[str, ...]]


class Registry(Offers):
    """Everything that torchyard knows of what is installed, and the decisions made from it.

    Making one reads the plugins' manifests and imports no plugin. Use :func:`registry` for this
    process's own; make one by hand to decide for another machine or another set of plugins.

    Args:
        sources: the announced plugins; None reads the installed distributions.
        platform: the machine to decide for; None probes this one.
        environ: read instead of this process's environment and configuration.
    """

    def __init__(
        self,
        sources: Sequence[PluginSource] | None = None,
        *,
        platform: Platform | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._decisions: dict[Hashable, Decision] = {}
        self._resolved: dict[Hashable, Callable[..., Any]] = {}
        self._loaded: dict[tuple[str, str], Callable[..., Any]] = {}
        self._contracts: dict[str, ContractId] = {}
        self._locks: dict[str, DecisionDump] = {}
        self._decision_caches: dict[Hashable, dict[Any, Any]] = {}
        # The last settings and demands, their cache, and the dictionary that it is in.
        self._latest: tuple[object, object, dict[Any, Any], object] = None, None, {}, None
        self._noticed: set[Hashable] = set()
        # Classes of requests that were seen to be requests.
        self._requests: set[type] = set()
        self._policies: dict[Hashable, Policy] = {}
        self._candidates: dict[Hashable, _Candidates] = {}
        self._tuned: TunedDecisions | None = None
        self._observers: tuple[Observer, ...] = ()
        super().__init__(sources, platform=platform, environ=environ)
        REGISTRIES.add(self)

    def decide(
        self, contract: str | ContractId, request: Request, *, use: str | None = None
    ) -> Decision:
        """Decide which implementation computes a request; that none does is no error.

        Args:
            contract: ``op/version`` or a parsed one.
            request: what is asked for.
            use: demand this implementation, as a call's own argument would.

        Returns:
            The decision, cached per request and policy; ``chosen`` may be None.
        """
        return self._decide(self._key(contract, request, use))

    def resolve(
        self, contract: str | ContractId, request: Request, *, use: str | None = None
    ) -> Callable[..., Any]:
        """Return the callable that computes a request.

        An implementation whose ``load`` fails takes its plugin out of use, or where a library
        cannot be imported only itself, and the request is decided again without it; a demand for
        it is not, and ends in the error.

        Raises:
            UnsupportedError: no implementation supports it; the message holds the whole trace.
        """
        key = self._key(contract, request, use)
        found = self._resolved.get(key)
        while found is None:
            decision = self._decide(key)
            chosen = require(decision)
            try:
                found = self._load(decision.contract, chosen)
            except PluginCodeError:
                # It is out of use now: the next decision goes without it, and says so.
                continue
            self._notice(decision)
            found = observed(decision, found, self._observers)
            with self._lock:
                # Between the decision and here, another thread's plugin may have failed.
                if self._decisions.get(key) is decision:
                    self._resolved[key] = found
        return found

    def observe(self, observer: Observer) -> AbstractContextManager[None]:
        """Let an observer see calls of implementations: :func:`_registry.observation.observing`."""
        return observing(self, arguments.function("Registry.observe", "observer", observer))

    def decision_cache(self) -> dict[Any, Any]:
        """Return the dictionary in which components store what follows from decisions.

        The same dictionary as long as each request would be decided as before; another one as soon
        as a setting that decides, the context's demands, a plugin's state, or what torch offers
        changes. Components use keys of their own. A look-up costs half a microsecond, so that a
        component may look at every call.

        Store what follows from a decision in the dictionary that was returned before the decision:
        then a change that comes between the two drops it.
        """
        if not self._saw_torch and self._probes and imported_torch() is not None:
            self._look_again()
        settings, demands = self.settings(), context_demands()
        # Nearly always the same objects as before, and then there is nothing to look up.
        known_settings, known_demands, cache, held = self._latest
        caches = self._decision_caches
        if known_settings is settings and known_demands is demands and held is caches:
            return cache
        found = caches.get((settings, demands))
        if found is None:
            with self._lock:
                if len(caches) >= _KEPT_CACHES:
                    caches.clear()
                found = caches.setdefault((settings, demands), {})
        self._latest = settings, demands, found, caches
        return found

    def settings(self) -> _Settings:
        """Return TORCHYARD_USE, _ENLIST, _LOCK and _TUNED; always the same object if none is set.

        Every decision reads them, cached or not, so this does as little as it can.
        """
        process = self._environ is None and process_environ() is ENVIRON
        if process and none_set(DECIDING) and not configuration():
            return UNSET
        return decision_settings(self._environ)

    def record_fastest(
        self,
        contract: str | ContractId,
        request: Request,
        implementation: str,
        measured: Mapping[str, Any],
    ) -> Path:
        """Choose an implementation for the bucket of a request, here and in later processes.

        Args:
            contract: ``op/version`` or a parsed one.
            request: one of the bucket.
            implementation: what was measured to be the fastest.
            measured: what that was seen from, as JSON-ready data; kept beside it.

        Returns:
            The file, of the user's cache folder. It is keyed by the machine, by torch's version and
            by those of all plugins, and merged into under a lock.

        Raises:
            ValueError: this registry is for another machine.
            OSError, TypeError, KeyError: the file is there and is no such file.
        """
        if not self._probes:
            raise ValueError(
                "record_fastest: expected this machine's registry, got one for another"
            )
        if isinstance(contract, str):
            contract = ContractId.parse(contract)
        with self._lock:
            self._measured(contract)
            assert self._tuned is not None
            path = self._tuned.record(
                contract, str(request.bucket()), implementation, dict(measured)
            )
            self._plugins_changed()
        return path

    def _measured(self, contract: ContractId) -> tuple[tuple[str, str], ...]:
        if not self._probes:
            return ()
        if self._tuned is None:
            self._tuned = TunedDecisions(self._platform, self.plugins)
        return self._tuned.of(contract)

    def _key(self, contract: str | ContractId, request: Request, use: str | None) -> _Key:
        if not self._saw_torch and self._probes and imported_torch() is not None:
            self._look_again()
        if isinstance(contract, str):
            parsed = self._contracts.get(contract)
            if parsed is None:
                parsed = self._contracts[contract] = ContractId.parse(contract)
            contract = parsed
        if type(request) not in self._requests or type(contract) is not ContractId:
            self._check(contract, request)
        if use is not None:
            arguments.text("Registry", "use", use)
        return contract, request, use, context_demands(), self.settings()

    def _check(self, contract: object, request: object) -> None:
        """Check of what kind they are; of each class of requests once, as calls are many."""
        arguments.instance(
            "Registry", "contract", contract, ContractId, "'op/version' or a ContractId"
        )
        if isinstance(request, type) or not (
            isinstance(getattr(request, "device", None), str)
            and callable(getattr(request, "bucket", None))
        ):
            raise arguments.wrong_kind(
                "Registry",
                "request",
                "a request of the contract, with a device and a bucket()",
                request,
            )
        self._requests.add(type(request))

    def _decide(self, key: _Key) -> Decision:
        decision = self._decisions.get(key)
        if decision is not None:
            return decision
        contract, request, use, demands, settings = key
        with self._lock:
            policy = self._policies.get((contract, use, demands, settings))
            if policy is None:
                policy = self.policy(contract, use, settings)
                self._policies[contract, use, demands, settings] = policy
            candidates = self._candidates
            found = candidates.get((contract, request.device))
            if found is None:
                self._read_accelerators(request.device)
                implementations, absent = self.implementations(contract, request.device)
                found = str(contract), implementations, absent, self.order(contract, request.device)
                candidates[contract, request.device] = found
            name, implementations, absent, order = found
            decision = decide(
                name,
                request,
                self._platform,
                implementations,
                order,
                policy=policy,
                absent=absent,
            )
            if len(self._decisions) >= _KEPT_DECISIONS:
                self._plugins_changed()
            self._decisions[key] = decision
        return decision

    def policy(
        self, contract: ContractId, use: str | None = None, settings: _Settings | None = None
    ) -> Policy:
        """Return what this context, or the settings that are given, ask for of a contract."""
        uses, enlist, lock, tuned = settings or self.settings()
        return Policy(
            use=demanded(contract, use, uses),
            enlist=parse_enlisted(enlist),
            locked=self._locked(lock.strip(), contract),
            lock_path=lock.strip(),
            tuned=() if tuned.strip() == "off" else self._measured(contract),
        )

    def _load(self, contract: str, chosen: Implementation) -> Callable[..., Any]:
        with self._lock:
            loaded = self._loaded.get((contract, chosen.name))
            if loaded is None:
                loaded = self.load(chosen)
                self._loaded[contract, chosen.name] = loaded
        return loaded

    def _plugins_changed(self) -> None:
        self._decisions.clear()
        self._resolved.clear()
        self._policies.clear()
        # Another dictionary: what is being gathered meanwhile goes to the former one.
        self._candidates = {}
        # Another dictionary, by which a stored cache is known to be of the former decisions.
        self._decision_caches = {}

    def _notice(self, decision: Decision) -> None:
        """Log once what an automatic choice skipped: a choice is never silently a slower one.

        A candidate made for other requests was not skipped.
        """
        if decision.source is not Source.ORDER or len(decision.considered) == 1:
            return
        skipped = [
            candidate
            for candidate in decision.considered
            if candidate.outcome is Outcome.REFUSED
            and candidate.verdict.code is not ReasonCode.PURPOSE
        ]
        if not skipped:
            return
        key = (
            decision.contract,
            decision.request.device,
            decision.name,
            tuple((candidate.name, candidate.verdict.code) for candidate in skipped),
        )
        with self._lock:
            if key in self._noticed or setting("TORCHYARD_NOTICES", self._environ) == "off":
                return
            self._noticed.add(key)
        reasons = "; ".join(
            f"{candidate.name} ({candidate.verdict.code}: {candidate.verdict.text})"
            for candidate in skipped
        )
        _LOG.warning(
            "%s on %s is computed by %s; skipped %s. `torchyard explain` shows the whole trace; "
            "TORCHYARD_NOTICES=off silences this.",
            decision.contract,
            decision.request.device,
            decision.name,
            reasons,
        )

    def locked(self, path: str) -> DecisionDump:
        """Return a file of decisions to follow; read once, LockError where it cannot be."""
        if path not in self._locks:
            self._locks[path] = read_dump(Path(path))
        return self._locks[path]

    def _locked(self, path: str, contract: ContractId) -> tuple[tuple[str, str], ...]:
        if not path:
            return ()
        buckets = self.locked(path).decisions.get(str(contract), {})
        return tuple((bucket, name) for bucket, name in buckets.items() if name is not None)


# All of this process, made by hand or not.
REGISTRIES: Final[weakref.WeakSet[Registry]] = weakref.WeakSet()
_process: list[Registry] = []
_process_lock = threading.RLock()


def registry() -> Registry:
    """Return this process's registry; made on first use, and safe to ask for again and again."""
    if not _process:
        with _process_lock:
            if not _process:
                _process.append(Registry())
    return _process[0]


def resolve(contract: str, request: Request, *, use: str | None = None) -> Callable[..., Any]:
    """Return the callable that computes a request, by this process's registry."""
    return registry().resolve(contract, request, use=use)


def _renew_locks() -> None:
    """Give a forked child its own locks: a thread that it does not have may hold the old ones."""
    global _process_lock
    _process_lock = threading.RLock()
    for known in REGISTRIES:
        known._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)
