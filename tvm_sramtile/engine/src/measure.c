/* What a call costs: the timeline of the three queues, traffic, MACs, the SRAM peak; and the counter block. */
#include <stdlib.h>
#include <string.h>

#include "machine.h"

int32_t sramtile_timeline_new(struct sramtile_timeline* timeline, const struct sramtile_header* header,
                              const struct sramtile_fault* at) {
  const uint32_t longest =
      header->prologue_commands > header->body_commands ? header->prologue_commands : header->body_commands;
  for (int queue = 0; queue < SRAMTILE_QUEUE_COUNT; queue++) timeline->finish_cycles[queue] = NULL;
  for (int queue = 0; queue < SRAMTILE_QUEUE_COUNT; queue++) {
    timeline->finish_cycles[queue] = malloc(((size_t)longest + 1) * sizeof(uint64_t));
    if (timeline->finish_cycles[queue] == NULL) {
      return sramtile_fail(at, SRAMTILE_ERROR_NO_MEMORY, "body_commands", header->body_commands);
    }
  }
  return SRAMTILE_OK;
}

void sramtile_timeline_free(struct sramtile_timeline* timeline) {
  for (int queue = 0; queue < SRAMTILE_QUEUE_COUNT; queue++) free(timeline->finish_cycles[queue]);
}

void sramtile_part_start(struct sramtile_timeline* timeline) {
  for (int queue = 0; queue < SRAMTILE_QUEUE_COUNT; queue++) timeline->done[queue] = 0;
}

static uint64_t finish_of(const struct sramtile_timeline* timeline, int queue, uint32_t commands) {
  return commands == 0 ? 0 : timeline->finish_cycles[queue][commands - 1];
}

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

void sramtile_part_end(const struct sramtile_timeline* timeline, const struct sramtile_peak* peak,
                       struct sramtile_measured* measured) {
  uint64_t end = 0;
  for (int queue = 0; queue < SRAMTILE_QUEUE_COUNT; queue++) {
    end = larger(end, finish_of(timeline, queue, timeline->done[queue]));
  }
  measured->values[SRAMTILE_COUNT_CYCLES] = sramtile_add(measured->values[SRAMTILE_COUNT_CYCLES], end);
  for (uint32_t memory = 0; memory < SRAMTILE_MEMORIES; memory++) {
    measured->peak.bytes[memory] = larger(measured->peak.bytes[memory], peak->bytes[memory]);
  }
}

static void schedule(struct sramtile_timeline* timeline, const struct sramtile_command* command, int queue,
                     uint64_t cycles) {
  uint64_t start = finish_of(timeline, queue, timeline->done[queue]);
  start = larger(start, finish_of(timeline, SRAMTILE_QUEUE_LOAD, command->wait_load));
  start = larger(start, finish_of(timeline, SRAMTILE_QUEUE_COMPUTE, command->wait_compute));
  start = larger(start, finish_of(timeline, SRAMTILE_QUEUE_STORE, command->wait_store));
  timeline->finish_cycles[queue][timeline->done[queue]++] = sramtile_add(start, cycles);
}

static void add(uint64_t* value, uint64_t more) { *value = sramtile_add(*value, more); }

/* What is counted for an opcode (from 1 on) in a step. */
static uint64_t* counts_of(const struct sramtile_measured* measured, uint32_t step, uint32_t opcode) {
  const uint64_t row = (uint64_t)step * SRAMTILE_OPCODE_COUNT + opcode - 1;
  return measured->values + SRAMTILE_COUNTER_COUNT + row * SRAMTILE_COMMAND_COUNTER_COUNT;
}

/* Count a DMA command's bytes; returns its cycles. */
static uint64_t measure_dma(const struct sramtile_program* program, const union sramtile_any_command* command,
                            uint64_t* counts) {
  static const int COUNTER_OF_TRAFFIC[SRAMTILE_TRAFFIC_COUNT] = {
      [SRAMTILE_TRAFFIC_INPUTS] = SRAMTILE_COMMAND_COUNT_INPUT_BYTES,
      [SRAMTILE_TRAFFIC_WEIGHTS] = SRAMTILE_COMMAND_COUNT_WEIGHT_BYTES,
      [SRAMTILE_TRAFFIC_OUTPUTS] = SRAMTILE_COMMAND_COUNT_OUTPUT_BYTES,
      [SRAMTILE_TRAFFIC_PARTIAL_SUMS] = SRAMTILE_COMMAND_COUNT_PARTIAL_SUM_BYTES,
  };
  const struct sramtile_tensor tensor = sramtile_tensor_at(program, command->load.tensor);
  uint64_t elems;
  if (command->common.opcode == SRAMTILE_OP_LOAD_WEIGHTS) {
    const struct sramtile_load_weights* const load = &command->load_weights;
    elems = (uint64_t)load->kernel_rows * load->kernel_cols;
    elems = sramtile_mul(sramtile_mul(elems, load->in_channels), load->out_channels);
  } else if (command->common.opcode == SRAMTILE_OP_LOAD_TABLE) {
    elems = (uint64_t)command->load_table.count * tensor.dim1 * sizeof(struct sramtile_entry) / SRAMTILE_ELEM_BYTES;
  } else {
    const struct sramtile_load* const map = &command->load;
    elems = sramtile_mul((uint64_t)map->rows * map->cols, map->channels);
  }
  const uint64_t bytes = elems * SRAMTILE_ELEM_BYTES; /* all of them lie in SRAM, so they are few */
  add(&counts[COUNTER_OF_TRAFFIC[tensor.traffic]], bytes);
  return program->header.dma_setup_cycles + sramtile_ceil_div(bytes, program->header.dma_bytes_per_cycle);
}

