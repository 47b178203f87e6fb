/* Matrix products on panels. The weights are small and stay in cache, the panels are already in
 * the order of use, so nothing is packed; a tile of the result stays in registers.
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

/* rows x 16 results: y[i] (+)= sum_k w[i * row_step + k * inner_step] * x[k]. */
INLINE void product_tile(const int rows, int inner, const float *restrict w, long row_step,
                         long inner_step, const float *restrict x, float *restrict y,
                         int accumulate) {
    vf sum[TILE_ROWS][NV];
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < NV; v++)
            sum[i][v] = accumulate ? *(const vf *)(y + i * LANES + v * VL) : (vf){0};
    for (int k = 0; k < inner; k++) {
        for (int i = 0; i < rows; i++) {
            const vf weight = splat(w[i * row_step + k * inner_step]);
            for (int v = 0; v < NV; v++)
                sum[i][v] += weight * *(const vf *)(x + k * LANES + v * VL);
        }
    }
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < NV; v++)
            *(vf *)(y + i * LANES + v * VL) = sum[i][v];
}

#define PRODUCT_CASE(n)                                                                       \
    case n:                                                                                   \
        product_tile(n, inner, w, row_step, inner_step, x, y, accumulate);                    \
        break;

INLINE void product_rows(int rows, int inner, const float *w, long row_step, long inner_step,
                         const float *x, float *y, int accumulate) {
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

/* Weights of this many floats are used for all panels before the next ones: half of an L1. */
#define WEIGHT_BLOCK 4096

INLINE void product_panels(int rows, int inner, const float *w, long row_step, long inner_step,
                           const float *x, float *y, int panels, int accumulate) {
    const long x_stride = panel_stride(inner), y_stride = panel_stride(rows);
    const int tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
    int block = WEIGHT_BLOCK / (inner * TILE_ROWS);
    if (block < 1) block = 1;
    for (int first = 0; first < tiles; first += block) {
        const int last = first + block < tiles ? first + block : tiles;
        for (int p = 0; p < panels; p++)
            for (int tile = first; tile < last; tile++) {
                /* Rows are dealt evenly: 20 rows are 5 + 5 + 5 + 5, not 6 + 6 + 6 + 2. */
                const int from = (int)((long)rows * tile / tiles);
                const int to = (int)((long)rows * (tile + 1) / tiles);
                product_rows(to - from, inner, w + from * row_step, row_step, inner_step,
                             x + p * x_stride, y + p * y_stride + from * LANES, accumulate);
            }
    }
}

/* Y = W X (or += ): W is rows x inner, row-major with leading dimension `step`. */
static void multiply(int rows, int inner, const float *w, long step, const float *x, float *y,
                     int panels, int accumulate) {
    product_panels(rows, inner, w, step, 1, x, y, panels, accumulate);
}

/* Y = W^T X (or += ): W is inner x rows, row-major with leading dimension `step`. */
static void multiply_transposed(int rows, int inner, const float *w, long step, const float *x,
                                float *y, int panels, int accumulate) {
    product_panels(rows, inner, w, 1, step, x, y, panels, accumulate);
}

/* The four sums over lanes of four vectors, as one vector. */
INLINE v4 sums4(const vf *s) {
    v4 q[4];
    for (int j = 0; j < 4; j++) {
        v4 parts[VL / 4];
        memcpy(parts, &s[j], sizeof parts);
        v4 total = parts[0];
        for (int h = 1; h < VL / 4; h++) total += parts[h];
        q[j] = total;
    }
    const v4 a = SHUFFLE4(q[0], q[1], 0, 4, 1, 5) + SHUFFLE4(q[0], q[1], 2, 6, 3, 7);
    const v4 b = SHUFFLE4(q[2], q[3], 0, 4, 1, 5) + SHUFFLE4(q[2], q[3], 2, 6, 3, 7);
    return SHUFFLE4(a, b, 0, 1, 4, 5) + SHUFFLE4(a, b, 2, 3, 6, 7);
}

#define OUTER_ROWS 3

/* grad[i][j] += sum over all columns of a[i] * b[j], for rows x columns (columns <= 4). */
INLINE void outer_tile(const int rows, const int columns, const float *a, long a_stride,
                       const float *b, long b_stride, int panels, float *grad, long step) {
    vf sum[OUTER_ROWS][4];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < 4; j++) sum[i][j] = (vf){0};
    for (int p = 0; p < panels; p++, a += a_stride, b += b_stride)
        for (int v = 0; v < NV; v++)
            for (int i = 0; i < rows; i++) {
                const vf left = *(const vf *)(a + i * LANES + v * VL);
                for (int j = 0; j < columns; j++)
                    sum[i][j] += left * *(const vf *)(b + j * LANES + v * VL);
            }
    for (int i = 0; i < rows; i++) {
        const v4 total = sums4(sum[i]);
        float part[4];
        memcpy(part, &total, sizeof part);
        for (int j = 0; j < columns; j++) grad[i * step + j] += part[j];
    }
}

/* G += A B^T over all columns: the gradient of a weight, rows x columns with leading dimension
 * `step`, from the gradient A of what it produced and its input B. */
static void accumulate_outer(int rows, int columns, const float *a, const float *b, int panels,
                             float *grad, long step) {
    const long a_stride = panel_stride(rows), b_stride = panel_stride(columns);
    for (int i = 0; i < rows; i += OUTER_ROWS)
        for (int j = 0; j < columns; j += 4) {
            const int height = rows - i, width = columns - j;
            const float *ai = a + i * LANES, *bj = b + j * LANES;
            float *g = grad + i * step + j;
            if (height >= 3 && width >= 4)
                outer_tile(3, 4, ai, a_stride, bj, b_stride, panels, g, step);
            else if (width >= 4)
                height == 2 ? outer_tile(2, 4, ai, a_stride, bj, b_stride, panels, g, step)
                            : outer_tile(1, 4, ai, a_stride, bj, b_stride, panels, g, step);
            else
                for (int r = 0; r < height && r < OUTER_ROWS; r++)
                    for (int c = 0; c < width; c++)
                        outer_tile(1, 1, ai + r * LANES, a_stride, bj + c * LANES, b_stride,
                                   panels, g + r * step + c, step);
        }
}

#endif
