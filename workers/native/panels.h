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

typedef float vf __attribute__((vector_size(VL * 4)));
typedef vf vm __attribute__((may_alias)); /* a vector in an array of floats */
typedef int32_t vi __attribute__((vector_size(VL * 4)));
typedef uint32_t vu __attribute__((vector_size(VL * 4)));
typedef float v4 __attribute__((vector_size(16)));
typedef int32_t v4i __attribute__((vector_size(16)));

#if defined(__clang__)
#define SHUFFLE4(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define SHUFFLE4(a, b, i, j, k, l) __builtin_shuffle(a, b, (v4i){i, j, k, l})
#endif

#define INLINE static inline __attribute__((always_inline))

/* An odd number of cache lines, so that equal rows of different panels fall into different sets. */
INLINE long panel_stride(long rows) { return (rows | 1) * LANES; }

/* Where the first row of a column is. */
INLINE long column_at(long rows, int column) {
    return column / LANES * panel_stride(rows) + column % LANES;
}

INLINE int panels_of(int columns) { return (columns + LANES - 1) / LANES; }

INLINE vf load(const float *p) { return *(const vm *)p; }

INLINE vf splat(float value) { return value - (vf){0}; }

INLINE vf select_vf(vi mask, vf yes, vf no) {
    return (vf)((mask & (vi)yes) | (~mask & (vi)no));
}

INLINE vf max_vf(vf a, vf b) { return select_vf(a > b, a, b); }

/* e^x of several vectors, to about 1 ulp; outside [-87, 88] it saturates, NaN stays NaN. Step by
 * step for all of them, since one after the other would be one long chain of waiting. */
INLINE void exp_many(vf *x, const int count) {
    const vf magic = splat(12582912.0f); /* 1.5 * 2^23: adding it rounds to the nearest integer */
    vf r[4], poly[4], power[4];
    for (int i = 0; i < count; i++) {
        r[i] = select_vf(x[i] < -87.0f, splat(-87.0f), x[i]);
        r[i] = select_vf(r[i] > 88.0f, splat(88.0f), r[i]);
    }
    for (int i = 0; i < count; i++) {
        const vf shifted = r[i] * 1.44269504088896341f + magic;
        const vf whole = shifted - magic;
        power[i] = (vf)(((vi)shifted - (vi)magic + 127) << 23);
        r[i] = r[i] - whole * 0.693359375f;
        r[i] = r[i] + whole * 2.12194440e-4f;
    }
    for (int i = 0; i < count; i++) poly[i] = 1.9875691500e-4f * r[i] + 1.3981999507e-3f;
    for (int i = 0; i < count; i++) poly[i] = poly[i] * r[i] + 8.3334519073e-3f;
    for (int i = 0; i < count; i++) poly[i] = poly[i] * r[i] + 4.1665795894e-2f;
    for (int i = 0; i < count; i++) poly[i] = poly[i] * r[i] + 1.6666665459e-1f;
    for (int i = 0; i < count; i++) poly[i] = poly[i] * r[i] + 5.0000001201e-1f;
    for (int i = 0; i < count; i++) poly[i] = poly[i] * (r[i] * r[i]) + r[i] + 1.0f;
    for (int i = 0; i < count; i++) x[i] = poly[i] * power[i];
}

#endif
