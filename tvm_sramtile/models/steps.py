"""The steps that make a network fit for TVM's importers, each kept only where onnxruntime sees the same outputs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tvm_sramtile.errors import MissingDependency
from tvm_sramtile.models.reading import names_text, one_line, optional

if TYPE_CHECKING:
    import onnx

Array: TypeAlias = npt.NDArray[Any]

#: The opset that both generations of TVM's importers know best; older networks are converted to it.
OPSET = 13

#: Largest difference allowed between raw and prepared outputs, relative to max(1, largest raw magnitude). Integers must
#: be equal.
TOLERANCES = {"float16": 1e-2, "float32": 1e-4, "float64": 1e-4}


# --- preparation steps: each returns a new model, or None where it has nothing to do


def _simplified(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Folds what is constant now that shapes are static, since importers want constant shapes, sizes and pads.

    Fuses pads, scales and batch norm into convolutions besides: fewer ops that an accelerator does not take.
    """
    return _slim(model, [])


def _folded(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Constant folding alone, for where fusion moves the outputs."""
    return _slim(model, ["graph_fusion", "weight_tying"])


def _slim(model: onnx.ModelProto, skipped: list[str]) -> onnx.ModelProto:
    onnxslim = optional("onnxslim")
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        slimmed: onnx.ModelProto = onnxslim.slim(_copy(model), skip_optimizations=skipped or None)
    finally:
        # onnxslim may configure logging; how the caller logs is the caller's choice.
        root.handlers[:] = handlers
        root.setLevel(level)
    return slimmed


def _converted(model: onnx.ModelProto) -> onnx.ModelProto | None:
    version = next((item.version for item in model.opset_import if item.domain in ("", "ai.onnx")), OPSET)
    if version >= OPSET:
        return None
    converted: onnx.ModelProto = optional("onnx.version_converter").convert_version(model, OPSET)
    return converted


def _without_empty_resize_inputs(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Importers take a `scales` that is there but empty for a second way of giving the size."""
    empty = {tensor.name for tensor in model.graph.initializer if 0 in tensor.dims}
    result, changed = _copy(model), False
    for node in result.graph.node:
        if node.op_type != "Resize":
            continue
        for index, name in enumerate(node.input):
            if name in empty:
                node.input[index] = ""
                changed = True
    return result if changed else None


def _with_plain_adds(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Relax imports Sum as a stack and a reduction, in which a residual connection is hard to recognise."""
    result, changed = _copy(model), False
    for node in result.graph.node:
        if node.op_type == "Sum" and len(node.input) == 2:
            node.op_type = "Add"
            changed = True
    return result if changed else None


def _with_inferred_shapes(model: onnx.ModelProto) -> onnx.ModelProto | None:
    inferred: onnx.ModelProto = optional("onnx.shape_inference").infer_shapes(model)
    return inferred


Step: TypeAlias = Callable[["onnx.ModelProto"], "onnx.ModelProto | None"]

#: Alternatives for each step, best first. The order matters: the first two steps may write empty Resize inputs.
STEPS: tuple[tuple[tuple[str, Step], ...], ...] = (
    (("simplified with onnxslim", _simplified), ("constants folded with onnxslim, nothing fused", _folded)),
    ((f"converted to opset {OPSET}", _converted),),
    (("dropped empty inputs of Resize", _without_empty_resize_inputs),),
    (("wrote Sum of two as Add", _with_plain_adds),),
    (("inferred shapes", _with_inferred_shapes),),
)


def apply_steps(
    model: onnx.ModelProto,
    feeds: Mapping[str, Array],
    expected: Mapping[str, Array],
    steps: Sequence[Sequence[tuple[str, Step]]],
) -> tuple[onnx.ModelProto, tuple[str, ...], float]:
    """Keeps each step that leaves the outputs as they were.

    Returns the model, the notes, and the largest difference from `expected`.
    """
    notes: list[str] = []
    diff = 0.0
    for alternatives in steps:
        for label, step in alternatives:
            try:
                candidate = step(model)
                if candidate is None:
                    break
                outcome = _compare(expected, run_model(candidate, feeds))
            except MissingDependency:
                raise
            except (
                Exception
            ) as error:  # a step of a third party may fail in any way: the network is then left as it was
                notes.append(f"not {label}: {one_line(error)}")
                continue
            if not outcome.agrees:
                notes.append(f"not {label}: it moves output {outcome.worst!r} by {outcome.diff:.1e}")
                continue
            model, diff = candidate, outcome.diff
            notes.append(f"{label}, outputs within {outcome.diff:.1e}")
            break
    return model, tuple(notes), diff


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    result = type(model)()
    result.CopyFrom(model)
    return result


# --- running and comparing


def run_model(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs by name, from onnxruntime on the CPU."""
    runtime = optional("onnxruntime")
    options = runtime.SessionOptions()
    # Errors reach the caller as exceptions. Optimisation is off: what is compared is the graphs, not what onnxruntime
    # makes of each (it fuses a quantised network differently after the slightest change).
    options.log_severity_level = 4
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    values = session.run(names, dict(feeds))
    return {name: np.asarray(value) for name, value in zip(names, values, strict=True)}


@dataclass(frozen=True, slots=True)
class _Outcome:
    agrees: bool
    worst: str
    diff: float


def _compare(expected: Mapping[str, Array], found: Mapping[str, Array]) -> _Outcome:
    if list(expected) != list(found):
        raise ValueError(f"it changes the outputs to {names_text(found)}")
    agrees, worst, diff = True, next(iter(expected)), 0.0
    for name, value in expected.items():
        if value.shape != found[name].shape or value.dtype != found[name].dtype:
            raise ValueError(f"it changes the type of output {name!r}")
        here = _max_abs_diff(value, found[name])
        finite = np.abs(value[np.isfinite(value)].astype(np.float64))
        scale = max(1.0, float(finite.max(initial=0.0)))
        agrees = agrees and here <= TOLERANCES.get(value.dtype.name, 0.0) * scale
        if here > diff:
            worst, diff = name, here
    return _Outcome(agrees, worst, diff)


def _max_abs_diff(expected: Array, found: Array) -> float:
    """Equal infinities and NaNs in the same place do not differ; a NaN against a number differs without bound."""
    left, right = expected.astype(np.float64), found.astype(np.float64)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    with np.errstate(invalid="ignore"):
        gaps = np.where(same, 0.0, np.abs(left - right))
    return float(np.where(np.isnan(gaps), np.inf, gaps).max(initial=0.0))
