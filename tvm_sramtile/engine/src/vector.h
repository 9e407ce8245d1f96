/* Vectors of VL floats, part of the templates: whoever includes it has defined VL and may have defined, as the
 * processor's own, VECTOR_MAX and VECTOR_MIN (whose second operand is the result when one is a NaN) and VECTOR_SQRT. */
#include <stdint.h>
#include <string.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define NEVER_INLINE static __attribute__((noinline))

#if VL == 1
typedef float vec;
typedef int32_t mask; /* a condition: 0 or 1 */
typedef uint32_t words;
typedef float sram_vec __attribute__((may_alias));
#else
typedef float vec __attribute__((vector_size(VL * 4)));
typedef int32_t mask __attribute__((vector_size(VL * 4))); /* of each lane: 0 or all ones */
typedef uint32_t words __attribute__((vector_size(VL * 4)));
typedef float sram_vec __attribute__((vector_size(VL * 4), aligned(4), may_alias)); /* as it lies in SRAM */
#endif

ALWAYS_INLINE vec load(const float* at) { return *(const sram_vec*)at; }

ALWAYS_INLINE void store(float* at, vec value) { *(sram_vec*)at = value; }

/* All lanes of one value. */
ALWAYS_INLINE vec filled(float value) {
  const vec zeros = {0};
  return value - zeros; /* a sum would lose the sign of -0 */
}

/* Lane by lane: `one` where the condition holds, else `other`. */
ALWAYS_INLINE vec choose(mask condition, vec one, vec other) {
#if VL == 1
  return condition ? one : other;
#else
  return (vec)(((mask)one & condition) | ((mask)other & ~condition));
#endif
}

/* Limits that a NaN passes unchanged. */
ALWAYS_INLINE vec limited(vec value, vec low, vec high) {
#if defined(VECTOR_MAX)
  return VECTOR_MIN(high, VECTOR_MAX(low, value));
#else
  const vec at_least = choose(value < low, low, value);
  return choose(at_least > high, high, at_least);
#endif
}

/* The greater and the lesser; a NaN in either is the result. */
ALWAYS_INLINE vec maximum(vec a, vec b) { return choose((a > b) | (a != a), a, b); }

ALWAYS_INLINE vec minimum(vec a, vec b) { return choose((a < b) | (a != a), a, b); }
