"""The accelerator compared with TVM: each region on its own inputs, and the network end to end."""

from tvm_sramtile.verify.network import (
    OutputResult,
    Pair,
    RegionResult,
    Verification,
    compile_regions,
    host_lines,
    verify,
)
from tvm_sramtile.verify.tolerance import max_abs_diff, region_tolerance

__all__ = [
    "OutputResult",
    "Pair",
    "RegionResult",
    "Verification",
    "compile_regions",
    "host_lines",
    "max_abs_diff",
    "region_tolerance",
    "verify",
]
