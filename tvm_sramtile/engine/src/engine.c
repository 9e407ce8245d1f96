/* A call: read, validate, allocate, execute, merge the counters. */
#include <stdlib.h>
#include <string.h>

#include "machine.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define HIDE_SLACK(start, bytes) ASAN_POISON_MEMORY_REGION(start, bytes)
#define SHOW_SLACK(start, bytes) ASAN_UNPOISON_MEMORY_REGION(start, bytes)
#else
#define HIDE_SLACK(start, bytes) ((void)(start), (void)(bytes))
#define SHOW_SLACK(start, bytes) ((void)(start), (void)(bytes))
#endif

enum { ALIGN_BYTES = 64 };

/* Zeroed memory that starts at a multiple of ALIGN_BYTES. */
struct space {
  uint8_t* allocated;
  uint8_t* start;
  size_t slack_bytes; /* behind the space; hidden from a build with the address sanitizer */
};

static int space_new(struct space* space, uint64_t bytes) {
  space->allocated = bytes < SIZE_MAX / 2 ? calloc(1, (size_t)bytes + ALIGN_BYTES) : NULL;
  if (space->allocated == NULL) return 0;
  const size_t past = (uintptr_t)space->allocated % ALIGN_BYTES;
  space->start = space->allocated + (ALIGN_BYTES - past);
  space->slack_bytes = past;
  HIDE_SLACK(space->start + bytes, space->slack_bytes);
  return 1;
}

static void space_free(struct space* space, uint64_t bytes) {
  if (space->allocated != NULL) SHOW_SLACK(space->start + bytes, space->slack_bytes);
  free(space->allocated);
}

struct call {
  const struct sramtile_program* program;
  int executes; /* else it only counts */
  struct sramtile_dram dram;
  uint8_t* sram;
  struct sramtile_timeline timeline;
  struct sramtile_measured measured;
};

static int32_t execute_command(struct call* call, const union sramtile_any_command* command,
                               const struct sramtile_fault* at) {
  const struct sramtile_program* const program = call->program;
  const struct sramtile_header* const chip = &program->header;
  int32_t code = SRAMTILE_OK;
  if (!call->executes) return SRAMTILE_OK;
  switch (command->common.opcode) {
    case SRAMTILE_OP_LOAD:
      sramtile_load(program, &call->dram, call->sram, &command->load);
      break;
    case SRAMTILE_OP_LOAD_WEIGHTS:
      sramtile_load_weights(program, &call->dram, call->sram, &command->load_weights);
      break;
    case SRAMTILE_OP_LOAD_TABLE:
      sramtile_load_table(program, &call->dram, call->sram, &command->load_table);
      break;
    case SRAMTILE_OP_COPY:
      sramtile_copy(chip, call->sram, &command->copy);
      break;
    case SRAMTILE_OP_STORE:
      sramtile_store(program, &call->dram, call->sram, &command->store);
      break;
    case SRAMTILE_OP_CONV:
      sramtile_conv(chip, call->sram, &command->conv);
      break;
    case SRAMTILE_OP_POOL:
      sramtile_pool(chip, call->sram, &command->pool);
      break;
    case SRAMTILE_OP_RESIZE:
      code = sramtile_resize(chip, call->sram, &command->resize, at);
      break;
    default:
      sramtile_eltwise(chip, call->sram, &command->eltwise);
  }
  return code;
}

/* Execute `count` commands; `commands` is where they start and, on success, where they end. */
static int32_t execute_part(struct call* call, const uint8_t** commands, int part, uint32_t count,
                            struct sramtile_fault* at) {
  at->part = part == SRAMTILE_PROLOGUE ? "prologue command" : "body command";
  sramtile_part_start(&call->timeline);
  for (uint32_t index = 0; index < count; index++) {
    union sramtile_any_command command;
    *commands += sramtile_fetch(*commands, &command);
    at->index = index;
    at->command = sramtile_opcode_name(command.common.opcode);
    const int32_t code = execute_command(call, &command, at);
    if (code != SRAMTILE_OK) return code;
    sramtile_measure(call->program, &command, &call->timeline, &call->measured);
  }
  sramtile_part_end(&call->timeline, &call->program->peak[part], &call->measured);
  return SRAMTILE_OK;
}

