/* What a call costs: the timeline of the three queues, traffic, MACs, the SRAM peak; and the counter block. */
#include <stdlib.h>

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

void sramtile_part_end(const struct sramtile_timeline* timeline, struct sramtile_measured* measured) {
  uint64_t end = 0;
  for (int queue = 0; queue < SRAMTILE_QUEUE_COUNT; queue++) {
    end = larger(end, finish_of(timeline, queue, timeline->done[queue]));
  }
  measured->values[SRAMTILE_COUNT_CYCLES] = sramtile_add(measured->values[SRAMTILE_COUNT_CYCLES], end);
}

static void schedule(struct sramtile_timeline* timeline, const struct sramtile_command* command, int queue,
                     uint64_t cycles) {
  uint64_t start = finish_of(timeline, queue, timeline->done[queue]);
  start = larger(start, finish_of(timeline, SRAMTILE_QUEUE_LOAD, command->wait_load));
  start = larger(start, finish_of(timeline, SRAMTILE_QUEUE_COMPUTE, command->wait_compute));
  start = larger(start, finish_of(timeline, SRAMTILE_QUEUE_STORE, command->wait_store));
  timeline->finish_cycles[queue][timeline->done[queue]++] = sramtile_add(start, cycles);
}

static void add(struct sramtile_measured* measured, int counter, uint64_t value) {
  measured->values[counter] = sramtile_add(measured->values[counter], value);
}

/* Count a DMA command's bytes; returns its cycles. */
static uint64_t measure_dma(const struct sramtile_program* program, const union sramtile_any_command* command,
                            struct sramtile_measured* measured) {
  static const int COUNTER_OF_TRAFFIC[SRAMTILE_TRAFFIC_COUNT] = {
      [SRAMTILE_TRAFFIC_INPUTS] = SRAMTILE_COUNT_INPUT_BYTES,
      [SRAMTILE_TRAFFIC_WEIGHTS] = SRAMTILE_COUNT_WEIGHT_BYTES,
      [SRAMTILE_TRAFFIC_OUTPUTS] = SRAMTILE_COUNT_OUTPUT_BYTES,
      [SRAMTILE_TRAFFIC_PARTIAL_SUMS] = SRAMTILE_COUNT_PARTIAL_SUM_BYTES,
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
  add(measured, COUNTER_OF_TRAFFIC[tensor.traffic], bytes);
  return program->header.dma_setup_cycles + sramtile_ceil_div(bytes, program->header.dma_bytes_per_cycle);
}

/* Count a convolution's MACs; returns its cycles. */
static uint64_t measure_conv(const struct sramtile_header* chip, const struct sramtile_conv* conv,
                             struct sramtile_measured* measured) {
  const uint64_t ipg = conv->in_channels / conv->groups;
  const uint64_t opg = conv->out_channels / conv->groups;
  const uint64_t taps = (uint64_t)conv->kernel_rows * conv->kernel_cols;
  const uint64_t positions = (uint64_t)conv->out_rows * conv->out_cols;
  const uint64_t products = sramtile_mul(sramtile_mul(positions, taps), sramtile_mul(ipg, conv->out_channels));
  add(measured, SRAMTILE_COUNT_MACS, products);
  const uint64_t array = sramtile_mul(sramtile_ceil_div(ipg, chip->mac_in), sramtile_ceil_div(opg, chip->mac_out));
  const uint64_t by_group = sramtile_mul(conv->groups, array);
  const uint64_t by_output = sramtile_mul(ipg, sramtile_ceil_div(conv->out_channels, chip->mac_out));
  const uint64_t turns = sramtile_mul(positions, by_group < by_output ? by_group : by_output);
  return sramtile_mul(turns, (uint64_t)conv->unit_rows * conv->unit_cols);
}

/* The cycles of a compute command; a convolution's MACs are counted. */
static uint64_t measure_compute(const struct sramtile_header* chip, const union sramtile_any_command* command,
                                struct sramtile_measured* measured) {
  const struct sramtile_pool* const pool = &command->pool;
  const struct sramtile_resize* const resize = &command->resize;
  const struct sramtile_eltwise* const eltwise = &command->eltwise;
  uint64_t positions, taps = 1;
  uint32_t channels;
  switch (command->common.opcode) {
    case SRAMTILE_OP_CONV:
      return measure_conv(chip, &command->conv, measured);
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

static void measure_peak(const struct sramtile_program* program, const union sramtile_any_command* command,
                         struct sramtile_measured* measured) {
  struct sramtile_operand operands[SRAMTILE_MAX_OPERANDS];
  const int count = sramtile_operands(program, command, operands);
  for (int index = 0; index < count; index++) {
    uint32_t memory = 0;
    while (operands[index].start >= program->memory_start[memory + 1]) memory++;
    const uint64_t end = operands[index].start + operands[index].bytes - program->memory_start[memory];
    measured->memory_peak_bytes[memory] = larger(measured->memory_peak_bytes[memory], end);
  }
}

void sramtile_measure(const struct sramtile_program* program, const union sramtile_any_command* command,
                      struct sramtile_timeline* timeline, struct sramtile_measured* measured) {
  const int queue = sramtile_opcode_queue(command->common.opcode);
  const uint64_t cycles = queue == SRAMTILE_QUEUE_COMPUTE ? measure_compute(&program->header, command, measured)
                                                          : measure_dma(program, command, measured);
  schedule(timeline, &command->common, queue, cycles);
  add(measured, SRAMTILE_COUNT_LOAD_BUSY_CYCLES + queue, cycles);
  add(measured, SRAMTILE_COUNT_LOAD_COMMANDS + queue, 1);
  measure_peak(program, command, measured);
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
  for (int index = 0; index < SRAMTILE_COUNTER_COUNT; index++) {
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
  for (int index = 0; index < SRAMTILE_COUNTER_COUNT; index++) out[index] = counters->values[index];
  unlock(counters);
}

void sramtile_counters_reset(struct sramtile_counters* counters) {
  lock(counters);
  for (int index = 0; index < SRAMTILE_COUNTER_COUNT; index++) counters->values[index] = 0;
  unlock(counters);
}