static uint64_t measure_copy(const struct sramtile_header* chip, const struct sramtile_copy* copy) {
  const uint64_t blocks = sramtile_ceil_div(copy->channels, chip->lanes);
  return chip->dma_setup_cycles + (uint64_t)copy->rows * copy->cols * blocks; /* all of them lie in SRAM */
}

/* Count a convolution's MACs; returns its cycles. */
static uint64_t measure_conv(const struct sramtile_header* chip, const struct sramtile_conv* conv, uint64_t* counts) {
  const uint64_t ipg = conv->in_channels / conv->groups;
  const uint64_t opg = conv->out_channels / conv->groups;
  const uint64_t taps = (uint64_t)conv->kernel_rows * conv->kernel_cols;
  const uint64_t positions = (uint64_t)conv->out_rows * conv->out_cols;
  const uint64_t products = sramtile_mul(sramtile_mul(positions, taps), sramtile_mul(ipg, conv->out_channels));
  add(&counts[SRAMTILE_COMMAND_COUNT_MACS], products);
  const uint64_t array = sramtile_mul(sramtile_ceil_div(ipg, chip->mac_in), sramtile_ceil_div(opg, chip->mac_out));
  const uint64_t by_group = sramtile_mul(conv->groups, array);
  const uint64_t by_output = sramtile_mul(ipg, sramtile_ceil_div(conv->out_channels, chip->mac_out));
  const uint64_t turns = sramtile_mul(positions, by_group < by_output ? by_group : by_output);
  return sramtile_mul(turns, (uint64_t)conv->unit_rows * conv->unit_cols);
}

/* The cycles of a compute command; a convolution's MACs are counted. */
static uint64_t measure_compute(const struct sramtile_header* chip, const union sramtile_any_command* command,
                                uint64_t* counts) {
  const struct sramtile_pool* const pool = &command->pool;
  const struct sramtile_resize* const resize = &command->resize;
  const struct sramtile_eltwise* const eltwise = &command->eltwise;
  uint64_t positions, taps = 1;
  uint32_t channels;
  switch (command->common.opcode) {
    case SRAMTILE_OP_CONV:
      return measure_conv(chip, &command->conv, counts);
    case SRAMTILE_OP_POOL:
      positions = (uint64_t)pool->out_rows * pool->out_cols;
      taps = (uint64_t)pool->kernel_rows * pool->kernel_cols;
      channels = pool->channels;
      break;
    case SRAMTILE_OP_RESIZE:
      positions = (uint64_t)resize->out_rows * resize->out_cols;
      taps = (uint64_t)resize->row_taps * resize->col_taps;
      channels = resize->channels;
      break;
    default:
      positions = (uint64_t)eltwise->rows * eltwise->cols;
      channels = eltwise->channels;
  }
  return sramtile_mul(sramtile_mul(positions, taps), sramtile_ceil_div(channels, chip->mac_out));
}

void sramtile_measure(const struct sramtile_program* program, const union sramtile_any_command* command,
                      struct sramtile_timeline* timeline, struct sramtile_measured* measured) {
  const int queue = sramtile_opcode_queue(command->common.opcode);
  uint64_t* const counts = counts_of(measured, command->common.step, command->common.opcode);
  uint64_t cycles;
  if (command->common.opcode == SRAMTILE_OP_COPY) {
    cycles = measure_copy(&program->header, &command->copy);
  } else {
    cycles = queue == SRAMTILE_QUEUE_COMPUTE ? measure_compute(&program->header, command, counts)
                                             : measure_dma(program, command, counts);
  }
  schedule(timeline, &command->common, queue, cycles);
  add(&counts[SRAMTILE_COMMAND_COUNT_BUSY_CYCLES], cycles);
  add(&counts[SRAMTILE_COMMAND_COUNT_COMMANDS], 1);
}

