/* The layout of all activations, and the vector type.
 *
 * A matrix of `rows` features by many columns (a column is one example, or one vocabulary token)
 * is stored in panels of 16 columns: element (row, column) is at
 *     (column / 16) * panel_stride(rows) + row * 16 + column % 16.
 * So a row of a panel is one cache line, vectors run along examples, nothing depends on the width
 * being a multiple of anything, and a panel is already in the order a matrix product reads it.
 * Only the compiler's vector types are used: the same source serves AVX2, AVX-512, SSE and NEON.
 */
#ifndef GROKTIME_PANELS_H
#define GROKTIME_PANELS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES 16 /* columns of a panel */

#if defined(__AVX512F__)
#define VL 16
#elif defined(__AVX__)
#define VL 8
#else
#define VL 4
#endif
#define NV (LANES / VL) /* vectors of a panel row */

typedef float vf __attribute__((vector_size(VL * 4), may_alias));
typedef int32_t vi __attribute__((vector_size(VL * 4), may_alias));
typedef uint32_t vu __attribute__((vector_size(VL * 4), may_alias));
typedef float v4 __attribute__((vector_size(16), may_alias));
typedef int32_t v4i __attribute__((vector_size(16)));

#if defined(__clang__)
#define SHUFFLE4(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define SHUFFLE4(a, b, i, j, k, l) __builtin_shuffle(a, b, (v4i){i, j, k, l})
#endif

#define INLINE static inline __attribute__((always_inline))

/* An odd number of cache lines, so that equal rows of different panels fall into different sets. */
INLINE long panel_stride(long rows) { return (rows | 1) * LANES; }

INLINE int panels_of(int columns) { return (columns + LANES - 1) / LANES; }

INLINE vf splat(float value) { return value - (vf){0}; }

INLINE vf select_vf(vi mask, vf yes, vf no) {
    return (vf)((mask & (vi)yes) | (~mask & (vi)no));
}

INLINE vf max_vf(vf a, vf b) { return select_vf(a > b, a, b); }

INLINE vf load4x(const float *p) {
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* e^x to about 1 ulp; outside [-87, 88] it saturates. NaN stays NaN. */
INLINE vf exp_vf(vf x) {
    const vf magic = splat(12582912.0f); /* 1.5 * 2^23: adding it rounds to the nearest integer */
    x = select_vf(x < -87.0f, splat(-87.0f), x);
    x = select_vf(x > 88.0f, splat(88.0f), x);
    vf shifted = x * 1.44269504088896341f + magic;
    vi n = (vi)shifted - (vi)magic;
    vf whole = shifted - magic;
    vf r = x - whole * 0.693359375f;
    r = r + whole * 2.12194440e-4f;
    vf poly = splat(1.9875691500e-4f);
    poly = poly * r + 1.3981999507e-3f;
    poly = poly * r + 8.3334519073e-3f;
    poly = poly * r + 4.1665795894e-2f;
    poly = poly * r + 1.6666665459e-1f;
    poly = poly * r + 5.0000001201e-1f;
    poly = poly * (r * r) + r + 1.0f;
    return poly * (vf)((n + 127) << 23);
}

#endif
