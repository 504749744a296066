"""Every call that is tried, and the public names of which none is."""

from __future__ import annotations

from typing import Final

from tests.fuzz.calls import (
    attention,
    block_mask,
    cache,
    collectives,
    compile,
    conformance,
    context_parallel,
    core,
    export,
    flight,
    kernels,
    masks,
    modules,
    paged,
    programs,
)
from tests.fuzz.harness import Call

__all__ = ["CALLS", "NOT_TRIED", "NO_USERS", "prepare"]

CALLS: Final[tuple[Call, ...]] = tuple(
    call
    for module in (
        core,
        programs,
        attention,
        masks,
        block_mask,
        cache,
        paged,
        kernels,
        modules,
        collectives,
        compile,
        flight,
        context_parallel,
        export,
        conformance,
    )
    for call in module.CALLS
)

_SPI: Final = "what implementations are given, made by the functions that users call"
_OURS: Final = "an implementation of ours: the registry calls it"

# Public modules of which users call nothing, and why; a name stands for the modules below it too.
NO_USERS: Final = {
    "torchyard.arguments": "the checks themselves, which packages/core/tests hold",
    "torchyard.cli": "a command line, whose words click checks",
    "torchyard.dispatch": "what our packages call between a user and an implementation",
    "torchyard.evidence": "what our packages read and sign files with",
    "torchyard.hookspecs": "specifications without code",
    "torchyard.torch_compat": "parts of torch that are not public, for our packages",
    "torchyard_attention.cases": "calls for tests of implementations",
    "torchyard_attention.contract": _SPI,
    "torchyard_attention.demo": "an example with a command line",
    "torchyard_attention.fast_path": _SPI,
    "torchyard_attention.fused": _SPI,
    "torchyard_attention.graph_call": "what our passes of compilers put into graphs",
    "torchyard_attention.implementations": _OURS,
    "torchyard_attention.pages": _SPI,
    "torchyard_attention.programs": _SPI,
    "torchyard_attention.reference": _OURS,
    "torchyard_attention.testing": "calls for tests of implementations",
    "torchyard_attention.tolerance": "rulers for tests of implementations",
    "torchyard_attention.transformers.parallel": _SPI,
    "torchyard_attention.visibility": _SPI,
    "torchyard_cache.torch_compat": "parts of torch that are not public, for this package",
    "torchyard_collectives.contract": _SPI,
    "torchyard_compile.torch_compat": "parts of torch that are not public, for this package",
    "torchyard_context_parallel.demo": "an example with a command line",
    "torchyard_context_parallel.transformers": "what context_parallel() enters",
    "torchyard_cpu": _OURS,
    "torchyard_cuda": _OURS,
    "torchyard_export.contract": _SPI,
    "torchyard_export.targets": _OURS,
    **{
        f"torchyard_kernels.{op}": "users call what torchyard_kernels itself has of it"
        for op in ("graphs", "linear", "pointwise", "recurrent", "topk")
    },
    "torchyard_mps": _OURS,
    "torchyard_rocm": _OURS,
    "torchyard_simulated": _OURS,
    "torchyard_xpu": _OURS,
    "torchyard_triton": "what plugins of devices call, with calls that were checked",
}

_READ: Final = "made by us and read by users"
_CHECKED: Final = "called by our packages at every call, with what was checked before"

