"""What a region's function carries through TVM: the region, its plan, and how it was made, as text attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from tvm_sramtile.errors import CheckFailed
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import Region
from tvm_sramtile.options import Options
from tvm_sramtile.plan import Chunk, Plan, StepPlan

CODEGEN = "sramtile"
_OPTIONS: TypeAdapter[Options] = TypeAdapter(Options)


@dataclass(frozen=True, slots=True)
class RegionAttributes:
    """All that codegen compiles from, but the values of the constants."""

    region: Region
    plan: Plan
    spec: AcceleratorSpec
    options: Options

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


def check_body(function: str, plan: StepPlan, seen: Sequence[Chunk]) -> None:
    """Compare the chunks read back from a body with the plan; raises ``CheckFailed`` at the first difference."""
    if len(seen) != len(plan.chunks):
        raise CheckFailed(f"function {function}: its body has {len(seen)} chunks, its plan {len(plan.chunks)}")
    for index, (found, planned) in enumerate(zip(seen, plan.chunks, strict=True)):
        if found != planned:
            raise CheckFailed(f"function {function}: chunk {index} of its body is {found}, of its plan {planned}")
