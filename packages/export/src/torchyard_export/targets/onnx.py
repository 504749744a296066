"""ONNX, through torch's exporter, run by onnxruntime."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import onnx
import onnxruntime
import torch
from torch import Tensor
from torch.export import ExportedProgram

from torchyard_export.contract import TargetError
from torchyard_export.targets import _onnx_layers
from torchyard_export.targets._own_operators import check_own_operators

__all__ = ["Onnx"]

_FILE: Final = "model.onnx"
_OPSET: Final = 18
_OURS: Final = torch.ops.torchyard_export
_LAYERS: Final[Mapping[Any, Callable[..., Any]]] = {
    _OURS.lstm.default: _onnx_layers.lstm,
    _OURS.gru.default: _onnx_layers.gru,
    _OURS.rnn.default: _onnx_layers.rnn,
}


class Onnx:
    """A model of ONNX's own operators; recurrent layers are ONNX's LSTM, GRU and RNN."""

    native = False

    def export(self, program: ExportedProgram, folder: Path) -> Mapping[str, bytes]:
        """Return the file ``model.onnx``, weights inside.

        Raises:
            TargetError: torch's exporter refuses, or a layer has no such form.
        """
        layers = dict(_LAYERS)
        check_own_operators(program, layers, "ONNX")
        if _is_projected(program):
            layers[_OURS.lstm.default] = _onnx_layers.projected_lstm(_values(program))
        try:
            # The exporter prints, warns and logs its progress.
            with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(), _quiet():
                warnings.simplefilter("ignore")
                made = torch.onnx.export(
                    program,
                    dynamo=True,
                    opset_version=_OPSET,
                    custom_translation_table=layers,
                )
            assert made is not None
            data: bytes = made.model_proto.SerializeToString()
        except Exception as error:
            raise TargetError(f"torch.onnx refuses: {_first_line(error)}") from error
        return {_FILE: data}

    def load(
        self, files: Mapping[str, bytes], folder: Path
    ) -> Callable[[Sequence[Any]], Sequence[Any]]:
        """Return what runs the model in onnxruntime on the CPU; TargetError for outside data."""
        data = files[_FILE]
        _check_inside(data)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        # As many threads as torch computes with, so that the two are compared alike.
        options.intra_op_num_threads = torch.get_num_threads()
        session = onnxruntime.InferenceSession(
            data, sess_options=options, providers=["CPUExecutionProvider"]
        )
        names = [item.name for item in session.get_inputs()]

        def run(leaves: Sequence[Any]) -> Sequence[Any]:
            tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
            if len(tensors) != len(names):
                raise TargetError(f"expected {len(names)} tensors, got {len(tensors)}")
            feed = {
                name: tensor.detach().cpu().contiguous().numpy()
                for name, tensor in zip(names, tensors, strict=True)
            }
            return [torch.from_numpy(item) for item in session.run(None, feed)]

        return run

    def versions(self) -> Mapping[str, str]:
        """Return what made the model and what runs it."""
        return {name: version(name) for name in ("onnx", "onnxruntime", "onnxscript")}

    def findings(self, files: Mapping[str, bytes]) -> Iterable[tuple[str, str]]:
        """Find GRUs whose reset gate comes before the recurrent matrix: torch has none."""
        model = onnx.load_model_from_string(files[_FILE])
        for node in _nodes(model):
            given = {item.name: item.i for item in node.attribute}
            if node.op_type == "GRU" and given.get("linear_before_reset", 0) != 1:
                yield (
                    "gru-reset-order",
                    f"onnx: node {node.name!r} is a GRU with linear_before_reset = 0",
                )


def _nodes(model: onnx.ModelProto) -> Iterable[Any]:
    waiting = [model.graph.node, *(function.node for function in model.functions)]
    while waiting:
        for node in waiting.pop():
            yield node
            for item in node.attribute:
                waiting += [graph.node for graph in [item.g, *item.graphs] if graph.node]


def _check_inside(data: bytes) -> None:
    try:
        model = onnx.load_model_from_string(data)
    except Exception as error:
        raise TargetError(f"{_FILE}: expected an ONNX model: {_first_line(error)}") from error
    outside = [
        item.name
        for item in model.graph.initializer
        if item.data_location == onnx.TensorProto.EXTERNAL
    ]
    outside += [
        node.name
        for node in _nodes(model)
        for item in node.attribute
        if item.t.data_location == onnx.TensorProto.EXTERNAL
    ]
    if outside:
        raise TargetError(f"{_FILE}: expected weights inside, got {outside[0]!r} in another file")


def _is_projected(program: ExportedProgram) -> bool:
    found = {
        node.args[2].meta["val"].shape[-1] != node.args[3].meta["val"].shape[-1]
        for node in program.graph.nodes
        if node.target is _OURS.lstm.default
    }
    if len(found) == 2:
        raise TargetError("expected LSTMs all with or all without proj_size, got both")
    return True in found


def _values(program: ExportedProgram) -> Callable[[Any], Tensor]:
    signature = program.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}

    def value_of(value: Any) -> Tensor:
        if value.name not in names:
            raise TargetError(
                f"expected weights of an LSTM with proj_size as parameters, got {value.name!r}, "
                "which is computed"
            )
        found: Tensor = program.state_dict[names[value.name]]
        return found

    return value_of


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _first_line(error: Exception) -> str:
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    lines = [line for line in str(cause).splitlines() if line.strip()] or [""]
    return f"{type(cause).__name__}: {lines[0][:300]}"
