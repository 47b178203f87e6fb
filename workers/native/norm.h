/* RMSNorm without its gain (which is multiplied into the weights after it), LayerNorm, rotations,
 * softmax, the moves between panels, token-major tables and strips, and gradients of weights. */
#ifndef GROKTIME_NORM_H
#define GROKTIME_NORM_H

#include "network.h"

#define ROW(base, row, v) (*(vm *)((base) + (row) * LANES + (v) * VL))
#define CROW(base, row, v) load((base) + (row) * LANES + (v) * VL)

INLINE vf sqrt_vf(vf x) {
    for (int i = 0; i < VL; i++) x[i] = sqrtf(x[i]);
    return x;
}

/* n = x r with r = 1 / sqrt(mean(x^2) + eps). */
static void rms_forward(int rows, const float *x, float *n, float *r, int panels) {
    const long stride = panel_stride(rows);
    for (int p = 0; p < panels; p++, x += stride, n += stride, r += LANES)
        for (int v = 0; v < NV; v++) {
            vf sum = (vf){0};
            for (int f = 0; f < rows; f++) sum += CROW(x, f, v) * CROW(x, f, v);
            const vf scale = 1.0f / sqrt_vf(sum * (1.0f / (float)rows) + NORM_EPS);
            ROW(r, 0, v) = scale;
            for (int f = 0; f < rows; f++) ROW(n, f, v) = CROW(x, f, v) * scale;
        }
}

/* dx (+)= r (dn - n mean(dn n)). */
static void rms_backward(int rows, const float *dn, const float *n, const float *r, float *dx,
                         int panels, int accumulate) {
    const long stride = panel_stride(rows);
    for (int p = 0; p < panels; p++, dn += stride, n += stride, dx += stride, r += LANES)
        for (int v = 0; v < NV; v++) {
            vf mean = (vf){0};
            for (int f = 0; f < rows; f++) mean += CROW(dn, f, v) * CROW(n, f, v);
            mean *= 1.0f / (float)rows;
            const vf scale = CROW(r, 0, v);
            for (int f = 0; f < rows; f++) {
                vf value = scale * (CROW(dn, f, v) - CROW(n, f, v) * mean);
                if (accumulate) value += CROW(dx, f, v);
                ROW(dx, f, v) = value;
            }
        }
}

/* u = (x - mean) r with r = 1 / sqrt(variance + eps), and n = gain u + bias. */
static void layer_forward(int rows, const float *gain, const float *bias, const float *x, float *n,
                          float *u, float *r, int panels) {
    const long stride = panel_stride(rows);
    const float share = 1.0f / (float)rows;
    for (int p = 0; p < panels; p++, x += stride, n += stride, u += stride, r += LANES)
        for (int v = 0; v < NV; v++) {
            vf mean = (vf){0}, sum = (vf){0};
            for (int f = 0; f < rows; f++) mean += CROW(x, f, v);
            mean *= share;
            for (int f = 0; f < rows; f++)
                sum += (CROW(x, f, v) - mean) * (CROW(x, f, v) - mean);
            const vf scale = 1.0f / sqrt_vf(sum * share + NORM_EPS);
            ROW(r, 0, v) = scale;
            for (int f = 0; f < rows; f++) {
                const vf unit = (CROW(x, f, v) - mean) * scale;
                ROW(u, f, v) = unit;
                ROW(n, f, v) = unit * gain[f] + bias[f];
            }
        }
}

/* With du = gain dn: dx (+)= r (du - mean(du) - u mean(du u)); adds to dgain and dbias. */
static void layer_backward(int rows, const float *gain, const float *dn, const float *u,
                           const float *r, float *dgain, float *dbias, float *dx, int panels,
                           int accumulate) {
    const long stride = panel_stride(rows);
    const float share = 1.0f / (float)rows;
    for (int f = 0; f < rows; f++) {
        vf along = (vf){0}, sum = (vf){0};
        for (long at = 0; at < stride * panels; at += stride)
            for (int v = 0; v < NV; v++) {
                along += CROW(dn + at, f, v) * CROW(u + at, f, v);
                sum += CROW(dn + at, f, v);
            }
        for (int lane = 0; lane < VL; lane++) dgain[f] += along[lane], dbias[f] += sum[lane];
    }
    for (int p = 0; p < panels; p++, dn += stride, u += stride, dx += stride, r += LANES)
        for (int v = 0; v < NV; v++) {
            vf mean = (vf){0}, along = (vf){0};
            for (int f = 0; f < rows; f++) {
                const vf du = CROW(dn, f, v) * gain[f];
                mean += du;
                along += du * CROW(u, f, v);
            }
            mean *= share, along *= share;
            const vf scale = CROW(r, 0, v);
            for (int f = 0; f < rows; f++) {
                vf value = scale * (CROW(dn, f, v) * gain[f] - mean - CROW(u, f, v) * along);
                if (accumulate) value += CROW(dx, f, v);
                ROW(dx, f, v) = value;
            }
        }
}

