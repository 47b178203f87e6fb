/* Matrix products on panels, which are already in the order of use; weights are put into tiles once
 * a step. A tile of the result stays in registers.
 */
#ifndef GROKTIME_GEMM_H
#define GROKTIME_GEMM_H

#include "panels.h"

#if defined(__AVX512F__)
#define TILE_ROWS 12 /* 12 accumulators of one vector */
#elif defined(__AVX__) || defined(__aarch64__)
#define TILE_ROWS 6 /* 6 x 2 vectors of 8, or 6 x 4 vectors of 4 with 32 registers */
#else
#define TILE_ROWS 3
#endif

/* Rows are dealt evenly to tiles: 20 rows in tiles of at most 6 are 5 + 5 + 5 + 5, not 6 + 6 + 6 +
 * 2. The first `extra` tiles have a row more. */
typedef struct {
    int tiles, height, extra;
} Deal;

INLINE Deal deal(int rows, int most) {
    const int tiles = (rows + most - 1) / most, height = rows / tiles;
    return (Deal){tiles, height, rows - tiles * height};
}

INLINE long tile_start(Deal dealt, int tile) {
    return (long)tile * dealt.height + (tile < dealt.extra ? tile : dealt.extra);
}

#define STRIP (2 * VL) /* features of a strip */

INLINE int padded(int columns) { return (columns + VL - 1) / VL * VL; }

/* A weight of one step, in tiles, its transpose, in tiles too, and its gradient, whose rows are
 * padded to whole vectors. Where `dw_transposed`, the gradient is that of the transpose. */
typedef struct {
    int rows, columns, dw_transposed;
    float *w, *t, *dw;
} Linear;

/* A matrix in the order in which multiply() reads it: tile after tile, each column by column.
 * Element (i, k) is at from[i * row_step + k * step]. */
static void to_tiles(int rows, int inner, const float *restrict from, long row_step, long step,
                     float *restrict to) {
    const Deal dealt = deal(rows, TILE_ROWS);
    for (int tile = 0; tile < dealt.tiles; tile++) {
        const int height = dealt.height + (tile < dealt.extra);
        const float *first = from + tile_start(dealt, tile) * row_step;
        for (int k = 0; k < inner; k++, to += height)
            for (int i = 0; i < height; i++) to[i] = first[i * row_step + k * step];
    }
}

/* rows x 16 results: y[i] (+)= sum_k w[k][i] * x[k]. */
INLINE void product_tile(const int rows, int inner, const float *restrict w,
                         const float *restrict x, float *restrict y, int accumulate) {
    vf sum[TILE_ROWS][NV];
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < NV; v++)
            sum[i][v] = accumulate ? load(y + i * LANES + v * VL) : (vf){0};
    for (int k = 0; k < inner; k++)
        for (int i = 0; i < rows; i++) {
            const vf weight = splat(w[k * rows + i]);
            for (int v = 0; v < NV; v++)
                sum[i][v] += weight * load(x + k * LANES + v * VL);
        }
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < NV; v++)
            *(vm *)(y + i * LANES + v * VL) = sum[i][v];
}

#define PRODUCT_CASE(n)                                             \
    case n:                                                         \
        product_tile(n, inner, w, x, y, accumulate);                \
        break;

INLINE void product_rows(int rows, int inner, const float *w, const float *x, float *y,
                         int accumulate) {
    switch (rows) {
        PRODUCT_CASE(1)
        PRODUCT_CASE(2)
        PRODUCT_CASE(3)
#if TILE_ROWS >= 6
        PRODUCT_CASE(4)
        PRODUCT_CASE(5)
        PRODUCT_CASE(6)
#endif
#if TILE_ROWS >= 12
        PRODUCT_CASE(7)
        PRODUCT_CASE(8)
        PRODUCT_CASE(9)
        PRODUCT_CASE(10)
        PRODUCT_CASE(11)
        PRODUCT_CASE(12)
#endif
    }
}

#define INNER_BLOCK 256   /* rows of a panel that are read again and again: half of an L1 */
#define WEIGHT_BLOCK 4096 /* weights used for all panels before the next ones: the other half */