int32_t sramtile_measured_new(struct sramtile_measured* measured, const struct sramtile_header* header,
                              const struct sramtile_fault* at) {
  measured->count = SRAMTILE_VALUES(header->step_count);
  measured->values = calloc(measured->count, sizeof *measured->values);
  if (measured->values != NULL) return SRAMTILE_OK;
  return sramtile_fail(at, SRAMTILE_ERROR_NO_MEMORY, "step_count", header->step_count);
}

void sramtile_measured_free(struct sramtile_measured* measured) { free(measured->values); }

void sramtile_total(struct sramtile_measured* measured, const struct sramtile_header* header, int64_t images) {
  uint64_t* const values = measured->values;
  values[SRAMTILE_COUNT_CALLS] = 1;
  values[SRAMTILE_COUNT_IMAGES] = (uint64_t)images;
  for (uint32_t memory = 0; memory < SRAMTILE_MEMORIES; memory++) {
    values[SRAMTILE_COUNT_SRAM_PEAK_BYTES] += measured->peak.bytes[memory];
  }
  for (uint32_t step = 0; step < header->step_count; step++) {
    for (uint32_t opcode = 1; opcode <= SRAMTILE_OPCODE_COUNT; opcode++) {
      const uint64_t* const counts = counts_of(measured, step, opcode);
      if (counts[SRAMTILE_COMMAND_COUNT_COMMANDS] == 0) continue;
      const int queue = sramtile_opcode_queue((uint8_t)opcode);
      add(&values[SRAMTILE_COUNT_LOAD_BUSY_CYCLES + queue], counts[SRAMTILE_COMMAND_COUNT_BUSY_CYCLES]);
      add(&values[SRAMTILE_COUNT_LOAD_COMMANDS + queue], counts[SRAMTILE_COMMAND_COUNT_COMMANDS]);
      add(&values[SRAMTILE_COUNT_MACS], counts[SRAMTILE_COMMAND_COUNT_MACS]);
      add(&values[SRAMTILE_COUNT_INPUT_BYTES], counts[SRAMTILE_COMMAND_COUNT_INPUT_BYTES]);
      add(&values[SRAMTILE_COUNT_WEIGHT_BYTES], counts[SRAMTILE_COMMAND_COUNT_WEIGHT_BYTES]);
      add(&values[SRAMTILE_COUNT_OUTPUT_BYTES], counts[SRAMTILE_COMMAND_COUNT_OUTPUT_BYTES]);
      add(&values[SRAMTILE_COUNT_PARTIAL_SUM_BYTES], counts[SRAMTILE_COMMAND_COUNT_PARTIAL_SUM_BYTES]);
    }
  }
}

static void lock(struct sramtile_counters* counters) {
  while (__atomic_exchange_n(&counters->lock, 1u, __ATOMIC_ACQUIRE) != 0) {
    while (__atomic_load_n(&counters->lock, __ATOMIC_RELAXED) != 0) {
    }
  }
}

static void unlock(struct sramtile_counters* counters) { __atomic_store_n(&counters->lock, 0u, __ATOMIC_RELEASE); }

void sramtile_merge(struct sramtile_counters* counters, const struct sramtile_measured* measured) {
  lock(counters);
  for (uint64_t index = 0; index < measured->count; index++) {
    const uint64_t before = (uint64_t)counters->values[index];
    uint64_t value = index == SRAMTILE_COUNT_SRAM_PEAK_BYTES ? larger(before, measured->values[index])
                                                             : sramtile_add(before, measured->values[index]);
    if (value > INT64_MAX) value = INT64_MAX;
    counters->values[index] = (int64_t)value;
  }
  unlock(counters);
}

void sramtile_counters_read(struct sramtile_counters* counters, int64_t* out) {
  lock(counters);
  memcpy(out, counters->values, SRAMTILE_VALUES(counters->step_count) * sizeof *out);
  unlock(counters);
}

void sramtile_counters_reset(struct sramtile_counters* counters) {
  lock(counters);
  memset(counters->values, 0, SRAMTILE_VALUES(counters->step_count) * sizeof *counters->values);
  unlock(counters);
}

int32_t sramtile_counters_mode(struct sramtile_counters* counters, int64_t mode) {
  if (mode < 0 || mode >= SRAMTILE_MODE_COUNT) return SRAMTILE_ERROR_KIND;
  __atomic_store_n(&counters->mode, (uint32_t)mode, __ATOMIC_RELAXED);
  return SRAMTILE_OK;
}

uint32_t sramtile_mode(const struct sramtile_counters* counters) {
  return counters == NULL ? SRAMTILE_MODE_RUN : __atomic_load_n(&counters->mode, __ATOMIC_RELAXED);
}
