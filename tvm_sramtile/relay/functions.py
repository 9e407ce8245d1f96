"""The global functions of a module: which are whose, their names, and modules with some of them exchanged."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import tvm
from pydantic import TypeAdapter
from tvm import relay, tir

from tvm_sramtile.attributes import CODEGEN, RegionAttributes
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ir import digest_of
from tvm_sramtile.options import Options
from tvm_sramtile.relay.access import constant_value, is_constant
from tvm_sramtile.relay.graph import Node, attribute, is_closed, post_order

_REGION = "sramtile.region"
_SPEC = "sramtile.spec"
_OPTIONS = "sramtile.options"
_CONSTANTS = "sramtile.constants"
_OPTIONS_JSON: TypeAdapter[Options] = TypeAdapter(Options)


def compiler_of(function: Any) -> str | None:
    """The back end that a function is for, if any."""
    value = attribute(function, "Compiler")
    return None if value is None else str(value)


def is_region(function: Any) -> bool:
    """Whether a function is a region of this package, ready for codegen."""
    return isinstance(function, relay.Function) and compiler_of(function) == CODEGEN


def is_outlined(function: Any) -> bool:
    """Whether a function is a split operator of this package, which no back end has taken yet."""
    if not isinstance(function, relay.Function) or compiler_of(function) is not None:
        return False
    return attribute(function, _REGION) is not None


def is_plain(function: Any) -> bool:
    """Whether a function's operators are open to be taken."""
    return isinstance(function, relay.Function) and not is_closed(function) and not is_outlined(function)


def plain_functions(mod: tvm.IRModule) -> dict[Any, Any]:
    """The plain functions by their variables, ``main`` first, then by name."""
    found = {var: function for var, function in mod.functions.items() if is_plain(function)}
    return dict(sorted(found.items(), key=lambda item: (item[0].name_hint != "main", item[0].name_hint)))


def read_attributes(name: str, function: Any) -> RegionAttributes:
    """What an outlined function or a region carries; raises ``CheckFailed`` when it is damaged."""
    attrs = function.attrs
    return RegionAttributes.from_attrs({str(key): attrs[key] for key in attrs.keys()}, name)  # noqa: SIM118


def with_text_attrs(function: Any, texts: Mapping[str, str]) -> Any:
    """A function with some more attributes."""
    for name, text in texts.items():
        function = function.with_attr(name, tvm.runtime.String(text))
    return function


def constant_nodes(function: Any) -> dict[str, Node]:
    """The literals that a function carries, by digest: those of its body, and those that its body does not read."""
    nodes = [node for node in post_order(function.body) if is_constant(node)]
    unread = attribute(function, _CONSTANTS)
    nodes += [] if unread is None else list(unread)
    return {digest_of(constant_value(node)): node for node in nodes}


def with_constants(function: Any, literals: Iterable[Node]) -> Any:
    """A function that carries all of these, also where all its chunks lie in padding and none is read."""
    known = constant_nodes(function)
    unread = [literal for literal in literals if digest_of(constant_value(literal)) not in known]
    return function.with_attr(_CONSTANTS, unread) if unread else function


def as_region(function: Any, name: str) -> Any:
    """The function as one for codegen; ``InferType`` and Relay's build take it as it is."""
    one = tir.IntImm("int32", 1)
    function = with_text_attrs(function, {"Compiler": CODEGEN, "global_symbol": name})
    return function.with_attr("Primitive", one).with_attr("Inline", one)


def marks_of(spec: AcceleratorSpec, options: Options) -> dict[str, str]:
    """Attributes of a module that was partitioned so: what stays on the host is explained by planning it again."""
    return {_SPEC: spec.to_json(), _OPTIONS: _OPTIONS_JSON.dump_json(options).decode()}


def read_marks(mod: tvm.IRModule) -> tuple[AcceleratorSpec, Options] | None:
    """How a module was partitioned; ``None`` if it was not."""
    spec, options = attribute(mod, _SPEC), attribute(mod, _OPTIONS)
    if spec is None or options is None:
        return None
    return AcceleratorSpec.from_json(str(spec)), _OPTIONS_JSON.validate_json(str(options))


class Names:
    """Names of new global functions: identifiers of C that nothing else in the module has."""

    def __init__(self, mod: tvm.IRModule) -> None:
        self._taken: set[str] = set()
        for var, function in mod.functions.items():
            self._taken.add(var.name_hint)
            symbol = attribute(function, "global_symbol")
            if symbol is not None:
                self._taken.add(str(symbol))
        self._next: dict[str, int] = {}

    def fresh(self, kind: str) -> str:
        """A new name; equal modules get equal names."""
        prefix = f"{CODEGEN}_{re.sub(r'[^A-Za-z0-9_]', '_', kind)}"
        while True:
            number = self._next.get(prefix, 0)
            self._next[prefix] = number + 1
            name = f"{prefix}_{number}"
            # Beside a region stand more functions, `<name>__counters` and so on.
            if not any(taken == name or taken.startswith(f"{name}__") for taken in self._taken):
                self._taken.add(name)
                return name


def typed_copy(mod: tvm.IRModule) -> tvm.IRModule:
    """A copy with types inferred: ``InferType`` itself changes the module that it is given."""
    return exchange(mod, {})


def exchange(
    mod: tvm.IRModule, changed: Mapping[Any, Any], gone: Iterable[Any] = (), attrs: Mapping[str, str] | None = None
) -> tvm.IRModule:
    """A new module, types inferred: some functions added or exchanged, some gone, some text attributes set."""
    functions = {var: function for var, function in mod.functions.items() if var not in set(gone)}
    new = tvm.IRModule({**functions, **changed}, mod.type_definitions)
    texts = {name: tvm.runtime.String(text) for name, text in (attrs or {}).items()}
    for name, value in {**(dict(mod.attrs.items()) if mod.attrs is not None else {}), **texts}.items():
        new = new.with_attr(name, value)
    return relay.transform.InferType()(new)
