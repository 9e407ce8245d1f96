/* The simulated accelerator: it executes programs of the instruction set in isa.h. Public interface.
 *
 * The functions are re-entrant and keep no state but the counter block that the caller hands over. All may be called
 * from any thread at any time. Nothing here exits, aborts or prints: whatever is wrong with a program or a call comes
 * back as an error code and a text.
 */
#ifndef SRAMTILE_ENGINE_H
#define SRAMTILE_ENGINE_H

#include <stdint.h>

#include "isa.h"

/* Error codes and their texts. A message reads "<where>: <field> = <value>: <text>". */
#define SRAMTILE_ERRORS(X)                                                                              \
  X(1, NULL_POINTER, "must not be a null pointer")                                                      \
  X(2, TENSOR_COUNT, "differs from the argument_count of the program")                                  \
  X(3, IMAGES, "must not be negative")                                                                  \
  X(4, NO_MEMORY, "the system has no memory for it")                                                    \
  X(5, TOO_SHORT, "the program ends before the end of this record")                                     \
  X(6, MAGIC, "this is no program of the instruction set")                                              \
  X(7, VERSION, "the engine executes another version of the instruction set")                           \
  X(8, LANES, "must be from 1 to 1024")                                                                 \
  X(9, NOT_POSITIVE, "must be positive")                                                                \
  X(10, COMMAND_BYTES, "differs from the bytes that the commands take")                                 \
  X(11, CONSTANTS_BYTES, "differs from the bytes that follow the commands")                             \
  X(12, FILLING, "bytes between commands and constants must be 0")                                      \
  X(13, KIND, "there is no such kind")                                                                  \
  X(14, PER_IMAGE, "must be 0: only of maps each image can have its own")                               \
  X(15, EXTRA_DIM, "must be 1: the layout has no such dimension")                                       \
  X(16, TOO_LARGE, "the tensor holds 2^63 bytes or more")                                               \
  X(17, NO_ARGUMENT, "there is no such argument")                                                       \
  X(18, CONSTANT_RANGE, "the tensor lies outside the constants")                                        \
  X(19, WORKSPACE_RANGE, "the tensor lies outside the workspace")                                       \
  X(20, MISALIGNED, "must be a multiple of the element size")                                           \
  X(21, FLAGS, "the command has no such flags")                                                         \
  X(22, NO_STEP, "there is no such step")                                                               \
  X(23, WAITS, "so many commands of that queue do not come before it in this part")                     \
  X(24, NO_TENSOR, "there is no such tensor")                                                           \
  X(25, LAYOUT, "the layout of the tensor does not suit the command")                                   \
  X(26, PROLOGUE_IMAGE, "the prologue cannot use a tensor of which each image has its own")             \
  X(27, BOX, "the box ends outside the tensor")                                                         \
  X(28, PACKED_BOX, "must be a multiple of lanes for packed weights")                                   \
  X(29, CONSTANT_STORE, "a constant cannot be stored to")                                               \
  X(30, WEIGHTS_STORE, "weights cannot be stored to")                                                   \
  X(31, ROW_BYTES, "differs from round_up(cols, column_align)*lanes*elem_bytes")                        \
  X(32, BLOCK_BYTES, "is less than round_up(rows, lines)*row_bytes")                                    \
  X(33, NOT_IN_MEMORY, "the operand does not lie within one memory")                                    \
  X(34, STRIDE, "must be 0: the layout has no strides")                                                 \
  X(35, GROUPS, "must divide in_channels and out_channels")                                             \
  X(36, NEEDS_LAST, "BIAS and CLIP are allowed only with LAST")                                         \
  X(37, LIMITS, "both limits must be numbers, and the lower not above the upper")                       \
  X(38, OVERLAP, "the operand overlaps another one")                                                    \
  X(39, GROUP_BOX, "the output channels must end with a whole group or lie within one")                 \
  X(40, UNIT, "is larger than the unit kernel")                                                         \
  X(41, OUTPUTS, "the outputs end outside the output map")                                              \
  X(42, NEEDS_PARTNER, "the function needs a partner")                                                  \
  X(43, NO_PARTNER, "the function takes no partner")                                                    \
  X(44, POSITION, "the position lies outside the input map")                                            \
  X(45, STEP_COUNT, "is more than a command's step can name, 65536")                                    \
  X(46, COUNTER_STEPS, "differs from the steps of the counter block")                                   \
  X(47, UNWRITTEN, "the command reads this SRAM address, to which nothing has been written")

#define SRAMTILE_ERROR_MEMBER_(code, name, text) SRAMTILE_ERROR_##name = code,
enum { SRAMTILE_OK = 0, SRAMTILE_ERRORS(SRAMTILE_ERROR_MEMBER_) };
#undef SRAMTILE_ERROR_MEMBER_

/* How many values a counter block for so many steps has. */
#define SRAMTILE_VALUES(steps) \
  (SRAMTILE_COUNTER_COUNT + (uint64_t)(steps) * SRAMTILE_OPCODE_COUNT * SRAMTILE_COMMAND_COUNTER_COUNT)

/* What the calls of one program share: their mode, and sums over those that succeeded. The values are indexed by
 * SRAMTILE_COUNT_*; behind them, step by step and opcode by opcode (from 1 on), by SRAMTILE_COMMAND_COUNT_*. */
struct sramtile_counters {
  uint32_t lock;
  uint32_t mode;       /* SRAMTILE_MODE_*, of the calls that start from now on */
  uint32_t step_count; /* of the program */
  int64_t* values;     /* SRAMTILE_VALUES(step_count) of them */
};

/* A block to start with, of static storage. */
#define SRAMTILE_COUNTERS(name, steps)              \
  static int64_t name##_values[SRAMTILE_VALUES(steps)]; \
  static struct sramtile_counters name = {.step_count = (steps), .values = name##_values}

/* Check a whole program, then execute it: its prologue once, its body once for each image.
 *
 * program        program_bytes bytes; of any alignment, only read.
 * tensors        one pointer for each argument of the program, each of the size that the program's tensors state; not
 *                used in mode COUNT_ONLY.
 * images         0 or more.
 * counters       its mode is that of the call, and what the call measured is merged into it if the call succeeds; may
 *                be NULL.
 * message        gets the text of an error, cut to message_bytes with its final NUL, or "" on success; may be NULL.
 *
 * Returns SRAMTILE_OK or one of SRAMTILE_ERRORS. Outputs are touched only by a program that passed every check; what
 * depends on data (POSITION) stops the run where it is met.
 */
int32_t sramtile_run(const uint8_t* program, uint64_t program_bytes, void* const* tensors, int32_t tensor_count,
                     int64_t images, struct sramtile_counters* counters, char* message, int32_t message_bytes);

/* Copy the SRAMTILE_VALUES(step_count) values of a block, all of one moment. */
void sramtile_counters_read(struct sramtile_counters* counters, int64_t* out);

/* Set the values of a block to zero. */
void sramtile_counters_reset(struct sramtile_counters* counters);

/* Set the mode of the calls that start from now on; no such mode: nothing changes, and not 0 is returned. */
int32_t sramtile_counters_mode(struct sramtile_counters* counters, int64_t mode);

#endif
