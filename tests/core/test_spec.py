"""The accelerator's description: presets, overrides, files, and the whole text of each error."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_sramtile.errors import SpecError
from tvm_sramtile.hw import AcceleratorSpec, StorageLayout

KEYS = (
    "name, sram_bytes, input_bytes, weight_bytes, output_bytes, accumulator_bytes, lines, column_align, channel_align, "
    "unit_kernels, mac_array, dma_bytes_per_cycle, dma_setup_cycles"
)
ONE_KIND = "give either sram_bytes (one pool) or all of input_bytes, weight_bytes and output_bytes"


def text_of(action: Callable[[], object]) -> str:
    with pytest.raises(SpecError) as caught:
        action()
    assert caught.value.__cause__ is None  # users see our line, not the validator's
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return str(caught.value)


def test_presets() -> None:
    assert AcceleratorSpec.presets() == ("edge-256k", "mobile-1m", "tiny-64k")
    edge = AcceleratorSpec(
        name="edge-256k",
        sram_bytes=262144,
        lines=1,
        column_align=1,
        channel_align=16,
        unit_kernels=((1, 1), (3, 3)),
        mac_array=(16, 16),
        dma_bytes_per_cycle=16,
        dma_setup_cycles=64,
    )
    assert AcceleratorSpec.preset("edge-256k") == edge
    assert AcceleratorSpec.preset("tiny-64k") == edge.replace(name="tiny-64k", sram_bytes=65536, mac_array=(8, 8))
    mobile = AcceleratorSpec.preset("mobile-1m")
    assert mobile == AcceleratorSpec(
        name="mobile-1m",
        input_bytes=512 * 1024,
        weight_bytes=256 * 1024,
        output_bytes=256 * 1024,
        lines=1,
        column_align=1,
        channel_align=16,
        unit_kernels=((1, 1), (3, 3), (5, 5)),
        mac_array=(32, 32),
        dma_bytes_per_cycle=16,
        dma_setup_cycles=64,
    )
    assert list(edge.memories.items()) == [("pool", 262144)]
    assert list(mobile.memories.items()) == [("input", 524288), ("weight", 262144), ("output", 262144)]


def test_memories_are_in_address_order_with_accumulators_last() -> None:
    spec = AcceleratorSpec.preset("mobile-1m").replace(accumulator_bytes=100)
    assert list(spec.memories) == ["input", "weight", "output", "accumulator"]
    assert spec.replace(accumulator_bytes=None) == AcceleratorSpec.preset("mobile-1m")


def test_replace_changes_the_kind_of_sram_and_resets_with_none() -> None:
    edge = AcceleratorSpec.preset("edge-256k").replace(lines=4)
    assert edge.replace(sram_bytes=131072).sram_bytes == 131072
    assert edge.replace(lines=None).lines == 1
    separate = edge.replace(sram_bytes=None, input_bytes=1, weight_bytes=2, output_bytes=3)
    assert list(separate.memories.values()) == [1, 2, 3]


def test_layout() -> None:
    spec = AcceleratorSpec(name="x", sram_bytes=1, lines=2, column_align=4, channel_align=8)
    assert spec.layout == StorageLayout(2, 4, 8)


def test_specs_are_frozen_hashable_and_travel_to_other_processes() -> None:
    edge = AcceleratorSpec.preset("edge-256k")
    assert len({edge, AcceleratorSpec.preset("edge-256k")}) == 1
    assert pickle.loads(pickle.dumps(edge)) == edge


SMALL = st.integers(1, 1024)
PAIR = st.tuples(SMALL, SMALL)


@st.composite
def specs(draw: st.DrawFn) -> AcceleratorSpec:
    size = st.integers(1, 2**28)
    if draw(st.booleans()):
        memories = {"sram_bytes": draw(size)}
    else:
        memories = {name: draw(size) for name in ("input_bytes", "weight_bytes", "output_bytes")}
    if draw(st.booleans()):
        memories["accumulator_bytes"] = draw(size)
    return AcceleratorSpec(
        name=draw(st.text(min_size=1)),
        lines=draw(SMALL),
        column_align=draw(SMALL),
        channel_align=draw(SMALL),
        unit_kernels=tuple(draw(st.lists(PAIR, min_size=1, max_size=4))),
        mac_array=draw(PAIR),
        dma_bytes_per_cycle=draw(st.integers(1, 2**20)),
        dma_setup_cycles=draw(st.integers(0, 2**20)),
        **memories,
    )


@given(specs())
def test_json_round_trip(spec: AcceleratorSpec) -> None:
    text = spec.to_json()
    assert "\n" not in text
    assert AcceleratorSpec.from_json(text) == spec
    assert spec.replace() == spec


FAULTS = [
    ({"sram_bytes": 0}, "key 'sram_bytes' = 0: input should be greater than 0"),
    ({"sram_bytes": "1k"}, "key 'sram_bytes' = '1k': input should be a valid integer"),
    ({"sram_bytes": 2.0}, "key 'sram_bytes' = 2.0: input should be a valid integer"),
    ({"sram_bytes": True}, "key 'sram_bytes' = True: input should be a valid integer"),
    ({"sram_bytes": 2**32}, "the memories hold 4294967296 bytes: must be below 4294967296"),
    ({"sram_bytes": 2**32 - 5, "accumulator_bytes": 5}, "the memories hold 4294967296 bytes: must be below 4294967296"),
    ({"sram_bytes": None}, ONE_KIND),
    ({"input_bytes": 5}, ONE_KIND),
    ({"sram_bytes": None, "input_bytes": 5, "weight_bytes": 5}, ONE_KIND),
    ({"sram_bites": 5}, f"key 'sram_bites' is unknown (did you mean 'sram_bytes'?): keys are {KEYS}"),
    ({"colour": "red"}, f"key 'colour' is unknown: keys are {KEYS}"),
    ({"name": 3}, "key 'name' = 3: input should be a valid string"),
    ({"name": ""}, "key 'name' = '': string should have at least 1 character"),
    ({"lines": 0}, "key 'lines' = 0: input should be greater than 0"),
    ({"column_align": -4}, "key 'column_align' = -4: input should be greater than 0"),
    ({"channel_align": 0}, "key 'channel_align' = 0: input should be greater than 0"),
    ({"channel_align": 1025}, "key 'channel_align' = 1025: input should be less than or equal to 1024"),
    ({"unit_kernels": []}, "key 'unit_kernels' = []: list should have at least 1 item, not 0"),
    ({"unit_kernels": 3}, "key 'unit_kernels' = 3: input should be a valid list"),
    ({"unit_kernels": [[1, 1], [3]]}, "key 'unit_kernels[1][1]' is missing"),
    ({"unit_kernels": [[1, 0]]}, "key 'unit_kernels[0][1]' = 0: input should be greater than 0"),
    ({"mac_array": [1, 2, 3]}, "key 'mac_array' = [1, 2, 3]: list should have at most 2 items, not 3"),
    ({"mac_array": [1, 1.5]}, "key 'mac_array[1]' = 1.5: input should be a valid integer"),
    ({"dma_bytes_per_cycle": 0}, "key 'dma_bytes_per_cycle' = 0: input should be greater than 0"),
    ({"dma_setup_cycles": -1}, "key 'dma_setup_cycles' = -1: input should be greater than or equal to 0"),
]


@pytest.mark.parametrize(("changes", "text"), FAULTS)
def test_a_wrong_file_names_file_key_and_what_is_allowed(tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    path = tmp_path / "chip.json"
    path.write_text(json.dumps({"name": "chip", "sram_bytes": 1000, **changes}), encoding="utf-8")
    assert text_of(lambda: AcceleratorSpec.from_file(path)) == f"{path}: {text}"
    assert text_of(lambda: AcceleratorSpec.load(str(path))) == f"{path}: {text}"


@pytest.mark.parametrize(("changes", "text"), FAULTS)
def test_a_wrong_construction_or_replacement_says_the_same(changes: dict[str, Any], text: str) -> None:
    assert text_of(lambda: AcceleratorSpec(**{"name": "chip", "sram_bytes": 1000, **changes})) == f"spec: {text}"
    chip = AcceleratorSpec(name="chip", sram_bytes=1000)
    assert text_of(lambda: chip.replace(**changes)) == f"spec chip: {text}"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "not JSON: Expecting value: line 1 column 1 (char 0)"),
        (b"{", "not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        (b"[1]", "must be a JSON object of keys and values, is a list"),
        (b'{"sram_bytes": 1}', "key 'name' is missing"),
        (b'{"name": "x", "sram_bytes": NaN}', "key 'sram_bytes' = nan: input should be a valid integer"),
        (b'{"name": "x", "lines": 1, "sram_bytes": 1, "lines": 2}', "key 'lines' is given twice"),
    ],
)
def test_files_that_are_no_spec(tmp_path: Path, content: bytes, text: str) -> None:
    path = tmp_path / "chip.json"
    path.write_bytes(content)
    assert text_of(lambda: AcceleratorSpec.from_file(path)) == f"{path}: {text}"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "chip.json"
    missing = f"spec file {path}: cannot be read: No such file or directory"
    assert text_of(lambda: AcceleratorSpec.from_file(path)) == missing
    assert (
        text_of(lambda: AcceleratorSpec.from_file(tmp_path)) == f"spec file {tmp_path}: cannot be read: Is a directory"
    )
    path.write_bytes(b"\xff\xfe")
    assert text_of(lambda: AcceleratorSpec.from_file(path)) == f"spec file {path}: cannot be read: not UTF-8 text"


def test_unknown_presets() -> None:
    presets = "presets are edge-256k, mobile-1m, tiny-64k"
    near = f"spec preset 'edge-256K' is unknown (did you mean 'edge-256k'?): {presets}"
    assert text_of(lambda: AcceleratorSpec.preset("edge-256K")) == near
    assert text_of(lambda: AcceleratorSpec.load("edge-256K")) == near
    assert text_of(lambda: AcceleratorSpec.preset("zzz")) == f"spec preset 'zzz' is unknown: {presets}"
