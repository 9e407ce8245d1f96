/* Reading a program's bytes: where its parts start, and its records. Only the form is checked here. */
#include <string.h>

#include "machine.h"

struct opcode {
  const char* name;
  uint32_t bytes;
  int32_t queue;
};

static const struct opcode* opcode_of(uint8_t code) {
  static const struct opcode OPCODES[] = {
      [SRAMTILE_OP_LOAD] = {"LOAD", sizeof(struct sramtile_load), SRAMTILE_QUEUE_LOAD},
      [SRAMTILE_OP_LOAD_WEIGHTS] = {"LOAD_WEIGHTS", sizeof(struct sramtile_load_weights), SRAMTILE_QUEUE_LOAD},
      [SRAMTILE_OP_STORE] = {"STORE", sizeof(struct sramtile_store), SRAMTILE_QUEUE_STORE},
      [SRAMTILE_OP_CONV] = {"CONV", sizeof(struct sramtile_conv), SRAMTILE_QUEUE_COMPUTE},
      [SRAMTILE_OP_LOAD_TABLE] = {"LOAD_TABLE", sizeof(struct sramtile_load_table), SRAMTILE_QUEUE_LOAD},
      [SRAMTILE_OP_POOL] = {"POOL", sizeof(struct sramtile_pool), SRAMTILE_QUEUE_COMPUTE},
      [SRAMTILE_OP_RESIZE] = {"RESIZE", sizeof(struct sramtile_resize), SRAMTILE_QUEUE_COMPUTE},
      [SRAMTILE_OP_ELTWISE] = {"ELTWISE", sizeof(struct sramtile_eltwise), SRAMTILE_QUEUE_COMPUTE},
      [SRAMTILE_OP_COPY] = {"COPY", sizeof(struct sramtile_copy), SRAMTILE_QUEUE_LOAD},
  };
  static const struct opcode NONE = {NULL, 0, 0};
  return code < sizeof OPCODES / sizeof *OPCODES && OPCODES[code].name != NULL ? &OPCODES[code] : &NONE;
}

uint32_t sramtile_opcode_bytes(uint8_t opcode) { return opcode_of(opcode)->bytes; }

const char* sramtile_opcode_name(uint8_t opcode) { return opcode_of(opcode)->name; }

int32_t sramtile_opcode_queue(uint8_t opcode) { return opcode_of(opcode)->queue; }

uint32_t sramtile_fetch(const uint8_t* bytes, union sramtile_any_command* command) {
  const uint32_t size = sramtile_opcode_bytes(bytes[0]);
  memcpy(command, bytes, size);
  return size;
}

struct sramtile_tensor sramtile_tensor_at(const struct sramtile_program* program, uint32_t index) {
  struct sramtile_tensor tensor;
  memcpy(&tensor, program->tensors + index * sizeof tensor, sizeof tensor);
  return tensor;
}

uint64_t sramtile_tensor_elems(const struct sramtile_tensor* tensor) {
  const uint64_t dims[] = {tensor->dim0, tensor->dim1, tensor->dim2, tensor->dim3, tensor->dim4};
  const uint64_t strides[] = {tensor->stride0, tensor->stride1, tensor->stride2, tensor->stride3, tensor->stride4};
  uint64_t elems = 1;
  if (tensor->layout == SRAMTILE_LAYOUT_TABLE) {
    return sramtile_mul(dims[0] * dims[1], sizeof(struct sramtile_entry) / SRAMTILE_ELEM_BYTES);
  }
  for (uint32_t axis = 0; axis < SRAMTILE_TENSOR_AXES; axis++) {
    const int packed = tensor->layout == SRAMTILE_LAYOUT_PACKED;
    elems = packed ? sramtile_mul(elems, dims[axis]) : sramtile_add(elems, (dims[axis] - 1) * strides[axis]);
  }
  return elems;
}

static int32_t parse_header(struct sramtile_program* program, const uint8_t* bytes, uint64_t program_bytes,
                            const struct sramtile_fault* at) {
  struct sramtile_header* const header = &program->header;
  if (bytes == NULL) return sramtile_fail(at, SRAMTILE_ERROR_NULL_POINTER, "program", 0);
  if (program_bytes < sizeof *header) {
    return sramtile_fail(at, SRAMTILE_ERROR_TOO_SHORT, "program_bytes", program_bytes);
  }
  memcpy(header, bytes, sizeof *header);
  if (header->magic != SRAMTILE_MAGIC) return sramtile_fail(at, SRAMTILE_ERROR_MAGIC, "magic", header->magic);
  if (header->version != SRAMTILE_VERSION) return sramtile_fail(at, SRAMTILE_ERROR_VERSION, "version", header->version);
  return SRAMTILE_OK;
}