static int32_t execute_program(struct call* call, int64_t images, struct sramtile_fault* at) {
  const struct sramtile_header* const header = &call->program->header;
  const uint8_t* body = call->program->commands;
  int32_t code = execute_part(call, &body, SRAMTILE_PROLOGUE, header->prologue_commands, at);
  for (int64_t image = 0; image < images && header->body_commands > 0 && code == SRAMTILE_OK; image++) {
    const uint8_t* commands = body;
    call->dram.image = image;
    code = execute_part(call, &commands, SRAMTILE_BODY, header->body_commands, at);
  }
  if (code == SRAMTILE_OK) sramtile_total(&call->measured, header, images);
  return code;
}

/* Every argument that some tensor lies in must be there; without images, those of each image may be missing. */
static int32_t check_pointers(const struct sramtile_program* program, void* const* tensors, int64_t images,
                              struct sramtile_fault* at) {
  for (uint32_t index = 0; index < program->header.tensor_count; index++) {
    const struct sramtile_tensor tensor = sramtile_tensor_at(program, index);
    at->part = "tensor";
    at->index = index;
    if (tensor.place != SRAMTILE_PLACE_ARGUMENT || (tensor.image_stride != 0 && images == 0)) continue;
    if (tensors == NULL || tensors[tensor.offset] == NULL) {
      return sramtile_fail(at, SRAMTILE_ERROR_NULL_POINTER, "pointer", 0);
    }
  }
  return SRAMTILE_OK;
}

static int32_t check_counters(const struct sramtile_program* program, const struct sramtile_counters* counters,
                              struct sramtile_fault* at) {
  if (counters == NULL || counters->step_count == program->header.step_count) return SRAMTILE_OK;
  at->part = "header";
  at->index = -1;
  return sramtile_fail(at, SRAMTILE_ERROR_COUNTER_STEPS, "step_count", program->header.step_count);
}

static int32_t allocate_and_execute(const struct sramtile_program* program, void* const* tensors, int64_t images,
                                    int executes, struct sramtile_counters* counters, struct sramtile_fault* at) {
  const uint64_t sram_bytes = executes ? program->memory_start[SRAMTILE_MEMORIES] : 0;
  const uint64_t workspace_bytes = executes ? program->header.workspace_bytes : 0;
  struct space sram = {0};
  struct space workspace = {0};
  struct call call = {.program = program, .executes = executes};
  int32_t code = sramtile_timeline_new(&call.timeline, &program->header, at);
  if (code == SRAMTILE_OK) code = sramtile_measured_new(&call.measured, &program->header, at);
  if (code == SRAMTILE_OK && !space_new(&sram, sram_bytes)) {
    code = sramtile_fail(at, SRAMTILE_ERROR_NO_MEMORY, "sram_bytes", sram_bytes);
  }
  if (code == SRAMTILE_OK && !space_new(&workspace, workspace_bytes)) {
    code = sramtile_fail(at, SRAMTILE_ERROR_NO_MEMORY, "workspace_bytes", workspace_bytes);
  }
  if (code == SRAMTILE_OK) {
    call.sram = sram.start;
    call.dram.arguments = tensors;
    call.dram.workspace = workspace.start;
    code = execute_program(&call, images, at);
    if (code == SRAMTILE_OK && counters != NULL) sramtile_merge(counters, &call.measured);
  }
  space_free(&workspace, workspace_bytes);
  space_free(&sram, sram_bytes);
  sramtile_measured_free(&call.measured);
  sramtile_timeline_free(&call.timeline);
  return code;
}

int32_t sramtile_run(const uint8_t* program, uint64_t program_bytes, void* const* tensors, int32_t tensor_count,
                     int64_t images, struct sramtile_counters* counters, char* message, int32_t message_bytes) {
  struct sramtile_fault at = {.part = "header", .index = -1, .message = message, .message_bytes = message_bytes};
  struct sramtile_program parsed;
  if (message != NULL && message_bytes > 0) message[0] = '\0';
  const uint32_t mode = sramtile_mode(counters);
  const int executes = mode != SRAMTILE_MODE_COUNT_ONLY;
  int32_t code = sramtile_parse(&parsed, program, program_bytes, &at);
  if (code == SRAMTILE_OK) code = sramtile_validate(&parsed, tensor_count, images, &at);
  if (code == SRAMTILE_OK) code = check_counters(&parsed, counters, &at);
  if (code == SRAMTILE_OK && mode == SRAMTILE_MODE_CHECKED) code = sramtile_check_reads(&parsed, &at);
  if (code == SRAMTILE_OK && executes) code = check_pointers(&parsed, tensors, images, &at);
  if (code != SRAMTILE_OK) return code;
  at = (struct sramtile_fault){.part = "call", .index = -1, .message = message, .message_bytes = message_bytes};
  return allocate_and_execute(&parsed, tensors, images, executes, counters, &at);
}
