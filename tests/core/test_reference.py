"""The reference interpreter, command by command, against loads and stores by hand and the oracle."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from core.programs import SPEC, ConvCase, Float, Sram, conv, conv_case, pack, program, tensor, weight_tensor

from tvm_sramtile.engine.reference import Measured, interpret
from tvm_sramtile.errors import ProgramError
from tvm_sramtile.geometry import Conv2d
from tvm_sramtile.hw import AcceleratorSpec
from tvm_sramtile.ints import Range
from tvm_sramtile.isa import Command, Dtype, Layout, Place, Program, Traffic
from tvm_sramtile.isa.table import CONV_BIAS, CONV_CLIP, CONV_FIRST, CONV_LAST, COPY, LOAD, LOAD_WEIGHTS, STORE


def run(case: ConvCase) -> tuple[Float, Measured]:
    arguments = case.arguments()
    measured = interpret(case.program(), arguments, len(case.data), checked=True)
    return arguments[1], measured


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_convolution_equals_the_oracle(first: int) -> None:
    for seed in range(first, first + 50):
        case = conv_case(seed)
        output, measured = run(case)
        np.testing.assert_allclose(
            output, case.expected(), rtol=case.tolerance, atol=case.tolerance, err_msg=f"seed {seed}"
        )
        assert dict(measured.dram_bytes) == case.dram_bytes(), f"seed {seed}"
        assert measured.macs == len(case.data) * case.op.macs, f"seed {seed}"


def test_the_seeded_cases_cover_what_they_should() -> None:
    cases = [conv_case(seed) for seed in range(400)]
    ops = [case.op for case in cases]
    assert {case.spec.channel_align for case in cases} == {1, 4, 16}
    assert {case.spec.lines for case in cases} == {1, 2, 3}
    assert {case.spec.column_align for case in cases} == {1, 4}
    assert {len(case.data) for case in cases} == {1, 2, 3}
    for many in (
        [op for op in ops if op.groups > 1 and op.in_channels > op.groups],
        [op for op in ops if op.groups == op.in_channels > 1],
        [op for op in ops if op.strides[0] > op.kernel[0]],
        [op for op in ops if op.dilation[0] > 1 and op.kernel[0] > 1],
        [op for op in ops if op.padding[0] > op.dilation[0] * (op.kernel[0] - 1)],
        [op for op in ops if len(set(op.padding)) == 4],
        [case for case in cases if case.in_parts > 1],
        [case for case in cases if case.packed],
        [case for case in cases if case.chunk_rows < case.op.out_rows],
        [case for case in cases if any(command["in_rows"] == 0 for command in convs(case.program()))],
    ):
        assert len(many) >= 10


def convs(made: Program) -> list[Command]:
    return [command for command in made.body if command.opcode.name == "CONV"]


# LOAD and STORE

DIMS = (6, 5, 4)
BOX = (Range(1, 6), Range(2, 5), Range(1, 4))


def copy(*, spec: AcceleratorSpec = SPEC, **changes: int) -> Program:
    """Load a box of one map, and store it into the same box of another; some fields of the load changed."""
    sram = Sram(spec)
    tensors = [tensor(Traffic.INPUTS, DIMS, 0), tensor(Traffic.OUTPUTS, DIMS, 1)]
    load = Command.make(LOAD, **{**sram.box(0, *BOX, 16), **changes})
    return program(tensors, [load, Command.make(STORE, **sram.box(1, *BOX, 16))], spec=spec)


@pytest.mark.parametrize("lanes", [1, 4, 16])
@pytest.mark.parametrize(("lines", "column_align"), [(1, 1), (2, 4)])
def test_load_and_store_move_a_box(lanes: int, lines: int, column_align: int) -> None:
    source = np.arange(2 * 6 * 5 * 4, dtype=np.float32).reshape(2, 6, 5, 4)
    target = np.full_like(source, -1)
    spec = SPEC.replace(channel_align=lanes, lines=lines, column_align=column_align)
    measured = interpret(copy(spec=spec), [source, target], images=2, checked=True)
    box = np.s_[:, 1:6, 2:5, 1:4]
    assert np.array_equal(target[box], source[box])
    target[box] = -1
    assert np.all(target == -1)
    moved = 2 * 5 * 3 * 3 * 4
    assert measured.dram_bytes == {
        Traffic.INPUTS: moved,
        Traffic.WEIGHTS: 0,
        Traffic.OUTPUTS: moved,
        Traffic.PARTIAL_SUMS: 0,
    }
    assert measured.macs == 0
    before = (spec.layout.blocks(5) - 1) * spec.layout.block_elems(3, 3)
    assert measured.sram_peak_bytes == 16 + 4 * (before + 3 * spec.layout.row_elems(3))


def test_the_peak_is_the_sum_over_the_memories_and_ends_with_the_last_row() -> None:
    spec = AcceleratorSpec(name="three", input_bytes=4096, weight_bytes=100, output_bytes=4096, channel_align=4)
    sram = Sram(spec)
    boxes = [(Range(0, 6), Range(0, 2), Range(0, 3)), (Range(0, 1), Range(0, 1), Range(0, 1))]
    load = {**sram.box(0, *boxes[0], 32), "block_bytes": 1000}
    store = sram.box(0, *boxes[1], 32)
    made = program([tensor(Traffic.PARTIAL_SUMS, DIMS)], [Command.make(LOAD, **load)], spec=spec)
    assert interpret(made, [np.zeros(DIMS, np.float32)]).sram_peak_bytes == 32 + 1000 + 2 * 48
    output = {**store, "sram": 4196 + 8}
    made = replace(made, body=(*made.body, Command.make(STORE, **output)))
    measured = interpret(made, [np.zeros(DIMS, np.float32)])
    assert measured.sram_peak_bytes == 32 + 1000 + 2 * 48 + 8 + 16
    assert measured.dram_bytes[Traffic.PARTIAL_SUMS] == (6 * 2 * 3 + 1) * 4


def test_rows_are_copied_with_what_is_known_of_them() -> None:
    sram = Sram(SPEC)
    rows = SPEC.replace(channel_align=4).layout.row_elems(2) * 4
    load = Command.make(LOAD, **{**sram.box(0, Range(0, 5), Range(0, 2), Range(0, 2), 0), "block_bytes": 4 * rows})
    copied = {"source": rows, "target": 2 * rows, "block_bytes": 4 * rows, "channels": 5, "rows": 1, "cols": 2}
    store = {**sram.box(1, Range(0, 5), Range(0, 1), Range(0, 2), 2 * rows), "block_bytes": 4 * rows}
    dims = [tensor(Traffic.INPUTS, (5, 2, 2), 0), tensor(Traffic.OUTPUTS, (5, 1, 2), 1)]
    made = program(dims, [load, Command.make(COPY, **copied), Command.make(STORE, **store)])
    source, target = np.arange(20, dtype=np.float32).reshape(1, 5, 2, 2), np.zeros((1, 5, 1, 2), np.float32)
    measured = interpret(made, [source, target], checked=True)
    assert np.array_equal(target[0, :, 0], source[0, :, 1])
    assert sum(measured.dram_bytes.values()) == 4 * (20 + 10)
    unwritten = replace(made, body=(load, Command.make(COPY, **{**copied, "rows": 2}), made.body[2]))
    with pytest.raises(ProgramError) as caught:
        interpret(unwritten, [source, target], checked=True)
    assert str(caught.value) == f"body command 1 (COPY): reads byte {2 * rows} of the SRAM, which nothing wrote"


def test_loads_write_zeros_to_the_lanes_past_the_last_channel() -> None:
    sram = Sram(SPEC)
    load = Command.make(LOAD, **sram.box(0, Range(0, 5), Range(0, 1), Range(0, 1), 0))
    store = Command.make(STORE, **sram.box(1, Range(0, 8), Range(0, 1), Range(0, 1), 0))
    made = program([tensor(Traffic.INPUTS, (5, 1, 1), 0), tensor(Traffic.OUTPUTS, (8, 1, 1), 1)], [load, store])
    target = np.full((1, 8, 1, 1), np.nan, np.float32)
    interpret(made, [np.arange(1, 6, dtype=np.float32).reshape(1, 5, 1, 1), target], checked=True)
    assert target.ravel().tolist() == [1, 2, 3, 4, 5, 0, 0, 0]


def test_workspace_and_constants() -> None:
    sram = Sram(SPEC)
    box = (Range(0, 2), Range(0, 1), Range(0, 2))
    dims = (2, 1, 2)
    constant = np.array([9, 1, 2, 3, 4], np.float32)
    tensors = [
        tensor(Traffic.WEIGHTS, dims, 4, place=Place.CONSTANT, image_stride=0),
        tensor(Traffic.PARTIAL_SUMS, dims, 8, place=Place.WORKSPACE, image_stride=0),
        tensor(Traffic.OUTPUTS, dims, 0),
    ]
    body = [
        Command.make(LOAD, **sram.box(0, *box, 0)),
        Command.make(STORE, **sram.box(1, *box, 0)),
        Command.make(LOAD, **sram.box(1, *box, 64)),
        Command.make(STORE, **sram.box(2, *box, 64)),
    ]
    made = program(tensors, body, constants=constant.tobytes(), workspace_bytes=24)
    output = np.zeros((3, 2, 1, 2), np.float32)
    interpret(made, [output], images=3, checked=True)
    assert np.array_equal(output, np.broadcast_to(constant[1:].reshape(1, 2, 1, 2), output.shape))
    with pytest.raises(ProgramError) as caught:
        interpret(replace(made, workspace_bytes=23), [output])
    assert str(caught.value) == "body command 1 (STORE): the tensor is larger than its memory"
    back = replace(made, body=(body[0], Command.make(STORE, **sram.box(0, *box, 0))))
    with pytest.raises(ProgramError) as caught:
        interpret(back, [output])
    assert str(caught.value) == "body command 1 (STORE): a store to a constant"


# LOAD_WEIGHTS: loaded as weights, stored as a map of the words that the table says are there.


def loaded_weights(weight: Float, *, packed: bool, lanes: int, **box: int) -> Float:
    """The words of SRAM after LOAD_WEIGHTS of a box, the whole tensor unless said otherwise."""
    outs, ins, rows, cols = weight.shape
    fields = {"out_channel": 0, "out_channels": outs, "in_channel": 0, "in_channels": ins}
    fields |= {"kernel_row": 0, "kernel_rows": rows, "kernel_col": 0, "kernel_cols": cols}
    fields |= {"kernel_row_step": 1, "kernel_col_step": 1, **box}
    spec = SPEC.replace(channel_align=lanes)
    sizes = (fields["out_channels"], fields["in_channels"], fields["kernel_rows"], fields["kernel_cols"])
    words = Sram(spec).place_weights(*sizes), -(-sizes[0] // lanes) * lanes * int(np.prod(sizes[1:]))
    weights = weight_tensor(weight.shape, 0, **({"layout": Layout.PACKED, "strides": (0,) * 5} if packed else {}))
    tensors = [weights, tensor(Traffic.OUTPUTS, (lanes, 1, words[1] // lanes), 1)]
    store = Sram(spec).box(1, Range(0, lanes), Range(0, 1), Range(0, words[1] // lanes), 0)
    body = [Command.make(LOAD_WEIGHTS, tensor=0, sram=0, **fields), Command.make(STORE, **store)]
    output = np.full((1, lanes, 1, words[1] // lanes), np.nan, np.float32)
    dram = pack(weight, lanes) if packed else weight
    measured = interpret(program(tensors, body, spec=spec), [dram, output], checked=True)
    assert measured.dram_bytes[Traffic.WEIGHTS] == int(np.prod(sizes)) * 4
    assert measured.sram_peak_bytes == words[1] * 4
    return output[0, :, 0].T.ravel()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("lanes", [1, 4, 16])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (4, 4, 3, 3), (5, 6, 1, 3), (19, 3, 2, 1), (3, 17, 1, 1)])
def test_weights_are_packed(shape: tuple[int, int, int, int], lanes: int, packed: bool) -> None:
    weight = np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
    whole = np.zeros((-(-shape[0] // lanes) * lanes, *shape[1:]), np.float32)
    whole[: shape[0]] = weight
    assert np.array_equal(loaded_weights(weight, packed=packed, lanes=lanes), pack(whole, lanes))


def test_a_box_of_weights_is_packed_on_its_own() -> None:
    weight = np.arange(7 * 6 * 3 * 3, dtype=np.float32).reshape(7, 6, 3, 3)
    box = {"out_channel": 3, "out_channels": 4, "in_channel": 1, "in_channels": 5, "kernel_row": 1, "kernel_rows": 2}
    box |= {"kernel_col": 2, "kernel_cols": 1}
    loaded = loaded_weights(weight, packed=False, lanes=4, **box)
    assert np.array_equal(loaded, pack(weight[3:, 1:, 1:, 2:], 4))
    loaded = loaded_weights(weight, packed=True, lanes=4, out_channel=4, out_channels=3)
    assert np.array_equal(loaded.reshape(-1, 4)[:, :3].ravel(), pack(weight[4:], 4))
    with pytest.raises(ProgramError) as caught:
        loaded_weights(weight, packed=True, lanes=4, out_channel=1, out_channels=4)
    assert str(caught.value) == "body command 0 (LOAD_WEIGHTS): the box cuts a block of packed weights"


# CONV


def tiny(**changes: object) -> ConvCase:
    """One channel, 3x3 map of ones, 3x3 kernel of ones, same padding: counts the taps within the map."""
    op = Conv2d(1, 3, 3, 1, (3, 3), padding=(1, 1, 1, 1))
    case = ConvCase(op, np.ones((1, 1, 3, 3), np.float32), np.ones((1, 1, 3, 3), np.float32))
    return replace(case, **changes)  # type: ignore[arg-type]


def test_conv_by_hand() -> None:
    counts = [[4, 6, 4], [6, 9, 6], [4, 6, 4]]
    assert run(tiny())[0][0, 0].tolist() == counts
    output, _ = run(tiny(bias=np.array([-5], np.float32)))
    assert output[0, 0].tolist() == [[-1, 1, -1], [1, 4, 1], [-1, 1, -1]]
    output, _ = run(tiny(bias=np.array([-5], np.float32), clip=(0.0, 2.5)))
    assert output[0, 0].tolist() == [[0, 1, 0], [1, 2.5, 1], [0, 1, 0]]


def test_nan_and_infinity_stay_where_they_are_read() -> None:
    data = np.ones((1, 1, 5, 5), np.float32)
    data[0, 0, 0, 0], data[0, 0, 4, 4] = np.nan, np.inf
    op = Conv2d(1, 5, 5, 1, (2, 2), (1, 1), (0, 0, 0, 0), (2, 2))
    output, _ = run(tiny(op=op, data=data, weight=np.ones((1, 1, 2, 2), np.float32)))
    assert np.isnan(output[0, 0, 0, 0])
    assert output[0, 0, 2, 2] == np.inf
    assert np.count_nonzero(output == 4) == 7


def test_taps_in_padding_are_not_multiplied() -> None:
    weight = np.ones((1, 1, 3, 3), np.float32)
    weight[0, 0, 0, :] = np.nan
    output, _ = run(tiny(weight=weight))
    assert output[0, 0, 0].tolist() == [4, 6, 4]
    assert np.all(np.isnan(output[0, 0, 1:]))


def test_a_chunk_in_padding_yields_bias_and_reads_no_weights() -> None:
    op = Conv2d(1, 3, 3, 1, (1, 1), padding=(2, 0, 0, 0))
    case = tiny(op=op, weight=np.ones((1, 1, 1, 1), np.float32), bias=np.array([7], np.float32), chunk_rows=2)
    output, measured = run(case)
    assert output[0, 0].tolist() == [[7, 7, 7], [7, 7, 7], [8, 8, 8], [8, 8, 8], [8, 8, 8]]
    assert measured.macs == 15
    made = case.program()
    first_chunk = replace(made, prologue=made.prologue[1:], body=made.body[:2])
    assert [command.opcode.name for command in (*first_chunk.prologue, *first_chunk.body)] == ["LOAD", "CONV", "STORE"]
    arguments = case.arguments()
    interpret(first_chunk, arguments, checked=True)
    assert arguments[1][0, 0, :2].tolist() == [[7, 7, 7], [7, 7, 7]]


def with_conv(flags: int, **fields: object) -> Program:
    """The tiny case with its CONV replaced: at address 0 the weights, 144 the bias, 160 the output, 304 the input."""
    made = tiny(bias=np.array([1], np.float32)).program()
    fields = {"input": 304, "weights": 0, "bias": 144, "output": 160, **fields}
    command = conv(Sram(SPEC), tiny().op, flags, **fields)
    return replace(made, body=(made.body[0], command, made.body[2]))


def test_operand_addresses_of_the_tiny_case() -> None:
    case = tiny(bias=np.array([1], np.float32))
    assert with_conv(CONV_FIRST | CONV_LAST | CONV_BIAS) == case.program()


def refused(made: Program, *, checked: bool = True) -> str:
    with pytest.raises(ProgramError) as caught:
        interpret(made, tiny(bias=np.array([1], np.float32)).arguments(), checked=checked)
    return str(caught.value)


def test_checked_mode_refuses_reads_of_bytes_that_nothing_wrote() -> None:
    whole = CONV_FIRST | CONV_LAST | CONV_BIAS
    nothing = "of the SRAM, which nothing wrote"
    assert refused(with_conv(whole, weights=32)) == f"body command 1 (CONV): reads byte 160 {nothing}"
    assert refused(with_conv(whole, input=320)) == f"body command 1 (CONV): reads byte 448 {nothing}"
    assert refused(with_conv(whole, bias=160)) == f"body command 1 (CONV): reads byte 160 {nothing}"
    assert refused(with_conv(CONV_LAST)) == f"body command 1 (CONV): reads byte 160 {nothing}"
    made = with_conv(whole)
    assert refused(replace(made, body=made.body[2:])) == f"body command 0 (STORE): reads byte 160 {nothing}"
    assert refused(replace(made, prologue=made.prologue[:1])) == f"body command 1 (CONV): reads byte 144 {nothing}"


def test_unchecked_reads_of_such_bytes_give_nan() -> None:
    made = with_conv(CONV_LAST)
    arguments = tiny(bias=np.array([1], np.float32)).arguments()
    interpret(made, arguments)
    assert np.all(np.isnan(arguments[1]))


def test_last_leaves_the_accumulators_undefined_and_counts_them_in_the_peak() -> None:
    made = with_conv(CONV_FIRST | CONV_LAST, accumulators=448)
    arguments = tiny(bias=np.array([1], np.float32)).arguments()
    assert interpret(made, arguments, checked=True).sram_peak_bytes == 448 + 144
    store = Command.make(STORE, **Sram(SPEC).box(1, *[Range(0, n) for n in (1, 3, 3)], 448))
    stored = refused(replace(made, body=(*made.body, store)))
    assert stored == "body command 3 (STORE): reads byte 448 of the SRAM, which nothing wrote"


def test_conv_leaves_the_lanes_past_the_last_channel_undefined() -> None:
    made = with_conv(CONV_FIRST | CONV_LAST)
    wider = replace(made.tensors[1], dims=(4, 3, 3, 1, 1), strides=(9, 3, 1, 0, 0))
    store = Command.make(STORE, **Sram(SPEC).box(1, *[Range(0, n) for n in (4, 3, 3)], 160))
    made = replace(made, tensors=(made.tensors[0], wider, *made.tensors[2:]), body=(*made.body[:2], store))
    arguments = tiny(bias=np.array([1], np.float32)).arguments()
    arguments[1] = np.zeros((1, 4, 3, 3), np.float32)
    with pytest.raises(ProgramError) as caught:
        interpret(made, arguments, checked=True)
    assert str(caught.value) == "body command 2 (STORE): reads byte 164 of the SRAM, which nothing wrote"


def test_clip_without_bias_and_accumulation_over_commands() -> None:
    made = with_conv(CONV_FIRST)
    again = with_conv(CONV_LAST | CONV_CLIP, clip_low=0.0, clip_high=10.0).body[1]
    arguments = tiny(bias=np.array([1], np.float32)).arguments()
    measured = interpret(replace(made, body=(*made.body[:2], again, made.body[2])), arguments, checked=True)
    assert arguments[1][0, 0].tolist() == [[8, 10, 8], [10, 10, 10], [8, 10, 8]]
    assert measured.macs == 2 * 81


# Operands where the table does not allow them


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"row": 3}, "body command 0 (LOAD): the box is empty or reaches beyond the tensor"),
        ({"channels": 0}, "body command 0 (LOAD): the box is empty or reaches beyond the tensor"),
        ({"tensor": 2}, "body command 0 (LOAD): there is no tensor 2"),
        ({"sram": 2}, "body command 0 (LOAD): sram: address 2 is no multiple of 4"),
        ({"row_bytes": 64}, "body command 0 (LOAD): sram: wrong row_bytes"),
        ({"block_bytes": 128}, "body command 0 (LOAD): sram: block_bytes hold fewer than the map's rows"),
        (
            {"sram": (1 << 20) - 284},
            "body command 0 (LOAD): sram: bytes 1048292-1048580 do not lie within one memory",
        ),
    ],
)
def test_boxes_and_maps_out_of_place(changes: dict[str, int], text: str) -> None:
    maps = [np.zeros(DIMS, np.float32), np.zeros(DIMS, np.float32)]
    with pytest.raises(ProgramError) as caught:
        interpret(copy(**changes), maps)
    assert str(caught.value) == text


def test_operands_do_not_cross_memories() -> None:
    spec = SPEC.replace(sram_bytes=200, accumulator_bytes=200)
    with pytest.raises(ProgramError) as caught:
        interpret(copy(spec=spec), [np.zeros(DIMS, np.float32), np.zeros(DIMS, np.float32)])
    assert str(caught.value) == "body command 0 (LOAD): sram: bytes 16-304 do not lie within one memory"


def test_arguments_that_do_not_fit_the_program() -> None:
    good = np.zeros(DIMS, np.float32)
    for arguments, text in (
        ([good], "the program takes 2 tensors, 1 were given"),
        ([good[:5], good], "body command 0 (LOAD): the tensor is larger than its memory"),
        ([good.astype(np.float64), good], "body command 0 (LOAD): the argument's type or strides differ"),
        ([good.transpose(0, 2, 1), good], "body command 0 (LOAD): the argument's type or strides differ"),
    ):
        with pytest.raises(ProgramError) as caught:
            interpret(copy(), arguments)
        assert str(caught.value) == text
    with pytest.raises(ProgramError) as caught:
        interpret(copy(), [good, good], images=2)
    assert str(caught.value) == "body command 0 (LOAD): the tensor is larger than its memory"


def test_a_tensor_of_the_wrong_layout() -> None:
    made = copy()
    made = replace(made, tensors=(replace(made.tensors[0], layout=Layout.WEIGHTS), made.tensors[1]))
    with pytest.raises(ProgramError) as caught:
        interpret(made, [np.zeros(DIMS, np.float32), np.zeros(DIMS, np.float32)])
    assert str(caught.value) == "body command 0 (LOAD): a tensor of the layout WEIGHTS"
    assert made.tensors[0].dtype is Dtype.FLOAT32
