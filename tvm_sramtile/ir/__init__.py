"""Regions: what the accelerator is asked to compute, independent of Relay and Relax."""

from tvm_sramtile.ir.region import Activation, Clip, Region, Role, Step, Tensor, digest_of, dtype_bytes

__all__ = ["Activation", "Clip", "Region", "Role", "Step", "Tensor", "digest_of", "dtype_bytes"]
