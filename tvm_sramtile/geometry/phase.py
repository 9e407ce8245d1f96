"""One axis of a convolution as the array sees it: phases, each an ordinary convolution on part of the outputs."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_sramtile.geometry.window import conv_window
from tvm_sramtile.ints import Range, ceil_div


@dataclass(frozen=True, slots=True)
class Phase:
    """The outputs ``offset, offset + step, ...`` along one axis.

    Output ``offset + q*step`` is the sum over ``j`` of ``input[q*stride + first + dilation*j] * weight[taps[j]]``.

    Attributes:
        taps: kernel positions, in the order of the input they read; none where a transposed convolution's stride
            exceeds its kernel.
        first: input position that ``taps[0]`` reads for ``q = 0``.
        stride: input positions from one output of the phase to the next.
        dilation: input positions from one tap to the next.
    """

    offset: int
    step: int
    taps: tuple[int, ...]
    first: int
    stride: int
    dilation: int

    def outputs(self, out: Range) -> Range:
        """The ``q`` whose outputs lie in ``out``."""
        start = max(0, ceil_div(out.start - self.offset, self.step))
        return Range(start, max(start, ceil_div(out.stop - self.offset, self.step)))

    def reads(self, out: Range, taps: Range, size: int) -> Range:
        """The least part of a map of ``size`` positions that holds what the outputs in ``out`` read with some taps.

        Args:
            out: positions of the whole output, of all phases.
            taps: which of ``self.taps``.
            size: positions of the input.
        """
        own = self.outputs(out)
        if not len(own) or not len(taps):
            return Range(0, 0)
        before = -self.first - self.dilation * taps.start
        return conv_window(own, size, len(taps), self.stride, self.dilation, before).read

    @property
    def tap_step(self) -> int:
        """Kernel positions from one tap to the next; negative where the kernel is flipped."""
        return self.taps[1] - self.taps[0] if len(self.taps) > 1 else 1