/* The network's norm whose gain is parameter `at`: what the weights after it see goes to n. */
static void norm_forward(const Network *net, long at, const float *x, float *n, float *u, float *r,
                         int panels) {
    const float *gain = net->run->weights + at;
    if (net->run->layer_norm)
        layer_forward(net->d, gain, gain + net->d, x, n, u, r, panels);
    else
        rms_forward(net->d, x, n, r, panels);
}

static void norm_backward(const Network *net, long at, const float *dn, const float *n,
                          const float *u, const float *r, float *dx, int panels, int accumulate) {
    if (net->run->layer_norm)
        layer_backward(net->d, net->run->weights + at, dn, u, r, net->grad + at,
                       net->grad + at + net->d, dx, panels, accumulate);
    else
        rms_backward(net->d, dn, n, r, dx, panels, accumulate);
}

/* Rotates the pairs (2m, 2m+1) of every column by offset positions (sign -1: back). */
static void rotate(const Network *net, const float *x, float *y, int offset, float sign,
                   int panels) {
    const int half = net->d / 2;
    const long stride = panel_stride(net->d);
    const float *c = net->rope_cos + offset * half, *s = net->rope_sin + offset * half;
    for (int p = 0; p < panels; p++, x += stride, y += stride)
        for (int m = 0; m < half; m++)
            for (int v = 0; v < NV; v++) {
                const vf a = CROW(x, 2 * m, v), b = CROW(x, 2 * m + 1, v);
                ROW(y, 2 * m, v) = a * c[m] - b * (sign * s[m]);
                ROW(y, 2 * m + 1, v) = a * (sign * s[m]) + b * c[m];
            }
}

/* The same for the rows of a token-major table; adds to y if asked. */
static void rotate_table(const Network *net, const float *x, long step, float *y, int offset,
                         float sign, int accumulate) {
    const int half = net->d / 2;
    const float *c = net->rope_cos + offset * half, *s = net->rope_sin + offset * half;
    for (long t = 0; t < net->U; t++)
        for (int m = 0; m < half; m++) {
            const long at = t * net->d + 2 * m;
            const float a = x[t * step + 2 * m], b = x[t * step + 2 * m + 1];
            const float first = a * c[m] - b * (sign * s[m]);
            const float second = a * (sign * s[m]) + b * c[m];
            y[at] = accumulate ? y[at] + first : first;
            y[at + 1] = accumulate ? y[at + 1] + second : second;
        }
}

INLINE void transpose4(v4 *a) {
    const v4 t0 = SHUFFLE4(a[0], a[1], 0, 4, 1, 5), t1 = SHUFFLE4(a[0], a[1], 2, 6, 3, 7);
    const v4 t2 = SHUFFLE4(a[2], a[3], 0, 4, 1, 5), t3 = SHUFFLE4(a[2], a[3], 2, 6, 3, 7);
    a[0] = SHUFFLE4(t0, t2, 0, 1, 4, 5);
    a[1] = SHUFFLE4(t0, t2, 2, 3, 6, 7);
    a[2] = SHUFFLE4(t1, t3, 0, 1, 4, 5);
    a[3] = SHUFFLE4(t1, t3, 2, 3, 6, 7);
}

/* Four rows of `count` numbers to four columns of a panel. */
INLINE void rows_to_columns(int count, const float *const *row, float *panel) {
    int f = 0;
    for (; f + 4 <= count; f += 4) {
        v4 block[4];
        for (int j = 0; j < 4; j++) memcpy(&block[j], row[j] + f, sizeof(v4));
        transpose4(block);
        for (int j = 0; j < 4; j++) memcpy(panel + (f + j) * LANES, &block[j], sizeof(v4));
    }
    for (; f < count; f++)
        for (int j = 0; j < 4; j++) panel[f * LANES + j] = row[j][f];
}

/* And back; where `add`, to what the rows hold, one after another, since rows may be the same. */
INLINE void columns_to_rows(int count, const float *panel, float *const *row, const int add) {
    int f = 0;
    for (; f + 4 <= count; f += 4) {
        v4 block[4], sum;
        for (int j = 0; j < 4; j++) memcpy(&block[j], panel + (f + j) * LANES, sizeof(v4));
        transpose4(block);
        for (int j = 0; j < 4; j++) {
            if (add) memcpy(&sum, row[j] + f, sizeof(v4));
            sum = add ? sum + block[j] : block[j];
            memcpy(row[j] + f, &sum, sizeof(v4));
        }
    }
    for (; f < count; f++)
        for (int j = 0; j < 4; j++)
            row[j][f] = add ? row[j][f] + panel[f * LANES + j] : panel[f * LANES + j];
}

