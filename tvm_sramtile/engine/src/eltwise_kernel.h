/* ELTWISE: part of the template map_kernels.h. */

/* Neighbouring columns of a row, VL lanes of each. */
struct run {
  float* to;
  const float* from;
  const float* partner;
  int64_t count;
  int64_t step;
  int64_t partner_step;
  float value0, value1;
};

#define V filled(run->value0)
#define W filled(run->value1)

/* What each Function makes of a and b, in the order of the operations that the table states. */
#define EACH_FUNCTION(X)                                                             \
  X(COPY, a)                                                                         \
  X(ADD, a + b)                                                                      \
  X(SUBTRACT, a - b)                                                                 \
  X(REVERSE_SUBTRACT, b - a)                                                         \
  X(MULTIPLY, a * b)                                                                 \
  X(DIVIDE, a / b)                                                                   \
  X(REVERSE_DIVIDE, b / a)                                                           \
  X(MAXIMUM, maximum(a, b))                                                          \
  X(MINIMUM, minimum(a, b))                                                          \
  X(PRELU, choose(a > filled(0.0f), a, a * b))                                       \
  X(CLIP, limited(a, V, W))                                                          \
  X(LEAKY_RELU, choose(a > filled(0.0f), a, a * V))                                  \
  X(SIGMOID, filled(1.0f) / (filled(1.0f) + exponential(-a)))                        \
  X(TANH, hyperbolic_tangent(a))                                                     \
  X(EXP, exponential(a))                                                             \
  X(SQRT, square_root(a))                                                            \
  X(ABS, absolute(a))                                                                \
  X(NEGATIVE, -a)                                                                    \
  X(SILU, a / (filled(1.0f) + exponential(-a)))                                      \
  X(HARD_SWISH, a * limited(a + filled(3.0f), filled(0.0f), filled(6.0f)) / filled(6.0f))

#define FUNCTION(NAME, VALUE)                                       \
  NEVER_INLINE void eltwise_##NAME(const struct run* run) {         \
    const float* from = run->from;                                  \
    const float* partner = run->partner;                            \
    float* to = run->to;                                            \
    for (int64_t left = run->count; left > 0; left--) {             \
      const vec a = load(from);                                     \
      const vec b = load(partner);                                  \
      (void)b;                                                      \
      store(to, VALUE);                                             \
      from += run->step;                                            \
      to += run->step;                                              \
      partner += run->partner_step;                                 \
    }                                                               \
  }
EACH_FUNCTION(FUNCTION)

static void run_eltwise(const struct sramtile_eltwise_job* job) {
#define ENTRY(NAME, VALUE) [SRAMTILE_FUNCTION_##NAME] = eltwise_##NAME,
  static void (*const FUNCTIONS[SRAMTILE_FUNCTION_COUNT])(const struct run*) = {EACH_FUNCTION(ENTRY)};
#undef ENTRY
  const struct sramtile_maps* const maps = &job->maps;
  float value[VL];
  store(value, filled(job->value0));
  struct run run = {.count = maps->in_cols, .step = maps->lanes, .partner_step = job->partner_step,
                    .value0 = job->value0, .value1 = job->value1};
  for (int64_t block = 0; block < maps->blocks; block++) {
    for (int64_t row = 0; row < maps->in_rows; row++) {
      for (int64_t lane = 0; lane < maps->lanes; lane += VL) {
        run.from = maps->input + block * maps->in_block + row * maps->in_row + lane;
        run.to = maps->output + block * maps->out_block + row * maps->out_row + lane;
        run.partner = job->partner == NULL
                          ? value
                          : job->partner + block * job->partner_block + row * job->partner_row + lane;
        FUNCTIONS[job->function](&run);
      }
    }
  }
}
#undef V
#undef W
