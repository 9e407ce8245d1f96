"""Turns of the MAC array, the part of the instruction set's cycle costs that is more than a product of extents."""

from __future__ import annotations

from tvm_sramtile.ints import ceil_div

Array = tuple[int, int]  # input channels that the array takes in a cycle, output channels that it yields


def conv_turns(in_channels: int, out_channels: int, groups: int, array: Array) -> int:
    """Turns for one position and tap of a CONV: group by group, or one input channel of each group after the other.

    Args:
        in_channels: of one group.
        out_channels: of all groups.
        groups: of the command.
        array: the MAC array.
    """
    mac_in, mac_out = array
    by_group = groups * ceil_div(in_channels, mac_in) * ceil_div(out_channels // groups, mac_out)
    return min(by_group, in_channels * ceil_div(out_channels, mac_out))


def channel_turns(channels: int, array: Array) -> int:
    """Turns for one position and tap of a command that treats each channel by itself."""
    return ceil_div(channels, array[1])
