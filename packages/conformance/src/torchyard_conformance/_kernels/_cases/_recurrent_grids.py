"""Cases of ``recurrent/1`` and ``recurrent_backward/1``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from torchyard_conformance._kernels._case import Case, named_cases
from torchyard_conformance._kernels._cases._recurrent import (
    BackwardCase,
    MovedCase,
    RecordedCase,
    RecurrentCase,
)
from torchyard_kernels.recurrent.contract import BACKWARD, FORWARD, RecurrentKind

__all__ = ["GRIDS"]

_FLOATS: Final = ("float32", "bfloat16", "float16")
_SHAPES: Final[Mapping[str, Mapping[str, Any]]] = {
    "": {},
    "-layers": {"layers": 2, "bidirectional": True},
    "-ragged": {"ragged": True, "bias": False, "steps": 6},
    "-wide": {"hidden": 40, "inputs": 33, "sequences": 18},
    "-one-step": {"steps": 1, "sequences": 1},
}
_LSTM: Final = RecurrentKind.LSTM


def _shapes(
    case: type[RecurrentCase], dtypes: tuple[str, ...], shapes: tuple[str, ...]
) -> list[RecurrentCase]:
    return [
        case(f"{kind}-{dtype}{shape}", kind=kind, dtype=dtype, **_SHAPES[shape])
        for dtype in dtypes
        for kind in RecurrentKind
        for shape in shapes
    ]


_MATCHES: Final = named_cases(
    *_shapes(RecurrentCase, _FLOATS, tuple(_SHAPES)),
    *(
        RecurrentCase(f"lstm-{dtype}-projected", kind=_LSTM, dtype=dtype, proj=4, layers=2)
        for dtype in _FLOATS
    ),
    RecurrentCase("float64", dtype="float64"),
    *(
        RecurrentCase(f"{kind}-{dtype}-reserve", kind=kind, dtype=dtype, reserve=True, ragged=True)
        for kind in RecurrentKind
        for dtype in _FLOATS
    ),
)
_PADDING: Final = named_cases(
    *(
        RecurrentCase(f"{kind}-{dtype}", kind=kind, dtype=dtype, ragged=True, bad="padding")
        for kind in RecurrentKind
        for dtype in _FLOATS
    ),
    RecurrentCase("both-directions", ragged=True, bidirectional=True, layers=2, bad="padding"),
)
_NOT_FINITE: Final = named_cases(
    *(
        RecurrentCase(f"{kind}-{dtype}", kind=kind, dtype=dtype, bad="sequence", sequences=3)
        for kind in RecurrentKind
        for dtype in _FLOATS
    ),
)
_ANY_MEMORY: Final = named_cases(
    *(
        RecurrentCase(f"{kind}-{layout}", layout, kind)
        for kind in RecurrentKind
        for layout in ("offset", "strided", "transposed")
    ),
    RecurrentCase("lstm-bfloat16-transposed", "transposed", _LSTM, "bfloat16", ragged=True),
)
_FORMS: Final = named_cases(
    *(RecurrentCase(f"{kind}", kind=kind) for kind in RecurrentKind),
    RecurrentCase("lstm-bfloat16-projected", kind=_LSTM, dtype="bfloat16", proj=3),
    RecurrentCase("gru-ragged", ragged=True, dtype="float16"),
    RecurrentCase("lstm-reserve", kind=_LSTM, reserve=True, dtype="bfloat16"),
)
_BATCHES: Final = named_cases(
    *(RecurrentCase(f"{kind}", kind=kind, hidden=40, sequences=5) for kind in RecurrentKind),
    RecurrentCase("lstm-bfloat16", kind=_LSTM, dtype="bfloat16", hidden=40, sequences=5),
)
_RECORDED: Final = named_cases(
    *_shapes(RecordedCase, ("float32",), ("", "-layers", "-ragged")),
    RecordedCase("gru-bfloat16", dtype="bfloat16"),
)
_GRADIENTS: Final = named_cases(
    # A relu has a kink: of 16 bits a rounding may take the other side, which no bound explains.
    *(
        case
        for case in _shapes(BackwardCase, _FLOATS, ("", "-layers", "-ragged"))
        if case.kind is not RecurrentKind.RNN_RELU or case.dtype == "float32"
    ),
    BackwardCase("lstm-projected", kind=_LSTM, proj=4, layers=2),
    *(BackwardCase(f"{kind}-output-alone", kind=kind, whole=False) for kind in RecurrentKind),
)
_TANGENTS: Final = named_cases(
    *(RecurrentCase(f"{kind}", kind=kind) for kind in RecurrentKind),
    RecurrentCase("gru-float64-ragged", dtype="float64", ragged=True),
    RecurrentCase("lstm-layers", kind=_LSTM, layers=2, bidirectional=True),
)
GRIDS: Final[Mapping[str, Mapping[str, Mapping[str, Case]]]] = {
    FORWARD: {
        "matches": _MATCHES,
        "padding": _PADDING,
        "not-finite": _NOT_FINITE,
        "any-memory": _ANY_MEMORY,
        "forms": _FORMS,
        "batches": _BATCHES,
        "recorded": _RECORDED,
        "tangents": _TANGENTS,
    },
    BACKWARD: {
        "matches": _GRADIENTS,
        "padding": named_cases(
            *(
                BackwardCase(f"{kind}", kind=kind, ragged=True, bad="padding")
                for kind in RecurrentKind
            )
        ),
        "any-memory": named_cases(
            *(
                BackwardCase(f"{layout}", layout, _LSTM)
                for layout in ("offset", "strided", "transposed")
            )
        ),
        "forms": named_cases(
            BackwardCase("gru"), BackwardCase("lstm-bfloat16", kind=_LSTM, dtype="bfloat16")
        ),
        "repeats": named_cases(BackwardCase("gru", hidden=40, sequences=5)),
        "tangents": named_cases(*(MovedCase(f"{kind}", kind=kind) for kind in RecurrentKind)),
    },
}
