"""The front end for TVM's Relay (up to 0.19)."""

from tvm_sramtile.frontend import require_tvm

require_tvm("relay")
