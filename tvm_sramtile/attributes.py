"""What a region's function carries through TVM: the region, its plan, and how it was made, as text attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from tvm_sramtile.errors import CheckFailed
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Region
from tvm_sramtile.options import Options
from tvm_sramtile.plan import Plan, takes_several

CODEGEN = "sramtile"
_OPTIONS: TypeAdapter[Options] = TypeAdapter(Options)


@dataclass(frozen=True, slots=True)
class RegionAttributes:
    """All that codegen compiles from, but the values of the constants."""

    region: Region
    plan: Plan
    spec: AcceleratorSpec
    options: Options

    @property
    def pieces(self) -> int:
        """The chunks of all steps; one that is the sum of several parts counts as that many."""
        steps = self.plan.steps
        return sum(step.chunk_count * len(step.in_channels) * max(1, len(step.passes)) for step in steps)

    @property
    def is_cut(self) -> bool:
        """Whether a step is written as more than one operator."""
        steps = zip(self.region.steps, self.plan.steps, strict=True)
        return any(takes_several(step, plan, self.spec.unit_kernels) for step, plan in steps)

    def body_is_chunked(self, most_pieces: int) -> bool:
        """Whether the body is written as chunks: it is cut, but not into more pieces than the option, or these."""
        return self.is_cut and self.pieces <= (self.options.max_unrolled_chunks or most_pieces)

    def to_attrs(self) -> dict[str, str]:
        """The function attributes, by name."""
        return {
            "sramtile.region": self.region.to_json(),
            "sramtile.plan": self.plan.to_json(),
            "sramtile.spec": self.spec.to_json(),
            "sramtile.options": _OPTIONS.dump_json(self.options).decode(),
        }

    @staticmethod
    def from_attrs(attrs: Mapping[str, object], function: str) -> RegionAttributes:
        """Read the attributes of ``function`` back; raises ``CheckFailed`` when one is missing or damaged."""

        def text(name: str) -> str:
            if attrs.get(name) is None:
                raise CheckFailed(f"function {function} has no attribute {name!r}: was it made by this package?")
            return str(attrs[name])

        try:
            options = _OPTIONS.validate_json(text("sramtile.options"))
        except ValidationError as error:
            raise CheckFailed(f"function {function}: attribute 'sramtile.options' is damaged: {error}") from None
        region, plan = Region.from_json(text("sramtile.region")), Plan.from_json(text("sramtile.plan"))
        return RegionAttributes(region, plan, AcceleratorSpec.from_json(text("sramtile.spec")), options)
