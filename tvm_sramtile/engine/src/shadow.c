/* Checked mode: a pass over the program that knows, of each element of SRAM, whether something has been written there.
 * One image is enough: those after it find at least what it has written. */
#include <stdlib.h>

#include "machine.h"

enum action { READ, WRITE, FORGET };

struct shadow {
  const struct sramtile_program* program;
  uint8_t* written; /* a bit for each element */
};

/* Some rows and columns of a map; the row bytes are those of all its columns. */
struct area {
  uint32_t row, rows, row_step;
  uint32_t col, cols, col_step;
};

static int32_t visit(const struct shadow* shadow, enum action action, const char* field, uint64_t start, uint64_t elems,
                     const struct sramtile_fault* at) {
  const uint64_t first = start / SRAMTILE_ELEM_BYTES;
  for (uint64_t elem = first; elem < first + elems; elem++) {
    const uint8_t bit = (uint8_t)(1u << elem % 8);
    if (action == WRITE) {
      shadow->written[elem / 8] |= bit;
    } else if (action == FORGET) {
      shadow->written[elem / 8] &= (uint8_t)~bit;
    } else if (!(shadow->written[elem / 8] & bit)) {
      return sramtile_fail(at, SRAMTILE_ERROR_UNWRITTEN, field, elem * SRAMTILE_ELEM_BYTES);
    }
  }
  return SRAMTILE_OK;
}

/* The channels of an area of a map, or, not `real`, the lanes of its last block that hold no channel. */
static int32_t visit_area(const struct shadow* shadow, enum action action, const struct sramtile_operand* map,
                          struct area area, int real, const struct sramtile_fault* at) {
  const struct sramtile_header* const chip = &shadow->program->header;
  const uint64_t row_bytes = sramtile_row_bytes(chip, map->cols);
  const uint32_t lanes = chip->lanes;
  int32_t code = SRAMTILE_OK;
  for (uint64_t channel = 0; channel < map->channels; channel += lanes) {
    const uint64_t here = map->channels - channel < lanes ? map->channels - channel : lanes;
    const uint64_t lane = real ? 0 : here;
    const uint64_t block = map->start + channel / lanes * map->block_bytes + lane * SRAMTILE_ELEM_BYTES;
    for (uint32_t row = 0; row < area.rows; row++) {
      const uint64_t row_start = block + (area.row + (uint64_t)row * area.row_step) * row_bytes;
      for (uint32_t col = 0; col < area.cols && code == SRAMTILE_OK; col++) {
        const uint64_t position = area.col + (uint64_t)col * area.col_step;
        code = visit(shadow, action, map->field, row_start + position * lanes * SRAMTILE_ELEM_BYTES,
                     real ? here : lanes - here, at);
      }
    }
  }
  return code;
}

static int32_t read_operand(const struct shadow* shadow, const struct sramtile_operand* operand,
                            const struct sramtile_fault* at) {
  const struct area whole = {0, operand->rows, 1, 0, operand->cols, 1};
  if (operand->block_bytes > 0) return visit_area(shadow, READ, operand, whole, 1, at);
  return visit(shadow, READ, operand->field, operand->start, operand->bytes / SRAMTILE_ELEM_BYTES, at);
}

/* A compute command writes the channels, and leaves the lanes past the last one undefined; a load zeroes these. */
static void write_area(const struct shadow* shadow, const struct sramtile_operand* map, struct area area,
                       enum action past_the_last, const struct sramtile_fault* at) {
  visit_area(shadow, past_the_last, map, area, 0, at);
  visit_area(shadow, WRITE, map, area, 1, at);
}

/* Packed weights are a map of one row: no lane that holds no output channel is looked at. */
static struct sramtile_operand weights_as_map(const struct sramtile_header* chip, const struct sramtile_conv* conv,
                                              const struct sramtile_operand* weights) {
  struct sramtile_operand map = *weights;
  map.channels = conv->out_channels;
  map.block_bytes = weights->bytes / sramtile_ceil_div(conv->out_channels, chip->lanes);
  map.rows = 1;
  map.cols = (uint32_t)(map.block_bytes / ((uint64_t)chip->lanes * SRAMTILE_ELEM_BYTES));
  return map;
}

/* Accumulators and output are read and written at the outputs that are computed. */
static int32_t check_conv(const struct shadow* shadow, const struct sramtile_conv* conv,
                          struct sramtile_operand* operands, int count, const struct sramtile_fault* at) {
  const struct area phase = {conv->out_row, conv->out_rows, conv->out_row_step,
                             conv->out_col, conv->out_cols, conv->out_col_step};
  const int last = (conv->flags & SRAMTILE_CONV_LAST) != 0;
  int32_t code = SRAMTILE_OK;
  if (!(conv->flags & SRAMTILE_CONV_FIRST)) code = visit_area(shadow, READ, &operands[0], phase, 1, at);
  for (int index = 1 + last; index < count && code == SRAMTILE_OK; index++) {
    struct sramtile_operand* const operand = &operands[index];
    if (operand->block_bytes == 0) *operand = weights_as_map(&shadow->program->header, conv, operand);
    code = read_operand(shadow, operand, at);
  }
  if (code != SRAMTILE_OK) return code;
  if (last) {
    visit_area(shadow, FORGET, &operands[0], phase, 0, at);
    visit_area(shadow, FORGET, &operands[0], phase, 1, at);
  }
  write_area(shadow, &operands[last], phase, FORGET, at);
  return SRAMTILE_OK;
}

