"""The front end for TVM's Relax (apache-tvm 0.26 and newer).

Importing it registers the back end ``relax.ext.sramtile`` and the pipeline ``relax_pipeline="sramtile"``.
"""

from tvm_sramtile.frontend import require_tvm

require_tvm("relax")

from tvm_sramtile.relax import codegen, pipeline  # noqa: E402 (TVM is looked at first)
from tvm_sramtile.relax.host import host_ops  # noqa: E402
from tvm_sramtile.relax.partition import PartitionForSramtile, partition_for_sramtile  # noqa: E402
from tvm_sramtile.relax.runner import (  # noqa: E402
    constants,
    export_library,
    import_onnx,
    regions,
    run_accelerator,
    run_host,
    run_regions,
)
from tvm_sramtile.relax.split import SplitOversized  # noqa: E402

codegen.register()
pipeline.register()

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
