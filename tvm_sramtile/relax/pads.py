"""Explicit padding: what convolutions can do themselves becomes theirs, all else stays with a reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import relax

from tvm_sramtile.geometry.explicit_pad import NO_READER, Width, pad_refusal, pads_nothing, spatial_pads
from tvm_sramtile.relax.access import op_name
from tvm_sramtile.relax.emit import Emitter
from tvm_sramtile.relax.walk import Place, Uses, blocks_of, identity, rebuild

PAD = "relax.nn.pad"


def fold_pads(function: relax.Function) -> relax.Function:
    """Each ``nn.pad`` of rows and columns with 0 that ``conv2d`` alone reads becomes padding of these.

    One that pads nothing is left out.
    """
    while True:
        folded = _folded_once(function)
        if folded is function:
            return function
        function = folded


def pad_reasons(function: relax.Function) -> Mapping[Place, str]:
    """Why the pads that are left are no convolution's."""
    found = {}
    for block in blocks_of(function.body):
        for position, binding in enumerate(block.bindings):
            call: Any = getattr(binding, "value", None)
            if op_name(call) == PAD:
                found[identity(block), position] = _refusal(call) or NO_READER
    return found


def _folded_once(function: relax.Function) -> relax.Function:
    """With the pads folded that read no pad which is folded, too."""
    if not any(op_name(getattr(b, "value", None)) == PAD for block in blocks_of(function.body) for b in block.bindings):
        return function
    uses = Uses.of(function)
    gone: set[Place] = set()
    new: dict[Place, Any] = {}
    for block in blocks_of(function.body):
        for position, binding in enumerate(block.bindings):
            call: Any = getattr(binding, "value", None)
            if op_name(call) != PAD:
                continue
            if pads_nothing(_width(call)):
                new[identity(block), position] = call.args[0]
                continue
            readers = () if _refusal(call) else _convolutions(binding.var, block, uses)
            places = [(identity(block), at) for at in readers]
            if places and not any(place in new for place in places):
                gone.add((identity(block), position))
                convolutions = (block.bindings[at].value for at in readers)
                new |= {place: _padded(one, call) for place, one in zip(places, convolutions, strict=True)}

    def rewrite(block: Any, position: int, dataflow: bool) -> list[Any] | None:
        place = (identity(block), position)
        if place in gone:
            return []
        if place not in new:
            return None
        out = Emitter("", dataflow=dataflow)
        out.bind(block.bindings[position].var, new[place])
        return out.bindings

    return rebuild(function, rewrite) if new else function


def _refusal(pad: Any) -> str:
    return pad_refusal(str(pad.attrs.pad_mode), float(pad.attrs.pad_value), _width(pad))


def _width(pad: Any) -> Width:
    flat = [int(extent) for extent in pad.attrs.pad_width]
    return tuple(zip(flat[::2], flat[1::2], strict=True))


def _convolutions(var: Any, block: Any, uses: Uses) -> Sequence[int]:
    """The positions of the convolutions whose data the padded map ``var`` is, if it is used in no other way."""
    readers, width = uses.consumers(var, block) or (), _width(uses.definition(var))
    for at in readers:
        call: Any = getattr(block.bindings[at], "value", None)
        if op_name(call) != "relax.nn.conv2d" or identity(call.args[0]) != identity(var):
            return ()
        if spatial_pads(width, str(call.attrs.data_layout)) is None:
            return ()
    return readers if len(set(readers)) == len(readers) else ()


def _padded(convolution: Any, pad: Any) -> Any:
    attrs = convolution.attrs
    more = spatial_pads(_width(pad), str(attrs.data_layout)) or ()
    return relax.op.nn.conv2d(
        pad.args[0],
        convolution.args[1],
        strides=attrs.strides,
        padding=[int(own) + extent for own, extent in zip(attrs.padding, more, strict=True)],
        dilation=attrs.dilation,
        groups=attrs.groups,
        data_layout=attrs.data_layout,
        kernel_layout=attrs.kernel_layout,
        out_layout=attrs.out_layout,
        out_dtype=attrs.out_dtype or None,
    )