/* Walk over the commands to find where they end; `offset` is where they start and, on return, where they end. */
static int32_t skip_commands(const uint8_t* bytes, uint64_t program_bytes, uint64_t* offset, const char* part,
                             uint32_t count, struct sramtile_fault* at) {
  at->part = part;
  for (uint32_t index = 0; index < count; index++) {
    at->index = index;
    at->command = NULL;
    if (*offset >= program_bytes) {
      return sramtile_fail(at, SRAMTILE_ERROR_TOO_SHORT, "program_bytes", program_bytes);
    }
    const uint8_t opcode = bytes[*offset];
    const uint32_t size = sramtile_opcode_bytes(opcode);
    if (size == 0) return sramtile_fail(at, SRAMTILE_ERROR_KIND, "opcode", opcode);
    at->command = sramtile_opcode_name(opcode);
    if (program_bytes - *offset < size) {
      return sramtile_fail(at, SRAMTILE_ERROR_TOO_SHORT, "program_bytes", program_bytes);
    }
    *offset += size;
  }
  at->command = NULL;
  return SRAMTILE_OK;
}

static int32_t parse_constants(struct sramtile_program* program, const uint8_t* bytes, uint64_t program_bytes,
                               uint64_t offset, struct sramtile_fault* at) {
  const uint64_t start = sramtile_round_up(offset, SRAMTILE_CONSTANTS_ALIGN_BYTES);
  at->part = "header";
  at->index = -1;
  if (start > program_bytes || program_bytes - start != program->header.constants_bytes) {
    return sramtile_fail(at, SRAMTILE_ERROR_CONSTANTS_BYTES, "constants_bytes", program->header.constants_bytes);
  }
  for (; offset < start; offset++) {
    if (bytes[offset] != 0) return sramtile_fail(at, SRAMTILE_ERROR_FILLING, "filling", bytes[offset]);
  }
  program->constants = bytes + start;
  return SRAMTILE_OK;
}

int32_t sramtile_parse(struct sramtile_program* program, const uint8_t* bytes, uint64_t program_bytes,
                       struct sramtile_fault* at) {
  struct sramtile_header* const header = &program->header;
  int32_t code = parse_header(program, bytes, program_bytes, at);
  if (code != SRAMTILE_OK) return code;
  const uint64_t room = (program_bytes - sizeof *header) / sizeof(struct sramtile_tensor);
  if (header->tensor_count > room) {
    at->part = "tensor";
    at->index = (int64_t)room;
    return sramtile_fail(at, SRAMTILE_ERROR_TOO_SHORT, "program_bytes", program_bytes);
  }
  program->tensors = bytes + sizeof *header;
  const uint64_t start = sizeof *header + header->tensor_count * sizeof(struct sramtile_tensor);
  program->commands = bytes + start;
  uint64_t offset = start;
  code = skip_commands(bytes, program_bytes, &offset, "prologue command", header->prologue_commands, at);
  if (code != SRAMTILE_OK) return code;
  code = skip_commands(bytes, program_bytes, &offset, "body command", header->body_commands, at);
  if (code != SRAMTILE_OK) return code;
  at->part = "header";
  at->index = -1;
  if (offset - start != header->command_bytes) {
    return sramtile_fail(at, SRAMTILE_ERROR_COMMAND_BYTES, "command_bytes", header->command_bytes);
  }
  const uint32_t sizes[SRAMTILE_MEMORIES] = {header->memory0_bytes, header->memory1_bytes, header->memory2_bytes,
                                             header->memory3_bytes};
  program->memory_start[0] = 0;
  for (uint32_t memory = 0; memory < SRAMTILE_MEMORIES; memory++) {
    program->memory_end[memory] = program->memory_start[memory] + sizes[memory];
    program->memory_start[memory + 1] = sramtile_round_up(program->memory_end[memory], SRAMTILE_MEMORY_ALIGN_BYTES);
  }
  return parse_constants(program, bytes, program_bytes, offset, at);
}
