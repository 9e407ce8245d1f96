"""The pipeline ``tvm.compile(mod, target, relax_pipeline="sramtile")``."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

PIPELINE = "sramtile"
CODEGEN = "sramtile"
_CONSTANTS = "const_name_to_constant"


def build_pipeline() -> tvm.transform.Pass:
    """Compile the regions that are in the module, then everything else as TVM does by default.

    It does not partition: ``partition_for_sramtile`` comes before.
    """
    return tvm.transform.Sequential(
        [relax.transform.RunCodegen(), _drop_remains(), relax.get_pipeline("default")], name=PIPELINE
    )


def register() -> None:
    """Make the pipeline known to TVM by its name; a second call changes nothing."""
    if PIPELINE not in relax.pipeline.PIPELINE_MAP:
        relax.register_pipeline(PIPELINE)(build_pipeline)


def _drop_remains() -> tvm.transform.Pass:
    """Remove what ``RunCodegen`` leaves of compiled regions.

    * Constants of their bodies. TVM keeps them for back ends that ask for weights when they start, and would store
      them in the executable a second time: our programs hold their weights.
    * Regions that no function calls. They are compiled, and callable as ``executable[name](inputs..., outputs...)``,
      but their bodies stay in the module; under the same name these would run on the host, unnoticed.
    """

    @tvm.transform.module_pass(opt_level=0, name="DropSramtileRemains")
    def drop(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        functions = {var: function for var, function in mod.functions.items() if not _is_region(function)}
        attributes: dict[str, Any] = dict(mod.attrs) if mod.attrs else {}
        constants = dict(attributes.pop(_CONSTANTS, {}))
        kept = {name: value for name, value in constants.items() if f"_{CODEGEN}_const_" not in str(name)}
        if kept:
            attributes[_CONSTANTS] = kept
        return tvm.IRModule(functions, attrs=attributes, global_infos=mod.global_infos)

    return drop


def _is_region(function: Any) -> bool:
    return isinstance(function, relax.Function) and bool(function.attrs) and function.attrs.get("Codegen") == CODEGEN
