"""2-D resize (upsampling and downsampling): attributes, and the questions that planner and lowering ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from tvm_sramtile.errors import UnsupportedOp
from tvm_sramtile.geometry.resize_axis import (
    AxisSlice,
    AxisTable,
    AxisTaps,
    CoordinateMode,
    Method,
    Rounding,
    Sampling,
    Ties,
    axis_slice,
    axis_table,
    axis_taps,
)
from tvm_sramtile.geometry.window import Window
from tvm_sramtile.ints import Range


@dataclass(frozen=True, slots=True)
class Resize2d:
    """A resize of one image, named as in TVM. Channels, rows and columns in elements.

    Rows and columns are resized one after the other, each by its table. A part of the result uses the whole map's
    table, so it equals the same part of the whole result.

    Attributes:
        rounding_method: looked at by nearest_neighbor only; "" is "round" with align_corners, else "floor".
        cubic_alpha, cubic_exclude: looked at by cubic only.
        ties: what "round" does halfway between two positions. TVM compiled it to "away" up to 0.19 (Relay's last
            release) and later; since pull request 19368 (April 2026) it is "even".
        whole_scale_floors: asymmetric nearest_neighbor floors along an axis whose output is a multiple of its input,
            whatever the rounding method. TVM did so from 0.10 (pull request 12315) to pull request 18838 (February
            2026), so in Relay.

    Raises:
        UnsupportedOp: an extent below 1; or a method, mode or rounding method that is not known.
            tf_crop_and_resize is not: it reads a region of interest and fills in a constant outside it.
    """

    in_channels: int
    in_rows: int
    in_cols: int
    out_rows: int
    out_cols: int
    method: Method = "linear"
    coordinate_transformation_mode: CoordinateMode = "half_pixel"
    rounding_method: Rounding = ""
    cubic_alpha: float = -0.75
    cubic_exclude: bool = False
    ties: Ties = "even"
    whole_scale_floors: bool = False
    kind: Literal["resize2d"] = "resize2d"

    def __post_init__(self) -> None:
        for name in ("in_channels", "in_rows", "in_cols", "out_rows", "out_cols"):
            if getattr(self, name) < 1:
                raise UnsupportedOp(f"resize2d: {name} is {getattr(self, name)}, it must be at least 1")
        allowed = {"method": Method, "coordinate_transformation_mode": CoordinateMode, "ties": Ties}
        if self.method == "nearest_neighbor":
            allowed["rounding_method"] = Rounding
        for name, values in allowed.items():
            if getattr(self, name) not in get_args(values):
                known = ", ".join(repr(value) for value in get_args(values))
                raise UnsupportedOp(f"resize2d: {name} {getattr(self, name)!r} is not supported, only {known}")

    @property
    def direction(self) -> str:
        """The seed's class of operators whose output rows are derived from input rows (claim 3)."""
        return "input-to-output"

    @property
    def tested_map(self) -> str:
        """The map whose footprint is tested."""
        return "output"

    @property
    def out_channels(self) -> int:
        """Output channels, as many as input channels."""
        return self.in_channels

    @property
    def macs(self) -> int:
        """None: blending is not counted as multiply-accumulates, as is the custom."""
        return 0

    @property
    def sampling(self) -> Sampling:
        """What both axes share."""
        return Sampling(
            self.method,
            self.coordinate_transformation_mode,
            self.rounding_method,
            self.cubic_alpha,
            self.cubic_exclude,
            self.ties,
            self.whole_scale_floors,
        )

    @property
    def rows(self) -> AxisTable:
        """For each output row the input rows that it blends, and their weights."""
        return axis_table(self.in_rows, self.out_rows, self.sampling)

    @property
    def cols(self) -> AxisTable:
        """For each output column the input columns that it blends, and their weights."""
        return axis_table(self.in_cols, self.out_cols, self.sampling)

    def row_window(self, out: Range) -> Window:
        """The input rows that output rows ``out`` read; never a pad, since the map's border repeats outside it."""
        return Window(self.rows.window(out), 0, 0)

    def col_window(self, out: Range) -> Window:
        """The input columns that output columns ``out`` read; never a pad."""
        return Window(self.cols.window(out), 0, 0)

    def row_taps(self, out: Range) -> AxisTaps:
        """Output rows ``out`` as a weighted sum of rows taken from ``row_window(out).read``, counted from its start."""
        return axis_taps(self.in_rows, self.out_rows, self.sampling, out)

    def col_taps(self, out: Range) -> AxisTaps:
        """Output columns ``out`` as a weighted sum of columns of ``col_window(out).read``, counted from its start."""
        return axis_taps(self.in_cols, self.out_cols, self.sampling, out)

    def row_slice(self, out: Range, tolerance: float = 0.0) -> AxisSlice | None:
        """Output rows ``out`` as this resize of a slice of rows, then cropped; ``None`` where that is not the same.

        See ``axis_slice`` for ``tolerance``. The slice reads and yields at least what is asked for; compare ``read``
        with ``row_window`` and ``out_size`` with ``out`` where memory counts.
        """
        return axis_slice(self.in_rows, self.out_rows, self.sampling, out, tolerance)

    def col_slice(self, out: Range, tolerance: float = 0.0) -> AxisSlice | None:
        """``row_slice`` along the columns."""
        return axis_slice(self.in_cols, self.out_cols, self.sampling, out, tolerance)

    def leaves_rows(self, rows: int) -> bool:
        """Whether TVM can apply this resize from ``rows`` to ``rows`` rows, and each row is then its own.

        Where it is so, the columns of a map can be resized without its rows, before rows are taken with weights.
        """
        if self.coordinate_transformation_mode == "align_corners" and rows == 1:
            return False  # TVM divides by zero
        table = axis_table(rows, rows, self.sampling)
        return all(
            weight == (first + tap == row)
            for row, (first, weights) in enumerate(zip(table.first, table.weights, strict=True))
            for tap, weight in enumerate(weights)
        )
