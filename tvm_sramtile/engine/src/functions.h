/* Functions of vectors without a maths library, part of the template map_kernels.h. A NaN yields a NaN. */

ALWAYS_INLINE words bits_of(vec value) {
  words bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

ALWAYS_INLINE vec of_bits(words bits) {
  vec value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

ALWAYS_INLINE vec absolute(vec x) { return of_bits(bits_of(x) & 0x7FFFFFFFu); }

ALWAYS_INLINE vec square_root(vec x) {
#if defined(VECTOR_SQRT)
  return VECTOR_SQRT(x);
#elif VL == 1
  return __builtin_sqrtf(x);
#else
  for (int lane = 0; lane < VL; lane++) x[lane] = __builtin_sqrtf(x[lane]);
  return x;
#endif
}

/* 2 to the power of n, from -126 to 127. */
ALWAYS_INLINE vec power_of_two(words n) { return of_bits((n + 127u) << 23); }

/* e to the power of x, to about 1e-7 of its value: x = n*ln(2) + r, and a polynomial (of Cephes) for e to the r.
 * Beyond the limits the result is 0 or infinity anyway; between -87 and -104 it is subnormal. */
ALWAYS_INLINE vec exponential(vec x) {
  const vec low = filled(-104.0f);
  const vec high = filled(89.0f);
  const vec above = choose(x > low, x, low); /* and a NaN becomes a number, for the conversion below */
  const vec held = choose(above < high, above, high);
  const vec rounding = filled(12582912.0f); /* 1.5 * 2^23: what is added to it is rounded to a whole number */
  const vec shifted = held * 1.44269504088896341f + rounding;
  const vec turns = shifted - rounding;
  const vec r = held - turns * 0.693359375f - turns * -2.12194440e-4f;
  vec sum = filled(1.9875691500e-4f);
  sum = sum * r + 1.3981999507e-3f;
  sum = sum * r + 8.3334519073e-3f;
  sum = sum * r + 4.1665795894e-2f;
  sum = sum * r + 1.6666665459e-1f;
  sum = sum * r + 5.0000001201e-1f;
  sum = sum * (r * r) + r + 1.0f;
  /* In two steps, for n reaches beyond the exponents; a halved sign bit must stay one. */
  const words n = bits_of(shifted) - bits_of(rounding);
  const words half = (n + 256u) / 2u - 128u;
  const vec result = sum * power_of_two(half) * power_of_two(n - half);
  return choose(x != x, x, result);
}

/* A polynomial (of Cephes) for small x, else from the exponential. */
ALWAYS_INLINE vec hyperbolic_tangent(vec x) {
  const vec size = absolute(x);
  const vec square = x * x;
  vec sum = filled(-5.70498872745e-3f);
  sum = sum * square + 2.06390887954e-2f;
  sum = sum * square - 5.37397155531e-2f;
  sum = sum * square + 1.33314422036e-1f;
  sum = sum * square - 3.33332819422e-1f;
  const vec small = sum * square * x + x;
  const vec positive = 1.0f - 2.0f / (exponential(size + size) + 1.0f);
  const vec large = choose(x < filled(0.0f), -positive, positive);
  return choose(size < filled(0.625f), small, large);
}