# Names of other modules that are not tried, and why.
NOT_TRIED: Final = {
    **dict.fromkeys(
        (
            *("torchyard.Candidate", "torchyard.Decision", "torchyard.DecisionChange"),
            *("torchyard.DecisionDump", "torchyard.DecisionRecord", "torchyard.Evidence"),
            "torchyard.GraphCall",
            *("torchyard.Feature", "torchyard.Manifest"),
            *("torchyard.Accelerator", "torchyard.Platform", "torchyard.PlatformFile"),
            *("torchyard.Plugin", "torchyard.PluginSource"),
            *("torchyard.optimization.Figures", "torchyard.optimization.Optimized"),
            *("torchyard.optimization.Plan", "torchyard.optimization.PlanStep"),
            *("torchyard.optimization.Report", "torchyard.optimization.Trial"),
            "torchyard.Policy",
            *("torchyard_attention.AttentionPartGradients", "torchyard_attention.AuxOutput"),
            *("torchyard_attention.CacheMemory", "torchyard_attention.scores.SinkOutput"),
            *("torchyard_collectives.flight.Finding", "torchyard_collectives.flight.Report"),
            "torchyard_collectives.oracle.GradientCheck",
            *("torchyard_export.Report", "torchyard_export.Stage"),
            *("torchyard_export.Accuracy", "torchyard_export.FloatLayer"),
            *("torchyard_export.QuantizationReport", "torchyard_export.Quantized"),
            *("torchyard_conformance.Law", "torchyard_conformance.Profile"),
            *("torchyard_conformance.Report", "torchyard_conformance.LawResult"),
            *("torchyard_kernels.Accelerated", "torchyard_kernels.Change"),
            *("torchyard_kernels.Gain", "torchyard_kernels.GraphMemory"),
            *("torchyard_kernels.LstmOutput", "torchyard_kernels.LstmState"),
            *("torchyard_kernels.RecurrentOutput", "torchyard_kernels.Report"),
            *("torchyard_kernels.Skipped", "torchyard_kernels.TopK", "torchyard_kernels.Tuned"),
            *("torchyard_programs.Operation", "torchyard_programs.Program"),
            *("torchyard_programs.Reference", "torchyard_programs.Step"),
            *("torchyard_programs.Graph", "torchyard_programs.Node"),
            *("torchyard_programs.ElementPrograms", "torchyard_programs.NumberSteps"),
            *("torchyard_programs.ProgramGraph", "torchyard_programs.Site"),
            "torchyard_programs.TypedProgram",
            *("torchyard_conformance.metal.Finding", "torchyard_conformance.metal.Launch"),
            "torchyard_conformance.metal.Outcome",
            *("torchyard_cache.Reuse", "torchyard_cache.ReusedModule", "torchyard_cache.Stats"),
            "torchyard_cache.Replay",
            *("torchyard_compile.Compilation", "torchyard_compile.Region"),
            *("torchyard_compile.Report", "torchyard_compile.CallSite"),
            *("torchyard_compile.BackwardReport", "torchyard_compile.CompiledBackward"),
            "torchyard_compile.probes.Probed",
            *("torchyard_cache.artifacts.Artifact", "torchyard_cache.artifacts.Machine"),
            *("torchyard_cache.artifacts.CompiledGraph", "torchyard_cache.artifacts.Explanation"),
            *("torchyard_cache.artifacts.Inspection", "torchyard_cache.artifacts.Loading"),
            *("torchyard_cache.artifacts.Manifest", "torchyard_cache.artifacts.Merging"),
        ),
        _READ,
    ),
    **dict.fromkeys(
        ("torchyard_compile.probes.probe", "torchyard_compile.probes.differences"),
        "each call starts a process; packages/compile/tests try the command's wrong words",
    ),
    "torchyard_programs.program_graph": "packages that write kernels call it, with what trace made",
    **dict.fromkeys(
        (
            f"torchyard_conformance.metal.{name}"
            for name in ("Empty", "check", "run", "run_by_opencl")
        ),
        "each call starts a compiler; packages/conformance/tests/metal try wrong arguments",
    ),
    **dict.fromkeys(
        (
            *("torchyard.active_transform", "torchyard.differentiable_jvp"),
            *("torchyard.is_batch_of_gradients", "torchyard.decide", "torchyard.round_size"),
            *("torchyard_attention.dropout.Dropout", "torchyard_attention.dropout.philox"),
            "torchyard_attention.dropout.dropout_factors",
            "torchyard_collectives.oracle.compare_with_dense",
        ),
        _CHECKED,
    ),
    "torchyard.Operators": "registers ops with torch.library, which checks schemas itself",
    "torchyard.Request": "a protocol",
    "torchyard.hookimpl": "pluggy's",
    **dict.fromkeys(
        (
            *("torchyard_attention.masks.BlockRows", "torchyard_attention.masks.Intervals"),
            *("torchyard_attention.masks.StructuredMask", "torchyard_attention.masks.Visibility"),
            "torchyard_attention.masks.causal",
        ),
        "what a mask answers when it is recorded; create_block_mask checks that",
    ),
    **dict.fromkeys(
        (
            *("torchyard_collectives.oracle.Dense", "torchyard_collectives.oracle.Inputs"),
            *("torchyard_collectives.oracle.Launch", "torchyard_programs.Traits"),
        ),
        "a name for a type",
    ),
    "torchyard_collectives.flight.command": "a command line, whose words click checks",
}


def prepare() -> None:
    """Make what calls need once in a process."""
    collectives.prepare()