/* What is known of each element goes with it, whatever the two places have in common. */
static void move_states(const struct shadow* shadow, uint64_t to, uint64_t from, const struct sramtile_operand* map) {
  const struct sramtile_header* const chip = &shadow->program->header;
  const uint64_t row_elems = (uint64_t)map->cols * chip->lanes;
  const uint64_t elems = row_elems * map->rows;
  for (uint64_t index = 0; index < elems; index++) {
    const uint64_t next = to < from ? index : elems - 1 - index;
    const uint64_t past = next / row_elems * sramtile_row_bytes(chip, map->cols) + next % row_elems * SRAMTILE_ELEM_BYTES;
    const uint64_t source = (from + past) / SRAMTILE_ELEM_BYTES, target = (to + past) / SRAMTILE_ELEM_BYTES;
    const unsigned state = shadow->written[source / 8] >> source % 8 & 1u;
    const unsigned others = shadow->written[target / 8] & ~(1u << target % 8);
    shadow->written[target / 8] = (uint8_t)(others | state << target % 8);
  }
}

/* Block by block. Lanes that hold no channel need not be written. */
static int32_t check_copy(const struct shadow* shadow, const struct sramtile_operand* operands,
                          const struct sramtile_fault* at) {
  const uint32_t lanes = shadow->program->header.lanes;
  struct sramtile_operand block = operands[1];
  for (uint64_t channel = 0; channel < operands[1].channels; channel += lanes) {
    const uint64_t left = operands[1].channels - channel;
    const uint64_t past = channel / lanes * block.block_bytes;
    block.start = operands[1].start + past;
    block.channels = (uint32_t)(left < lanes ? left : lanes);
    const int32_t code = read_operand(shadow, &block, at);
    if (code != SRAMTILE_OK) return code;
    move_states(shadow, operands[0].start + past, block.start, &block);
  }
  return SRAMTILE_OK;
}

static int32_t check_command(const struct shadow* shadow, const union sramtile_any_command* command,
                             const struct sramtile_fault* at) {
  struct sramtile_operand operands[SRAMTILE_MAX_OPERANDS];
  const int count = sramtile_operands(shadow->program, command, operands);
  const struct sramtile_operand* const first = &operands[0];
  const struct area whole = {0, first->rows, 1, 0, first->cols, 1};
  const int queue = sramtile_opcode_queue(command->common.opcode);
  if (queue == SRAMTILE_QUEUE_STORE) return read_operand(shadow, first, at);
  if (queue == SRAMTILE_QUEUE_LOAD) {
    if (count > 1) return check_copy(shadow, operands, at);
    if (first->block_bytes > 0) {
      write_area(shadow, first, whole, WRITE, at);
    } else {
      visit(shadow, WRITE, first->field, first->start, first->bytes / SRAMTILE_ELEM_BYTES, at);
    }
    return SRAMTILE_OK;
  }
  if (command->common.opcode == SRAMTILE_OP_CONV) return check_conv(shadow, &command->conv, operands, count, at);
  for (int index = 1; index < count; index++) {
    const int32_t code = read_operand(shadow, &operands[index], at);
    if (code != SRAMTILE_OK) return code;
  }
  write_area(shadow, first, whole, FORGET, at);
  return SRAMTILE_OK;
}

static int32_t check_part(const struct shadow* shadow, const uint8_t** commands, const char* part, uint32_t count,
                          struct sramtile_fault* at) {
  at->part = part;
  for (uint32_t index = 0; index < count; index++) {
    union sramtile_any_command command;
    *commands += sramtile_fetch(*commands, &command);
    at->index = index;
    at->command = sramtile_opcode_name(command.common.opcode);
    const int32_t code = check_command(shadow, &command, at);
    if (code != SRAMTILE_OK) return code;
  }
  return SRAMTILE_OK;
}

int32_t sramtile_check_reads(const struct sramtile_program* program, struct sramtile_fault* at) {
  const uint64_t bits = program->memory_start[SRAMTILE_MEMORIES] / SRAMTILE_ELEM_BYTES;
  struct shadow shadow = {.program = program, .written = calloc(1, bits / 8 + 1)};
  if (shadow.written == NULL) return sramtile_fail(at, SRAMTILE_ERROR_NO_MEMORY, "sram_bytes", bits);
  const uint8_t* commands = program->commands;
  int32_t code = check_part(&shadow, &commands, "prologue command", program->header.prologue_commands, at);
  if (code == SRAMTILE_OK) code = check_part(&shadow, &commands, "body command", program->header.body_commands, at);
  free(shadow.written);
  return code;
}