/* One panel whose columns are the table's rows of the given 16 tokens. */
static void gather(int rows, const float *table, const int32_t *token, float *panel) {
    for (int lane = 0; lane < LANES; lane += 4) {
        const float *row[4];
        for (int j = 0; j < 4; j++) row[j] = table + (long)token[lane + j] * rows;
        rows_to_columns(rows, row, panel + lane);
    }
}

/* Adds each column of a panel to its token's row of the table. */
static void scatter_add(int rows, const float *panel, const int32_t *token, float *table) {
    for (int lane = 0; lane < LANES; lane += 4) {
        float *row[4];
        for (int j = 0; j < 4; j++) row[j] = table + (long)token[lane + j] * rows;
        columns_to_rows(rows, panel + lane, row, 1);
    }
}

/* Panels turned for accumulate_outer(): strips of features, in each the columns as rows. What lies
 * in the padding reaches only the padding of a gradient. Valid until the next call. */
static const float *to_strips(const Network *net, int rows, const float *panel, int panels) {
    float *to = net->strips;
    for (int first = 0; first < rows; first += STRIP) {
        const int count = rows - first < STRIP ? rows - first : STRIP;
        for (int c = 0; c < panels * LANES; c += 4, to += 4 * STRIP) {
            float *row[4] = {to, to + STRIP, to + 2 * STRIP, to + 3 * STRIP};
            columns_to_rows(count, panel + column_at(rows, c) + first * LANES, row, 0);
        }
    }
    return net->strips;
}

/* The gradient of a weight from that of its output dy and its input x, both in panels. */
static void add_gradient(const Network *net, const Linear *linear, const float *dy, const float *x,
                         int panels) {
    if (linear->dw_transposed)
        accumulate_outer(linear->columns, linear->rows, x,
                         to_strips(net, linear->rows, dy, panels), panels, linear->dw);
    else
        accumulate_outer(linear->rows, linear->columns, dy,
                         to_strips(net, linear->columns, x, panels), panels, linear->dw);
}

/* Token-major [columns][rows] to panels; columns beyond are zero. */
static void to_panels(int rows, int columns, const float *table, float *panel) {
    for (int c = 0; c < panels_of(columns) * LANES; c += 4) {
        const float *row[4];
        for (int j = 0; j < 4; j++) row[j] = table + (long)(c + j) * rows;
        if (c + 4 <= columns) {
            rows_to_columns(rows, row, panel + column_at(rows, c));
            continue;
        }
        for (int j = 0; j < 4; j++)
            for (int f = 0; f < rows; f++)
                panel[column_at(rows, c + j) + f * LANES] =
                    c + j < columns ? row[j][f] : 0.0f;
    }
}

static void from_panels(int rows, int columns, const float *panel, float *table) {
    for (int c = 0; c < columns; c += 4) {
        float *row[4];
        for (int j = 0; j < 4; j++) row[j] = table + (long)(c + j) * rows;
        if (c + 4 <= columns) {
            columns_to_rows(rows, panel + column_at(rows, c), row, 0);
            continue;
        }
        for (int j = 0; c + j < columns; j++)
            for (int f = 0; f < rows; f++)
                row[j][f] = panel[column_at(rows, c + j) + f * LANES];
    }
}

/* Softmax over the first `count` of four scores, lane by lane. */
INLINE void softmax_lanes(vf *score, int count) {
    vf top = score[0], sum = (vf){0};
    for (int j = 1; j < count; j++) top = max_vf(score[j], top);
    for (int j = 0; j < TOKENS; j++) score[j] = j < count ? score[j] - top : splat(0.0f);
    exp_many(score, TOKENS);
    for (int j = 0; j < count; j++) sum += score[j];
    const vf scale = 1.0f / sum;
    for (int j = 0; j < count; j++) score[j] *= scale;
}

/* Turns the gradients of softmax weights into those of the scores: w (dw - sum w dw). */
INLINE void softmax_backward_lanes(const vf *weight, vf *gradient, int count) {
    vf mean = (vf){0};
    for (int j = 0; j < count; j++) mean += weight[j] * gradient[j];
    for (int j = 0; j < count; j++) gradient[j] = weight[j] * (gradient[j] - mean);
}

INLINE vf dot_rows(int rows, const float *a, const float *b, int v) {
    vf sum = (vf){0};
    for (int f = 0; f < rows; f++) sum += CROW(a, f, v) * CROW(b, f, v);
    return sum;
}

#endif
