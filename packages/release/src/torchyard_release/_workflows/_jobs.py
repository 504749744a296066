"""Jobs of GitHub Actions as plain data: steps, conditions, permissions."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

from torchyard_release._declaration._train import Train
from torchyard_release._declaration._workflows import Relay, Workflows

__all__ = ["PAYLOAD", "Jobs"]

PAYLOAD: Final = "github.event.client_payload"
"""What PyTorch's relay sends."""

_DIST: Final = "dist"
_EVIDENCE: Final = "evidence"
_SITE: Final = "site"
_READ: Final = {"contents": "read"}
# A candidate, whose tag has a hyphen, is built and attested, and no more.
_RELEASED: Final[Mapping[str, Any]] = {"if": "${{ !contains(github.ref_name, '-') }}"}


class Jobs:
    """Make jobs of a train's commands.

    Args:
        train: whose.
        workflows: where they run.
    """

    def __init__(self, train: Train, workflows: Workflows) -> None:
        self._train = train
        self._workflows = workflows
        self._pins = {action.name: action.commit for action in workflows.actions}

    def job(
        self,
        target: str,
        steps: Sequence[Mapping[str, Any]],
        *,
        permissions: Mapping[str, str] | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        """Return a job on a target's machines; ``more`` comes between its head and its steps."""
        labels = self._workflows.labels(target)
        return {
            "runs-on": labels[0] if len(labels) == 1 else list(labels),
            "timeout-minutes": self._workflows.minutes,
            "permissions": dict(_READ if permissions is None else permissions),
            **more,
            "steps": list(steps),
        }

    def prepared(self, python: str, *, whole: bool = False) -> list[dict[str, Any]]:
        """Return the steps that bring the sources, a Python and the tools.

        Args:
            python: its version, or an expression.
            whole: whether with all commits and tags.
        """
        checkout: dict[str, Any] = {"persist-credentials": False}
        if whole:
            checkout |= {"fetch-depth": 0, "fetch-tags": True}
        return [
            self.use("actions/checkout", **checkout),
            self.use("actions/setup-python", **{"python-version": python}),
            *map(self.run, self._workflows.prepare),
        ]

    def use(self, action: str, **inputs: Any) -> dict[str, Any]:
        """Return a step by somebody else's action."""
        step: dict[str, Any] = {"uses": f"{action}@{self._pins[action]}"}
        return {**step, "with": inputs} if inputs else step

    def run(self, command: str, **more: Any) -> dict[str, Any]:
        """Return a step that runs a command."""
        return {"run": command, **more}

    def check(self) -> dict[str, Any]:
        """Return the job of what every change must pass besides the gates."""
        commands = ("torchyard release check", *self._workflows.check)
        steps = [*self.prepared(self._train.python[0]), *map(self.run, commands)]
        return self.job("", steps)

    def sessions(self, session: str, cells: Sequence[str]) -> dict[str, Any]:
        """Return a job of a gate's session on common machines: one for each cell and Python."""
        matrix: dict[str, Any] = {"python": list(self._train.python)}
        step = self.run(f"nox -s {shlex.quote(session)}")
        if cells != ("",):
            matrix["cell"] = list(cells)
            # By the environment: what is in a command's text is run.
            name = session.replace("{cell}", "$CELL")
            step = self.run(f'nox -s "{name}"', env={"CELL": "${{ matrix.cell }}"})
        return self.job(
            "",
            [*self.prepared("${{ matrix.python }}"), step],
            strategy={"fail-fast": False, "matrix": matrix},
        )

    def on_target(self, session: str, cell: str) -> dict[str, Any]:
        """Return a job of a gate's session on a target's own machines, which leaves evidence."""
        name = session.replace("{cell}", cell)
        steps = [*self.prepared(self._train.python[0]), self.run(f"nox -s {shlex.quote(name)}")]
        if self._workflows.evidence:
            steps += [
                self.run(self._workflows.evidence.replace("{cell}", cell)),
                self.use(
                    "actions/upload-artifact",
                    **{
                        "name": f"{_EVIDENCE}-{cell}",
                        "path": f"{_EVIDENCE}/",
                        "if-no-files-found": "error",
                    },
                ),
            ]
        return self.job(cell, steps)

    def joined(self, cells: Sequence[str]) -> dict[str, Any]:
        """Return the job that joins and verifies the certificates of all machines that answered."""
        steps = [
            *self.prepared(self._train.python[0]),
            self.use(
                "actions/download-artifact",
                **{"pattern": f"{_EVIDENCE}-*", "path": _EVIDENCE, "merge-multiple": True},
            ),
            self.run(
                f'for bundle in {_EVIDENCE}/*.tgz; do torchyard certify verify "$bundle"; done'
            ),
            self.use(
                "actions/upload-artifact",
                **{"name": _EVIDENCE, "path": f"{_EVIDENCE}/", "if-no-files-found": "error"},
            ),
        ]
        condition: dict[str, Any] = {"if": "${{ !cancelled() }}"}
        return self.job("", steps, needs=list(cells), **condition)

    def build(self) -> dict[str, Any]:
        """Return the job that builds the candidate twice, inspects it and attests to its origin."""
        steps = [
            *self.prepared(self._train.python[0], whole=True),
            self.run("torchyard release build"),
            self.run("torchyard release inspect"),
            self.run(f"mkdir {_DIST} && cp .train/*/*/dist/* {_DIST}/"),
            self.use("actions/attest-build-provenance", **{"subject-path": f"{_DIST}/*"}),
            self.use(
                "actions/upload-artifact",
                **{"name": _DIST, "path": f"{_DIST}/", "if-no-files-found": "error"},
            ),
        ]
        permissions = {**_READ, "id-token": "write", "attestations": "write"}
        return self.job("", steps, permissions=permissions)

    def installed(self) -> dict[str, Any]:
        """Return the job that installs and tries the wheels on machines of their platforms."""
        platforms = [
            {"platform": name, "labels": list(labels)} for name, labels in self._workflows.platforms
        ]
        steps = [
            self.use("actions/checkout", **{"persist-credentials": False}),
            self.use("actions/setup-python", **{"python-version": self._train.python[0]}),
            self.use("actions/download-artifact", name=_DIST, path=_DIST),
            *map(self.run, self._workflows.installed),
        ]
        return {
            "needs": "build",
            "strategy": {"fail-fast": False, "matrix": {"include": platforms}},
            "runs-on": "${{ matrix.labels }}",
            "timeout-minutes": self._workflows.minutes,
            "permissions": dict(_READ),
            "steps": steps,
        }

    def relayed(self, relay: Relay) -> dict[str, Any]:
        """Return the job that tries the packages on a commit of PyTorch.

        It runs on common machines, since the commit is a stranger's.
        """
        event = f"{PAYLOAD}.payload"
        source = {
            "repository": "pytorch/pytorch",
            "ref": f"${{{{ {event}.pull_request.head.sha || {event}.after }}}}",
            "path": "pytorch",
            "submodules": "recursive",
            "persist-credentials": False,
        }
        steps = [
            *self.prepared(self._train.python[0]),
            self.use("actions/checkout", **source),
            *map(self.run, relay.run),
        ]
        # The end of a pull request is an event too, and starts nothing.
        more: dict[str, Any] = {
            "if": f"${{{{ {event}.action != 'closed' }}}}",
            "timeout-minutes": relay.minutes,
        }
        if relay.environment:
            more["env"] = dict(relay.environment)
        return self.job("", steps, **more)

    def site(self, branch: str, build: str) -> dict[str, Any]:
        """Return the job that builds the documentation and adds it to what a branch publishes.

        A branch that cannot be read is not replaced: what has another beginning is refused there.
        """
        # As actions/checkout gives it; kept by no step that runs the build.
        header = (
            '"http.extraheader=AUTHORIZATION: basic '
            '$(printf \'x-access-token:%s\' "$TOKEN" | base64 --wrap=0)"'
        )
        name = "'github-actions[bot]'"
        who = f"-c user.name={name} -c user.email={name}@users.noreply.github.com"
        first = f"git worktree add --detach {_SITE} && git -C {_SITE} checkout --orphan {branch}"
        kept = f"git fetch --depth=1 origin {branch} && git worktree add {_SITE} FETCH_HEAD"
        begun = f"{first} && git -C {_SITE} rm -r --force --quiet ."
        exists = f"git ls-remote --exit-code origin refs/heads/{branch}"
        commands = (
            f"if {exists}; then {kept}; else {begun}; fi",
            build,
            # The folders of Sphinx begin with an underscore, which GitHub would leave out.
            f"touch {_SITE}/.nojekyll && git -C {_SITE} add --all",
        )
        publish = (
            f"git -C {_SITE} diff --cached --quiet || "
            f'{{ git -C {_SITE} {who} commit --quiet --message "$GITHUB_SHA" && '
            f"git -C {_SITE} -c {header} push origin HEAD:refs/heads/{branch}; }}"
        )
        steps = [
            *self.prepared(self._train.python[0]),
            *map(self.run, commands),
            self.run(publish, env={"TOKEN": "${{ github.token }}"}),
        ]
        return self.job("", steps, permissions={"contents": "write"})

    def publish(self, name: str, upload: str, needs: str) -> dict[str, Any]:
        """Return the job that uploads a release to an index that trusts this workflow."""
        steps = [
            self.use("actions/download-artifact", name=_DIST, path=_DIST),
            self.use(
                "pypa/gh-action-pypi-publish",
                **{
                    "repository-url": upload,
                    "packages-dir": f"{_DIST}/",
                    # PEP 740: each file carries who built it, of what.
                    "attestations": True,
                    # A run that is started again goes on where it ended.
                    "skip-existing": True,
                },
            ),
        ]
        permissions = {"id-token": "write"}
        more = {"needs": needs, "environment": name, **_RELEASED}
        return self.job("", steps, permissions=permissions, **more)

    def fetched(self, simple: str, needs: str) -> dict[str, Any]:
        """Return the job that compares what an index has with what was built."""
        names = " ".join(
            f"{package.name}=={self._train.version_of(package).partition('.dev')[0]}"
            for package in self._train.packages
        )
        options = f"--no-deps --no-cache-dir --index-url {shlex.quote(simple)}"
        steps = [
            self.use("actions/setup-python", **{"python-version": self._train.python[0]}),
            self.use("actions/download-artifact", name=_DIST, path=_DIST),
            self.run(f"python -m pip download {options} --dest fetched {names}"),
            self.run(f'for file in fetched/*; do cmp "$file" "{_DIST}/${{file#fetched/}}"; done'),
        ]
        return self.job("", steps, permissions={}, needs=needs, **_RELEASED)
