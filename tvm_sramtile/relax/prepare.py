"""What comes before partitioning: parameters bound, constants and padding folded, hidden operators named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm

from tvm_sramtile.errors import ModelError
from tvm_sramtile.relax.batch_norm import fold_batch_norm, open_batch_norm
from tvm_sramtile.relax.literals import fold_constants
from tvm_sramtile.relax.lowered import name_lowered
from tvm_sramtile.relax.pads import fold_pads
from tvm_sramtile.relax.regions import ModuleEdit
from tvm_sramtile.relax.walk import plain_functions

Params = Mapping[str, Any]
"""Arrays or TVM tensors by parameter name; or, as TVM's importers give them, lists by function name."""


def prepare(mod: tvm.IRModule, params: Params | None = None) -> tvm.IRModule:
    """The same computation in the form that partitioning reads best.

    Functions of back ends and outlined functions stay as they are.

    Raises:
        ModelError: ``params`` has a name that no function has.
    """
    mod = _bind(mod, params or {})
    mod = fold_constants(mod)
    mod = name_lowered(mod)
    edit = ModuleEdit(mod)
    for var, function in plain_functions(mod):
        folded = open_batch_norm(fold_batch_norm(fold_pads(function)))
        if folded is not function:
            edit.replace(var, folded)
    return edit.result()


def _bind(mod: tvm.IRModule, params: Params) -> tvm.IRModule:
    edit = ModuleEdit(mod)
    left = dict(params)
    for var, function in plain_functions(mod):
        names = [str(param.name) for param in function.params]
        values = {name: params[name] for name in names if name in params and not isinstance(params[name], list | tuple)}
        listed = params.get(var.name_hint)
        if isinstance(listed, list | tuple):
            values |= dict(zip(names[len(names) - len(listed) :], listed, strict=True))
            left.pop(var.name_hint, None)
        if values:
            edit.add(var.name_hint, function.bind_params({name: _tensor(value) for name, value in values.items()}))
        for name in values:
            left.pop(name, None)
    if left:
        known = sorted({str(param.name) for _, function in plain_functions(mod) for param in function.params})
        raise ModelError(f"params has {sorted(left)[0]!r}, which is no parameter: parameters are {', '.join(known)}")
    return edit.result()


def _tensor(value: Any) -> Any:
    return tvm.runtime.tensor(np.asarray(value, order="C")) if isinstance(value, np.ndarray) else value
