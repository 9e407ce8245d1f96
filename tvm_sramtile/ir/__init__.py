"""Regions: what the accelerator is asked to compute, independent of Relay and Relax."""

from tvm_sramtile.ir.region import Clip, Region, Step, Tensor, digest_of, dtype_bytes

__all__ = ["Clip", "Region", "Step", "Tensor", "digest_of", "dtype_bytes"]
