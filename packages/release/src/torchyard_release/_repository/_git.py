"""git, by its command line; nothing else reads the repository."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from torchyard import child_environ
from torchyard_release._errors import GitError


class Git:
    """One repository.

    Args:
        root: the top folder of its work tree.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def run(self, *words: str, text: str = "") -> str:
        """Return what a git command prints, its last line feed left out.

        Args:
            words: the command after ``git``.
            text: what it reads.

        Raises:
            GitError: it failed; the message has its words and what it said.
        """
        done = self._start(words, text)
        if done.returncode:
            said = " ".join((done.stderr or done.stdout).split()) or "nothing"
            raise GitError(
                f"`git {' '.join(words)}` ended with {done.returncode} and said: {said}",
                f"see to it in {self._root}, then run this command again",
            )
        return done.stdout.removesuffix("\n")

    def succeeds(self, *words: str) -> bool:
        """Return whether a git command ends with 0; it is one whose failure is an answer."""
        return self._start(words, "").returncode == 0

    def branch(self) -> str:
        """Return the branch that is checked out; GitError if there is none."""
        done = self._start(("symbolic-ref", "--quiet", "--short", "HEAD"), "")
        if done.returncode:
            raise GitError(
                f"HEAD is detached at {self.commit()[:12]}: a train is cut from a branch",
                "check a branch out: `git switch main`",
            )
        return done.stdout.strip()

    def commit(self, revision: str = "HEAD") -> str:
        """Return the full name of a revision's commit; GitError if there is none."""
        done = self._start(("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"), "")
        if done.returncode:
            raise GitError(
                f"{revision}: no such revision in {self._root}",
                "`git tag` and `git branch --all` list those that there are; `git fetch --tags` "
                "brings what is elsewhere",
            )
        return done.stdout.strip()

    def actor(self) -> str:
        """Return who commits here: ``name <address>``."""
        return self.run("var", "GIT_COMMITTER_IDENT").rpartition(">")[0] + ">"

    def changes(self) -> tuple[str, ...]:
        """Return what differs from the commit that is checked out, untracked files included."""
        return tuple(self.run("status", "--porcelain").splitlines())

    def require_clean(self) -> None:
        """Refuse a work tree with changes: GitError names some of them."""
        changes = self.changes()
        if changes:
            some = ", ".join(line[3:] for line in changes[:5])
            more = f" and {len(changes) - 5} more" if len(changes) > 5 else ""
            raise GitError(
                f"the work tree has changes that no commit holds: {some}{more}",
                "commit them, or put them away with `git stash --include-untracked`",
            )

    def has_branch(self, name: str) -> bool:
        """Return whether a local branch exists."""
        return self.succeeds("show-ref", "--verify", "--quiet", f"refs/heads/{name}")

    def has_tag(self, name: str) -> bool:
        """Return whether a tag exists."""
        return self.succeeds("show-ref", "--verify", "--quiet", f"refs/tags/{name}")

    def tags(self, pattern: str) -> tuple[str, ...]:
        """Return the tags that match a pattern, sorted by name."""
        return tuple(self.run("tag", "--list", pattern).splitlines())

    def files(self) -> tuple[str, ...]:
        """Return the files that git tracks or would track, relative to the root."""
        listing = self.run("ls-files", "-z", "--cached", "--others", "--exclude-standard")
        names = sorted(set(listing.split("\0")) - {""})
        return tuple(name for name in names if (self._root / name).is_file())

    def time(self, revision: str) -> int:
        """Return when a commit was made, in seconds of the epoch."""
        return int(self.run("show", "--no-patch", "--format=%ct", f"{revision}^{{commit}}"))

    def changed(self, revision: str, folder: str) -> int:
        """Return when a folder was last changed before a revision, in seconds of the epoch."""
        return int(self.run("log", "--max-count=1", "--format=%ct", revision, "--", folder))

    def export(self, revision: str, folder: Path) -> None:
        """Write the files of a commit into an empty folder: what is tracked, nothing else."""
        folder.mkdir(parents=True)
        archive = folder.parent / f"{folder.name}.tar"
        try:
            self.run("archive", "--format=tar", f"--output={archive}", f"{revision}^{{commit}}")
            # Python before 3.11.4 has no filters. The archive is git's own, of relative paths.
            filters: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            shutil.unpack_archive(archive, folder, **filters)
        finally:
            archive.unlink(missing_ok=True)

    def _start(self, words: tuple[str, ...], text: str) -> subprocess.CompletedProcess[str]:
        # What a hook or an alias of git's caller has set would lead to another repository.
        clean = dict.fromkeys(("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"))
        try:
            return subprocess.run(
                ("git", *words),
                cwd=self._root,
                input=text,
                capture_output=True,
                text=True,
                encoding="utf-8",
                env=child_environ({**clean, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}),
            )
        except FileNotFoundError:
            raise GitError("git: no such program on the path", "install git") from None