/* Y = W X (or += ): W is rows x inner, in tiles. */
static void multiply(int rows, int inner, const float *w, const float *x, float *y, int panels,
                     int accumulate) {
    const long x_stride = panel_stride(inner), y_stride = panel_stride(rows);
    const Deal dealt = deal(rows, TILE_ROWS);
    for (int k = 0; k < inner; k += INNER_BLOCK) {
        const int depth = inner - k < INNER_BLOCK ? inner - k : INNER_BLOCK;
        int block = WEIGHT_BLOCK / (depth * TILE_ROWS);
        if (block < 1) block = 1;
        for (int first = 0; first < dealt.tiles; first += block) {
            const int last = first + block < dealt.tiles ? first + block : dealt.tiles;
            for (int p = 0; p < panels; p++)
                for (int tile = first; tile < last; tile++) {
                    const long from = tile_start(dealt, tile);
                    const int height = dealt.height + (tile < dealt.extra);
                    product_rows(height, depth, w + from * inner + (long)k * height,
                                 x + p * x_stride + k * LANES, y + p * y_stride + from * LANES,
                                 accumulate || k > 0);
                }
        }
    }
}

/* y = W x. */
static void apply(const Linear *linear, const float *x, float *y, int panels, int accumulate) {
    multiply(linear->rows, linear->columns, linear->w, x, y, panels, accumulate);
}

/* x = W^T y. */
static void apply_transposed(const Linear *linear, const float *y, float *x, int panels,
                             int accumulate) {
    multiply(linear->columns, linear->rows, linear->t, y, x, panels, accumulate);
}

#if VL == 16
#define HALVES(columns) (((columns) + VL / 2 - 1) / (VL / 2))
#else
#define HALVES(columns) (((columns) + VL - 1) / VL * 2) /* narrow vectors are used whole */
#endif
typedef float vh __attribute__((vector_size(VL * 2), may_alias)); /* half a vector */

/* grad[i][..] += sum over all columns e of a[i][e] * b[e][..], for so many halves of a vector. */
INLINE void outer_tile(const int rows, const int halves, const float *a, long a_stride,
                       const float *restrict b, int panels, float *restrict grad, long step) {
    const int vectors = halves / 2, tail = halves % 2;
    vf sum[8][2];
    vh last[8];
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < vectors; j++) sum[i][j] = load(grad + i * step + j * VL);
        if (tail) last[i] = *(const vh *)(grad + i * step + vectors * VL);
    }
    for (int p = 0; p < panels; p++, a += a_stride)
        for (int lane = 0; lane < LANES; lane++, b += STRIP) {
            vf right[2];
            for (int j = 0; j < vectors; j++) right[j] = load(b + j * VL);
            for (int i = 0; i < rows; i++) {
                const float left = a[i * LANES + lane];
                for (int j = 0; j < vectors; j++) sum[i][j] += left * right[j];
                if (tail) last[i] += left * *(const vh *)(b + vectors * VL);
            }
        }
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < vectors; j++) *(vm *)(grad + i * step + j * VL) = sum[i][j];
        if (tail) *(vh *)(grad + i * step + vectors * VL) = last[i];
    }
}

#define OUTER_CASE(n, halves)                                                       \
    case n:                                                                         \
        outer_tile(n, halves, a + from * LANES, a_stride, b, panels,                \
                   grad + from * step + j, step);                                   \
        break;

#define OUTER_CASES_6(halves) \
    OUTER_CASE(1, halves)     \
    OUTER_CASE(2, halves)     \
    OUTER_CASE(3, halves)     \
    OUTER_CASE(4, halves)     \
    OUTER_CASE(5, halves)     \
    OUTER_CASE(6, halves)

#define OUTER_CASES_8(halves) \
    OUTER_CASES_6(halves)     \
    OUTER_CASE(7, halves)     \
    OUTER_CASE(8, halves)

/* G += A B^T: the gradient of a weight from that of its output, A in panels, and its input, B in
 * strips (see to_strips). Tiles of 6 rows and up to 2 vectors, or 8 and up to 1. */
static void accumulate_outer(int rows, int columns, const float *a, const float *b, int panels,
                             float *grad) {
    const long a_stride = panel_stride(rows), step = padded(columns);
    for (int j = 0; j < columns; j += STRIP, b += (long)panels * LANES * STRIP) {
        const int halves = columns - j < STRIP ? HALVES(columns - j) : 4;
        const Deal dealt = deal(rows, halves > 2 ? 6 : 8);
        for (int tile = 0; tile < dealt.tiles; tile++) {
            const long from = tile_start(dealt, tile);
            const int here = dealt.height + (tile < dealt.extra);
            if (halves == 4) switch (here) { OUTER_CASES_6(4) }
            if (halves == 2) switch (here) { OUTER_CASES_8(2) }
#if VL == 16
            if (halves == 3) switch (here) { OUTER_CASES_6(3) }
            if (halves == 1) switch (here) { OUTER_CASES_8(1) }
#endif
        }
    }
}

#endif
