"""Transposed convolutions: cases of the public record (``a01`` ...), and all attributes."""

from __future__ import annotations

from functools import partial

from conformance.grammar import Case, conv

transposed = partial(conv, op="conv2d_transpose")

# TVM 0.27 does not build NHWC; Relay's CPU has neither that nor dilation.
BOTH = {"not_built_by": ("relax", "relay")}

REPORTED: tuple[Case, ...] = (
    transposed(
        "a01_output_padding",
        (1, 16, 7, 7),
        (16, 3, 3, 3),
        5248,
        3,
        strides=(2, 2),
        padding=(1, 1, 1, 1),
        output_padding=(1, 1),
        about="one back end got rows and columns of output_padding wrong: they are sums, not zeros",
    ),
    transposed(
        "a02_output_padding_without_input",
        (1, 4, 9, 6),
        (4, 5, 3, 3),
        3200,
        8,
        strides=(3, 2),
        output_padding=(2, 1),
        bias="constant",
        about="the last rows and the last column have no contributor: they are the bias",
    ),
    transposed(
        "a03_groups",
        (1, 8, 12, 12),
        (8, 2, 4, 4),
        6144,
        6,
        strides=(2, 2),
        padding=(1, 1, 1, 1),
        groups=4,
        about="grouped transposed convolutions were wrong or rejected",
    ),
    *(
        transposed(
            f"a04_{chunks}_chunks",
            (1, 8, 4, 4),
            (8, 4, 4, 4),
            sram_bytes,
            chunks,
            strides=(2, 2),
            padding=(1, 1, 1, 1),
            about="rows were shifted and one was never written where the padding is no multiple of the stride",
            unit_kernels=((1, 1), (2, 2)),
        )
        for sram_bytes, chunks in ((2432, 8), (2688, 4), (2816, 3), (2944, 2), (3584, 1))
    ),
    transposed(
        "a05_dilation",
        (1, 8, 20, 20),
        (8, 4, 3, 3),
        12288,
        5,
        strides=(2, 2),
        padding=(1, 1, 1, 1),
        dilation=(2, 2),
        about="a layout or dilation that is not supported was skipped, and crashed much later",
        not_built_by=("relay",),
    ),
    transposed(
        "a05_nhwc",
        (1, 20, 20, 8),
        (8, 4, 3, 3),
        12288,
        5,
        strides=(2, 2),
        padding=(1, 1, 1, 1),
        dilation=(2, 2),
        data_layout="NHWC",
        **BOTH,
    ),
    *(
        transposed(
            f"a13_output_padding_{more}",
            (1, 16, 32, 32),
            (16, 16, 3, 3),
            120352,
            chunks,
            strides=(2, 2),
            padding=(1, 1, 1, 1),
            output_padding=(more, more),
            about="the planner ignored output_padding while the executor used it",
        )
        for more, chunks in ((0, 3), (1, 4))
    ),
)

ATTRIBUTES: tuple[Case, ...] = (
    transposed("up_batch", (3, 4, 6, 5), (4, 6, 3, 3), 3072, 4, strides=(2, 2), bias="constant", clip="relu"),
    transposed("up_four_pads", (1, 4, 7, 6), (4, 5, 3, 3), 2816, 6, strides=(2, 3), padding=(2, 0, 1, 3)),
    transposed(
        "up_strides_differ",
        (1, 4, 7, 5),
        (4, 5, 3, 4),
        3072,
        4,
        strides=(1, 3),
        padding=(1, 2, 0, 1),
        output_padding=(0, 2),
        clip=(-0.5, 0.75),
    ),
    transposed("up_stride_above_kernel", (1, 4, 6, 5), (4, 5, 2, 1), 2048, 6, strides=(4, 3), bias="parameter"),
    transposed(
        "up_groups_batch",
        (2, 6, 6, 5),
        (6, 3, 3, 3),
        2560,
        3,
        strides=(2, 2),
        padding=(1, 1, 1, 1),
        output_padding=(1, 0),
        groups=2,
        bias="constant",
    ),
    transposed("up_depthwise", (1, 6, 8, 7), (6, 1, 4, 4), 2560, 6, strides=(2, 2), padding=(1, 1, 1, 1), groups=6),
    transposed(
        "up_dilations_differ",
        (1, 4, 7, 6),
        (4, 3, 3, 2),
        2048,
        4,
        strides=(2, 3),
        padding=(1, 2, 3, 0),
        dilation=(3, 2),
        output_padding=(1, 1),
        not_built_by=("relay",),
    ),
    transposed("up_sub_kernels", (1, 4, 6, 5), (4, 4, 7, 5), 3024, 3, strides=(2, 1), padding=(3, 2, 3, 2)),
    transposed("up_parameter", (1, 4, 8, 6), (4, 4, 2, 2), 2048, 3, strides=(2, 2), weight_constant=False, clip="relu"),
    transposed("up_one_row", (1, 4, 1, 9), (4, 4, 3, 3), 512, 2, strides=(2, 2), padding=(1, 1, 1, 1)),
    transposed("up_stride_1", (1, 4, 9, 8), (4, 4, 3, 3), 2304, 2, padding=(1, 1, 1, 1), bias="constant"),
    transposed(
        "up_nhwc",
        (2, 6, 5, 4),
        (3, 3, 3, 4),
        3072,
        2,
        strides=(2, 2),
        padding=(1, 0, 0, 1),
        output_padding=(1, 1),
        data_layout="NHWC",
        kernel_layout="HWOI",
        bias="constant",
        clip="relu",
        **BOTH,
    ),
    transposed("up_one_position_too_much", (1, 4, 6, 5), (4, 4, 3, 3), 256, 0, reason="not even 1 row, 1 column"),
)

CASES = (*REPORTED, *ATTRIBUTES)
