/* The rules of the header, the tensors and the queues' dependencies. A program that passes goes wrong only where a
 * RESIZE finds a position that is outside its map. */
#include "rules.h"

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
  if (header->step_count > SRAMTILE_MAX_STEPS) {
    return sramtile_fail(at, SRAMTILE_ERROR_STEP_COUNT, "step_count", header->step_count);
  }
  return SRAMTILE_OK;
}

static int32_t check_kinds(const struct sramtile_tensor* tensor, const struct sramtile_fault* at) {
  if (tensor->place >= SRAMTILE_PLACE_COUNT) return sramtile_fail(at, SRAMTILE_ERROR_KIND, "place", tensor->place);
  if (tensor->traffic >= SRAMTILE_TRAFFIC_COUNT) {
    return sramtile_fail(at, SRAMTILE_ERROR_KIND, "traffic", tensor->traffic);
  }
  if (tensor->dtype >= SRAMTILE_DTYPE_COUNT) return sramtile_fail(at, SRAMTILE_ERROR_KIND, "dtype", tensor->dtype);
  if (tensor->layout >= SRAMTILE_LAYOUT_COUNT) return sramtile_fail(at, SRAMTILE_ERROR_KIND, "layout", tensor->layout);
  return SRAMTILE_OK;
}

/* The dimensions that a layout has are its first; only maps and weights have strides, only maps one for images. */
static int32_t check_axes(const struct sramtile_tensor* tensor, const struct sramtile_fault* at) {
  static const char* const DIMS[] = {"dim0", "dim1", "dim2", "dim3", "dim4"};
  static const char* const STRIDES[] = {"stride0", "stride1", "stride2", "stride3", "stride4"};
  static const uint32_t AXES[SRAMTILE_LAYOUT_COUNT] = {
      [SRAMTILE_LAYOUT_MAP] = 3,
      [SRAMTILE_LAYOUT_WEIGHTS] = 5,
      [SRAMTILE_LAYOUT_PACKED] = 5,
      [SRAMTILE_LAYOUT_TABLE] = 2,
  };
  const uint32_t dims[] = {tensor->dim0, tensor->dim1, tensor->dim2, tensor->dim3, tensor->dim4};
  const uint32_t strides[] = {tensor->stride0, tensor->stride1, tensor->stride2, tensor->stride3, tensor->stride4};
  const int strided = tensor->layout == SRAMTILE_LAYOUT_MAP || tensor->layout == SRAMTILE_LAYOUT_WEIGHTS;
  for (uint32_t axis = 0; axis < SRAMTILE_TENSOR_AXES; axis++) {
    if (dims[axis] == 0) return sramtile_fail(at, SRAMTILE_ERROR_NOT_POSITIVE, DIMS[axis], 0);
    if (axis >= AXES[tensor->layout] && dims[axis] != 1) {
      return sramtile_fail(at, SRAMTILE_ERROR_EXTRA_DIM, DIMS[axis], dims[axis]);
    }
    if (!strided && strides[axis] != 0) return sramtile_fail(at, SRAMTILE_ERROR_STRIDE, STRIDES[axis], strides[axis]);
  }
  if (tensor->layout != SRAMTILE_LAYOUT_MAP && tensor->image_stride != 0) {
    return sramtile_fail(at, SRAMTILE_ERROR_PER_IMAGE, "image_stride", tensor->image_stride);
  }
  return SRAMTILE_OK;
}

/* The bytes from a tensor's first element to its last one of all images, of which there may be none. */
static uint64_t all_bytes(const struct sramtile_tensor* tensor, uint64_t images) {
  if (tensor->image_stride != 0 && images == 0) return 0;
  const uint64_t past = tensor->image_stride == 0 ? 0 : sramtile_mul(images - 1, tensor->image_stride);
  return sramtile_mul(sramtile_add(past, sramtile_tensor_elems(tensor)), SRAMTILE_ELEM_BYTES);
}

static int32_t check_tensor(const struct sramtile_program* program, const struct sramtile_tensor* tensor,
                            int64_t images, const struct sramtile_fault* at) {
  int32_t code = check_kinds(tensor, at);
  if (code == SRAMTILE_OK) code = check_axes(tensor, at);
  if (code != SRAMTILE_OK) return code;
  const uint64_t bytes = all_bytes(tensor, (uint64_t)images);
  if (bytes > INT64_MAX || sramtile_mul(sramtile_tensor_elems(tensor), SRAMTILE_ELEM_BYTES) > INT64_MAX) {
    return sramtile_fail(at, SRAMTILE_ERROR_TOO_LARGE, "dim0", tensor->dim0);
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

static int32_t check_command(const struct sramtile_program* program, const union sramtile_any_command* command,
                             int in_prologue, struct sramtile_peak* peak, const struct sramtile_fault* at) {
  const int compute = sramtile_opcode_queue(command->common.opcode) == SRAMTILE_QUEUE_COMPUTE;
  if (command->common.opcode != SRAMTILE_OP_CONV && command->common.flags != 0) {
    return sramtile_fail(at, SRAMTILE_ERROR_FLAGS, "flags", command->common.flags);
  }
  const int32_t code = compute ? sramtile_check_compute(program, command, at)
                               : sramtile_check_dma(program, command, in_prologue, at);
  return code == SRAMTILE_OK ? sramtile_check_operands(program, command, peak, at) : code;
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

static int32_t check_part(struct sramtile_program* program, const uint8_t** commands, int part, uint32_t count,
                          struct sramtile_fault* at) {
  struct sramtile_peak peak = {0};
  uint32_t issued[SRAMTILE_QUEUE_COUNT] = {0};
  at->part = part == SRAMTILE_PROLOGUE ? "prologue command" : "body command";
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
    code = check_command(program, &command, part == SRAMTILE_PROLOGUE, &peak, at);
    if (code != SRAMTILE_OK) return code;
    issued[sramtile_opcode_queue(command.common.opcode)]++;
  }
  at->command = NULL;
  program->peak[part] = peak;
  return SRAMTILE_OK;
}

int32_t sramtile_validate(struct sramtile_program* program, int32_t tensor_count, int64_t images,
                          struct sramtile_fault* at) {
  const struct sramtile_header* const header = &program->header;
  at->index = -1;
  at->command = NULL;
  int32_t code = check_call(program, tensor_count, images, at);
  if (code == SRAMTILE_OK) code = check_header(header, at);
  if (code == SRAMTILE_OK) code = check_tensors(program, images, at);
  const uint8_t* commands = program->commands;
  if (code == SRAMTILE_OK) code = check_part(program, &commands, SRAMTILE_PROLOGUE, header->prologue_commands, at);
  if (code == SRAMTILE_OK) code = check_part(program, &commands, SRAMTILE_BODY, header->body_commands, at);
  return code;
}
