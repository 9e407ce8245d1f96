/* The rules of the header, the tensors and the queues' dependencies. A program that passes cannot go wrong. */
#include "machine.h"

#define POSITIVE(record, field)                                                              \
  do {                                                                                       \
    if ((record)->field == 0) return sramtile_fail(at, SRAMTILE_ERROR_NOT_POSITIVE, #field, 0); \
  } while (0)

static int32_t check_call(const struct sramtile_program* program, int32_t tensor_count, int64_t images,
                          struct sramtile_fault* at) {
  at->part = "call";
  if (tensor_count < 0 || (uint32_t)tensor_count != program->header.argument_count) {
    return sramtile_fail_signed(at, SRAMTILE_ERROR_TENSOR_COUNT, "tensor_count", tensor_count);
  }
  if (images < 0) return sramtile_fail_signed(at, SRAMTILE_ERROR_IMAGES, "images", images);
  return SRAMTILE_OK;
}

static int32_t check_header(const struct sramtile_header* header, struct sramtile_fault* at) {
  at->part = "header";
  if (header->lanes < 1 || header->lanes > SRAMTILE_MAX_LANES) {
    return sramtile_fail(at, SRAMTILE_ERROR_LANES, "lanes", header->lanes);
  }
  POSITIVE(header, lines);
  POSITIVE(header, column_align);
  POSITIVE(header, mac_in);
  POSITIVE(header, mac_out);
  POSITIVE(header, dma_bytes_per_cycle);
  return SRAMTILE_OK;
}

static int32_t check_kinds(const struct sramtile_tensor* tensor, const struct sramtile_fault* at) {
  if (tensor->place >= SRAMTILE_PLACE_COUNT) return sramtile_fail(at, SRAMTILE_ERROR_KIND, "place", tensor->place);
  if (tensor->traffic >= SRAMTILE_TRAFFIC_COUNT) {
    return sramtile_fail(at, SRAMTILE_ERROR_KIND, "traffic", tensor->traffic);
  }
  if (tensor->dtype >= SRAMTILE_DTYPE_COUNT) return sramtile_fail(at, SRAMTILE_ERROR_KIND, "dtype", tensor->dtype);
  if (tensor->layout >= SRAMTILE_LAYOUT_COUNT) return sramtile_fail(at, SRAMTILE_ERROR_KIND, "layout", tensor->layout);
  if (tensor->per_image > 1 || (tensor->per_image == 1 && tensor->layout != SRAMTILE_LAYOUT_NCHW)) {
    return sramtile_fail(at, SRAMTILE_ERROR_PER_IMAGE, "per_image", tensor->per_image);
  }
  return SRAMTILE_OK;
}

static int32_t check_tensor(const struct sramtile_program* program, const struct sramtile_tensor* tensor,
                            int64_t images, const struct sramtile_fault* at) {
  const int32_t code = check_kinds(tensor, at);
  if (code != SRAMTILE_OK) return code;
  POSITIVE(tensor, dim0);
  POSITIVE(tensor, dim1);
  POSITIVE(tensor, dim2);
  POSITIVE(tensor, dim3);
  if (tensor->layout == SRAMTILE_LAYOUT_NCHW && tensor->dim0 != 1) {
    return sramtile_fail(at, SRAMTILE_ERROR_MAP_BATCH, "dim0", tensor->dim0);
  }
  const uint64_t bytes = sramtile_mul(sramtile_tensor_bytes(tensor), tensor->per_image ? (uint64_t)images : 1);
  if (bytes > INT64_MAX || sramtile_tensor_bytes(tensor) > INT64_MAX) {
    return sramtile_fail(at, SRAMTILE_ERROR_TOO_LARGE, "dim1", tensor->dim1);
  }
  if (tensor->place == SRAMTILE_PLACE_ARGUMENT) {
    if (tensor->offset < program->header.argument_count) return SRAMTILE_OK;
    return sramtile_fail(at, SRAMTILE_ERROR_NO_ARGUMENT, "offset", tensor->offset);
  }
  if (tensor->offset % SRAMTILE_ELEM_BYTES != 0) {
    return sramtile_fail(at, SRAMTILE_ERROR_MISALIGNED, "offset", tensor->offset);
  }
  const int constant = tensor->place == SRAMTILE_PLACE_CONSTANT;
  const uint64_t space = constant ? program->header.constants_bytes : program->header.workspace_bytes;
  if (sramtile_add(tensor->offset, bytes) > space) {
    return sramtile_fail(at, constant ? SRAMTILE_ERROR_CONSTANT_RANGE : SRAMTILE_ERROR_WORKSPACE_RANGE, "offset",
                         tensor->offset);
  }
  return SRAMTILE_OK;
}

static int32_t check_tensors(const struct sramtile_program* program, int64_t images, struct sramtile_fault* at) {
  at->part = "tensor";
  for (uint32_t index = 0; index < program->header.tensor_count; index++) {
    const struct sramtile_tensor tensor = sramtile_tensor_at(program, index);
    at->index = index;
    const int32_t code = check_tensor(program, &tensor, images, at);
    if (code != SRAMTILE_OK) return code;
  }
  return SRAMTILE_OK;
}

/* What a command waits for must come before it, or the queues would wait for each other forever. */
static int32_t check_waits(const struct sramtile_command* command, const uint32_t* issued,
                           const struct sramtile_fault* at) {
  if (command->wait_load > issued[SRAMTILE_QUEUE_LOAD]) {
    return sramtile_fail(at, SRAMTILE_ERROR_WAITS, "wait_load", command->wait_load);
  }
  if (command->wait_compute > issued[SRAMTILE_QUEUE_COMPUTE]) {
    return sramtile_fail(at, SRAMTILE_ERROR_WAITS, "wait_compute", command->wait_compute);
  }
  if (command->wait_store > issued[SRAMTILE_QUEUE_STORE]) {
    return sramtile_fail(at, SRAMTILE_ERROR_WAITS, "wait_store", command->wait_store);
  }
  return SRAMTILE_OK;
}

static int32_t check_part(const struct sramtile_program* program, const uint8_t** commands, const char* part,
                          uint32_t count, int in_prologue, struct sramtile_fault* at) {
  uint32_t issued[SRAMTILE_QUEUE_COUNT] = {0};
  at->part = part;
  for (uint32_t index = 0; index < count; index++) {
    union sramtile_any_command command;
    *commands += sramtile_fetch(*commands, &command);
    at->index = index;
    at->command = sramtile_opcode_name(command.common.opcode);
    int32_t code = SRAMTILE_OK;
    if (command.common.step >= program->header.step_count) {
      return sramtile_fail(at, SRAMTILE_ERROR_NO_STEP, "step", command.common.step);
    }
    code = check_waits(&command.common, issued, at);
    if (code != SRAMTILE_OK) return code;
    code = sramtile_validate_command(program, &command, in_prologue, at);
    if (code != SRAMTILE_OK) return code;
    issued[sramtile_opcode_queue(command.common.opcode)]++;
  }
  at->command = NULL;
  return SRAMTILE_OK;
}

int32_t sramtile_validate(const struct sramtile_program* program, int32_t tensor_count, int64_t images,
                          struct sramtile_fault* at) {
  const struct sramtile_header* const header = &program->header;
  at->index = -1;
  at->command = NULL;
  int32_t code = check_call(program, tensor_count, images, at);
  if (code == SRAMTILE_OK) code = check_header(header, at);
  if (code == SRAMTILE_OK) code = check_tensors(program, images, at);
  const uint8_t* commands = program->commands;
  if (code == SRAMTILE_OK) {
    code = check_part(program, &commands, "prologue command", header->prologue_commands, 1, at);
  }
  if (code == SRAMTILE_OK) code = check_part(program, &commands, "body command", header->body_commands, 0, at);
  return code;
}
