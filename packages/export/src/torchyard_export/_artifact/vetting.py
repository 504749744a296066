"""Whether a ``.pt2`` program may be given to ``torch.export.load``.

torch unpickles what a program marks as pickled, evaluates its size expressions as Python, executes
its guards and code with its names in it, and calls whatever function of torch a node names. None of
these is left to a file: weights and constants are raw bytes, expressions are arithmetic on sizes,
names are names, nodes call operators, and there are no guards.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from torchyard.evidence import raised_as
from torchyard.evidence.archives import Limits, read_zip
from torchyard.evidence.documents import parse_json
from torchyard_export._errors import ArtifactError

_MEMBERS: Final = re.compile(
    r"data/weights/(weight_\d+|model_weights_config\.json)"
    r"|data/constants/(tensor_\d+|model_constants_config\.json)"
    r"|data/sample_inputs/model\.pt|models/model\.json"
    r"|archive_format|archive_version|byteorder|\.data/(version|serialization_id)"
)
_MODEL: Final = "models/model.json"
_SAMPLES: Final = "data/sample_inputs/model.pt"
_CONFIGS: Final = (
    "data/weights/model_weights_config.json",
    "data/constants/model_constants_config.json",
)
_EXPRESSION: Final = re.compile(r"[A-Za-z0-9_ +\-*/%(),<>=!&|~]*")
_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_SYMBOL: Final = re.compile(r"(s|u|z|zuf|zf|t)\d+")
# A symbol as sympy writes it: its name, and what is assumed of it.
_WRITTEN: Final = re.compile(r"Symbol\('((?:s|u|z|zuf|zf|t)\d+)'((?:, [a-z]+=(?:True|False))*)\)")
_FUNCTIONS: Final = frozenset(
    "Abs Add And CeilToInt CleanDiv Eq Equality FloatTrueDiv FloorDiv FloorToInt Ge GreaterThan "
    "Gt Identity IntTrueDiv Integer Le LessThan Lt Max Min Mod ModularIndexing Mul Ne Not Or Pow "
    "PowByNatural PythonMod Rational RoundToInt StrictGreaterThan StrictLessThan ToFloat "
    "TruncToInt Unequality Where ceiling false floor int_oo oo true False True".split()
)
_OPERATOR: Final = re.compile(
    r"torch\.ops\.(?P<space>[a-z_][a-z0-9_]*)\.(?P<op>[A-Za-z_]\w*)(\.(?P<overload>\w+))?"
)
_PLAIN: Final = re.compile(
    r"_operator\.(add|and_|eq|floordiv|ge|getitem|gt|le|lt|mod|mul|ne|neg|not_|or_|pow|pos|sub"
    r"|truediv)|math\.(ceil|floor|trunc)"
    r"|torch\.sym_(float|int|ite|max|min|not|sqrt)|torch\._sym_sqrt"
)
# torch writes names into Python code that it executes, and guards are such code: names have no
# character that a call, an assignment or a text needs, and guards are left out, since an artifact
# checks its inputs itself.
_NAME: Final = re.compile(r"[A-Za-z0-9_.+<> -]*")
_TREE: Final = re.compile(r"[A-Za-z0-9_.,:\[\]{}\" \\-]*")
_DROPPED: Final = frozenset({"guards_code", "metadata"})
# Arguments of operators, which are data.
_TEXTS: Final = frozenset({"as_string", "as_strings"})
_HIGHER: Final = frozenset({"cond", "scan", "while_loop", "wrap_with_set_grad_enabled"})
# Operators of torch and of this tree; another library's are named by who loads.
NAMESPACES: Final = frozenset(
    {
        *("aten", "prims", "quantized_decomposed"),
        *("torchyard_attention", "torchyard_export", "torchyard_kernels"),
    }
)
# Operators of these namespaces that reach files, memory by address, or other programs.
_FORBIDDEN: Final = frozenset({"aten.from_file", "aten._print", "aten.set_"})


_more: Final[ContextVar[frozenset[str]]] = ContextVar("more", default=frozenset())


@contextmanager
def allowing(namespaces: Collection[str]) -> Iterator[None]:
    """Let nodes call operators of more namespaces, in this thread."""
    token = _more.set(_more.get() | frozenset(namespaces))
    try:
        yield
    finally:
        _more.reset(token)


def vet(data: bytes, *, namespaces: frozenset[str] = NAMESPACES) -> bytes:
    """Return the program to load: the same members in a zip that we wrote.

    Args:
        data: the ``.pt2`` file.
        namespaces: of operators that nodes may call.

    Raises:
        ArtifactError: names what must not be loaded.
    """
    members = _members(data)
    if members.get(_SAMPLES):
        raise ArtifactError("program: expected no sample inputs, which torch would unpickle")
    for config in _CONFIGS:
        _check_config(config, _json(members, config))
    try:
        model = _cleaned(_json(members, _MODEL), namespaces | _more.get())
    except RecursionError as error:
        raise ArtifactError(f"program: {_MODEL}: nested too deep") from error
    members[_MODEL] = json.dumps(model).encode()
    buffer = io.BytesIO()
    # Written again, since two readers of a zip may see two different files in it.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(f"program/{name}"), content)
    return buffer.getvalue()


def _members(data: bytes) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with raised_as(lambda text: ArtifactError(f"program: expected a .pt2 file: {text}")):
        entries = read_zip(data, Limits(len(data)), stored=True)
    for path, member in entries.items():
        _, _, name = path.partition("/")
        if not _MEMBERS.fullmatch(name) or name in found:
            raise ArtifactError(f"program: {path!r}: not a member of a program")
        found[name] = member.content
    return found


def _json(members: dict[str, bytes], name: str) -> Any:
    if name not in members:
        raise ArtifactError(f"program: expected a member {name!r}, not there")
    with raised_as(lambda text: ArtifactError(f"program: {text}")):
        return parse_json(members[name], name)


def _check_config(name: str, config: Any) -> None:
    entries = config.get("config") if isinstance(config, dict) else None
    if not isinstance(entries, dict):
        raise ArtifactError(f"program: {name}: expected a table 'config'")
    for key, entry in entries.items():
        path = entry.get("path_name") if isinstance(entry, dict) else None
        if not isinstance(path, str) or entry.get("use_pickle") is not False:
            raise ArtifactError(f"program: {key!r}: expected raw bytes, got a pickle")
        if not re.fullmatch(r"(weight|tensor)_\d+", path):
            raise ArtifactError(f"program: {key!r}: expected a tensor, got {path!r}")


def _cleaned(data: Any, namespaces: frozenset[str], key: str = "") -> Any:
    """Return the model without guards and metadata; refuse any text that is more than a name."""
    if isinstance(data, dict):
        found = {}
        for name, value in data.items():
            if key == "range_constraints":
                _check_expression(name)
            elif not _NAME.fullmatch(name):
                raise ArtifactError(f"program: expected a name, got {name[:80]!r}")
            if name in _DROPPED:
                found[name] = type(value)()
            else:
                found[name] = _cleaned(value, namespaces, name)
        return found
    if isinstance(data, list):
        return [_cleaned(item, namespaces, key) for item in data]
    if key == "expr_str":
        _check_expression(data)
    elif key in {"target", "as_operator"}:
        _check_target(data, namespaces)
    elif isinstance(data, str) and key not in _TEXTS:
        form = _TREE if key in {"in_spec", "out_spec"} else _NAME
        if not form.fullmatch(data):
            raise ArtifactError(f"program: {key}: expected a name, got {data[:80]!r}")
    return data


def _check_expression(text: Any) -> None:
    plain = _WRITTEN.sub(r"\1", text) if isinstance(text, str) and len(text) < 65536 else "?"
    fine = _EXPRESSION.fullmatch(plain) is not None
    if fine:
        words = set(_WORD.findall(plain))
        fine = all(word in _FUNCTIONS or _SYMBOL.fullmatch(word) for word in words)
    if not fine:
        raise ArtifactError(f"program: expected arithmetic on sizes, got {str(text)[:80]!r}")


def _check_target(target: Any, namespaces: frozenset[str]) -> None:
    # Inputs and buffers have a target as well, which is a name and never a function: it has no dot
    # behind "torch", "math" or "_operator".
    if not isinstance(target, str):
        if target is None:
            return
        raise ArtifactError(f"program: expected an operator, got {target!r}")
    if not re.match(r"torch|math|_operator|#", target):
        return
    if _PLAIN.fullmatch(target):
        return
    match = _OPERATOR.fullmatch(target)
    if match is None or "__" in target.replace("__and__", "").replace("__or__", ""):
        raise ArtifactError(f"program: expected nodes that call operators, got {target!r}")
    if match["space"] == "higher_order":
        if match["op"] in _HIGHER and match["overload"] is None:
            return
    elif (
        match["space"] in namespaces
        and match["overload"] is not None
        and f"{match['space']}.{match['op']}" not in _FORBIDDEN
    ):
        return
    raise ArtifactError(
        f"program: calls {target}, and operators of {', '.join(sorted(namespaces))} are loaded "
        "alone; name others with namespaces="
    )
