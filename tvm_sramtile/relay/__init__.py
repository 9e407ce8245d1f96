"""The front end for TVM's Relay (up to 0.19); importing it registers the back end ``sramtile``."""

from tvm_sramtile.frontend import require_tvm

require_tvm("relay")

from tvm_sramtile.relay.codegen import register  # noqa: E402 - TVM is looked at first
from tvm_sramtile.relay.host_ops import host_ops  # noqa: E402
from tvm_sramtile.relay.partition import PartitionForSramtile, partition_for_sramtile  # noqa: E402
from tvm_sramtile.relay.runner import (  # noqa: E402
    constants,
    export_library,
    import_onnx,
    regions,
    run_accelerator,
    run_host,
    run_regions,
)
from tvm_sramtile.relay.split import SplitOversized  # noqa: E402

register()

__all__ = [
    "PartitionForSramtile",
    "SplitOversized",
    "constants",
    "export_library",
    "host_ops",
    "import_onnx",
    "partition_for_sramtile",
    "regions",
    "run_accelerator",
    "run_host",
    "run_regions",
]
