/* The weights' side of a step: gains and weights multiplied together before, their gradients taken
 * apart after, and AdamW. */
#ifndef GROKTIME_OPTIMISER_H
#define GROKTIME_OPTIMISER_H

#include "norm.h"

/* A weight of the step from rows x columns numbers, row by row. */
static void set_weight(Linear *linear, const float *w) {
    to_tiles(linear->rows, linear->columns, w, linear->columns, 1, linear->w);
    to_tiles(linear->columns, linear->rows, w, 1, linear->columns, linear->t);
}

/* W diag(gain) * scale. */
static void fold(float *to, long rows, long columns, const float *w, const float *gain,
                 float scale) {
    for (long i = 0; i < rows; i++)
        for (long f = 0; f < columns; f++)
            to[i * columns + f] = w[i * columns + f] * (gain[f] * scale);
}

/* The same as a weight of the step; leaves it in net->flat too. */
static void fold_weight(Network *net, Linear *linear, const float *w, const float *gain,
                        float scale) {
    fold(net->flat, linear->rows, linear->columns, w, gain, scale);
    set_weight(linear, net->flat);
}

/* C = A B of d x d matrices: A in tiles, element (r, k) of B at b[r * b_row + k * b_step], of C at
 * c[r * c_row + k * c_step]. */
static void square_product(Network *net, const float *a, const float *b, long b_row, long b_step,
                           float *c, long c_row, long c_step) {
    const int d = net->d, panels = panels_of(d);
    float *right = net->square[0], *result = net->square[1];
    for (long r = 0; r < d; r++)
        for (int k = 0; k < d; k++)
            right[column_at(d, k) + r * LANES] = b[r * b_row + k * b_step];
    multiply(d, d, a, right, result, panels, 0);
    for (long r = 0; r < d; r++)
        for (int k = 0; k < d; k++)
            c[r * c_row + k * c_step] = result[column_at(d, k) + r * LANES];
}

/* Whether a layer works with Wk^T Wq. */
static int merges_qk(const Network *net, int l) {
    return l > 0 && l == net->L - 1 && !net->run->rope;
}

/* The gain at `at`, or one where a LayerNorm has multiplied with its own already. */
INLINE const float *folded_gain(const Network *net, long at) {
    return net->run->layer_norm ? net->ones : net->run->weights + at;
}

/* Where the gradient of a folded gain goes. */
INLINE float *folded_gain_gradient(Network *net, long at) {
    return net->run->layer_norm ? net->no_gain : net->grad + at;
}

/* Attention's weights, and products of them that examples meet as one matrix. */
static void fold_attention(Network *net, int l) {
    StepLayer *s = net->step + l;
    const LayerOffsets *at = net->at.layers + l;
    const float *w = net->run->weights, *gain = folded_gain(net, at->attn_norm);
    const long d = net->d;
    set_weight(&s->wo, w + at->wo);
    fold_weight(net, &s->wk, w + at->wk, gain, 1.0f);
    fold_weight(net, &s->wv, w + at->wv, gain, 1.0f);
    square_product(net, s->wo.w, net->flat, d, 1, net->flat, d, 1);
    set_weight(&s->vo, net->flat);
    fold_weight(net, &s->wq, w + at->wq, gain, 1.0f / sqrtf((float)d));
    if (!merges_qk(net, l)) return;
    square_product(net, s->wk.t, net->flat, d, 1, net->flat, d, 1);
    set_weight(&s->qk, net->flat);
}

/* The products' gradients, taken apart: dWo^T = Wv dVO^T, dWv = Wo^T dVO, dWk = Wq dQK^T,
 * dWq = Wk dQK. That of Wo is final, it has no gain. */
static void unfold_products(Network *net, int l) {
    StepLayer *s = net->step + l;
    const long d = net->d, step = padded(net->d);
    square_product(net, s->wv.w, s->vo.dw, 1, step, net->grad + net->at.layers[l].wo, 1, d);
    square_product(net, s->wo.t, s->vo.dw, step, 1, s->wv.dw, step, 1);
    if (!merges_qk(net, l)) return;
    square_product(net, s->wq.w, s->qk.dw, 1, step, s->wk.dw, step, 1);
    square_product(net, s->wk.w, s->qk.dw, step, 1, s->wq.dw, step, 1);
}

/* to[c][r] = from[r][c], where the rows of `from` are `step` apart. */
static void transpose(long rows, long columns, long step, const float *from, float *to) {
    for (long c = 0; c < columns; c++)
        for (long r = 0; r < rows; r++) to[c * rows + r] = from[r * step + c];
}

/* From the gradient of rows `from`.. of a step's weight to those of W and of the gain. */
static void unfold(const Linear *linear, int from, int rows, const float *w, const float *gain,
                   float scale, float *dw, float *dgain) {
    const long columns = linear->columns, step = padded(linear->columns);
    for (long i = 0; i < rows; i++)
        for (long f = 0; f < columns; f++) {
            const float gradient = linear->dw[(from + i) * step + f] * scale;
            dw[i * columns + f] = gradient * gain[f];
            dgain[f] += gradient * w[i * columns + f];
        }
}

static void fold_gains(Network *net) {
    const int d = net->d, F = net->F;
    const float *w = net->run->weights;
    for (int l = 0; l < net->L; l++) {
        const LayerOffsets *at = net->at.layers + l;
        StepLayer *step = net->step + l;
        fold_attention(net, l);
        const float *gain = folded_gain(net, at->ff_norm);
        fold(net->flat, F, d, w + at->w1, gain, 1.0f);
        if (net->run->gated) fold(net->flat + F * d, F, d, w + at->w3, gain, 1.0f);
        set_weight(&step->w13, net->flat);
        set_weight(&step->w2, w + at->w2);
    }
    fold_weight(net, &net->out, w + net->at.out, folded_gain(net, net->at.norm), 1.0f);
}

static long gradient_size(const Linear *linear) {
    return linear->dw_transposed ? (long)linear->columns * padded(linear->rows)
                                 : (long)linear->rows * padded(linear->columns);
}

static void zero_gradients(Network *net) {
    memset(net->grad, 0, (size_t)net->at.size * sizeof(float));
    for (int l = 0; l < net->L; l++) {
        StepLayer *s = net->step + l;
        Linear *all[] = {&s->wq, &s->wk, &s->qk, &s->vo, &s->w13, &s->w2};
        for (int i = 0; i < 6; i++)
            memset(all[i]->dw, 0, (size_t)gradient_size(all[i]) * sizeof(float));
    }
    memset(net->out.dw, 0, (size_t)gradient_size(&net->out) * sizeof(float));
}

static void unfold_gains(Network *net) {
    const int d = net->d, F = net->F;
    const float *w = net->run->weights;
    float *g = net->grad;
    const float scale = 1.0f / sqrtf((float)d);
    for (int l = 0; l < net->L; l++) {
        const LayerOffsets *at = net->at.layers + l;
        const StepLayer *s = net->step + l;
        const float *attn = folded_gain(net, at->attn_norm), *ff = folded_gain(net, at->ff_norm);
        float *dattn = folded_gain_gradient(net, at->attn_norm);
        float *dff = folded_gain_gradient(net, at->ff_norm);
        unfold_products(net, l);
        unfold(&s->wq, 0, d, w + at->wq, attn, scale, g + at->wq, dattn);
        unfold(&s->wk, 0, d, w + at->wk, attn, 1.0f, g + at->wk, dattn);
        unfold(&s->wv, 0, d, w + at->wv, attn, 1.0f, g + at->wv, dattn);
        unfold(&s->w13, 0, F, w + at->w1, ff, 1.0f, g + at->w1, dff);
        if (net->run->gated) unfold(&s->w13, F, F, w + at->w3, ff, 1.0f, g + at->w3, dff);
        transpose(F, d, padded(d), s->w2.dw, g + at->w2);
    }
    unfold(&net->out, 0, net->V, w + net->at.out, folded_gain(net, net->at.norm), 1.0f,
           g + net->at.out, folded_gain_gradient(net, net->at.norm));
}

/* AdamW as PyTorch does it; `step` counts from 1. */
static void adamw(Network *net, int64_t step) {
    const Run *run = net->run;
    float *restrict w = run->weights, *restrict m = run->first_moment;
    float *restrict v = run->second_moment;
    const float *restrict g = net->grad;
    const double correction1 = 1.0 - pow(run->beta1, (double)step);
    const double correction2 = sqrt(1.0 - pow(run->beta2, (double)step));
    const float decay = (float)(1.0 - run->lr * run->weight_decay);
    const float beta1 = (float)run->beta1, rest1 = (float)(1.0 - run->beta1);
    const float beta2 = (float)run->beta2, rest2 = (float)(1.0 - run->beta2);
    const float rate = (float)(run->lr / correction1), root = (float)(1.0 / correction2);
    const float eps = (float)run->eps;
    for (long i = 0; i < net->at.size; i++) {
        m[i] = beta1 * m[i] + rest1 * g[i];
        v[i] = beta2 * v[i] + rest2 * (g[i] * g[i]);
        w[i] = w[i] * decay - rate * (m[i] / (sqrtf(v[i]) * root + eps));
    }
}

static double weight_norm(const Network *net) {
    double sum = 0.0;
    for (long i = 0; i < net->at.size; i++) {
        const double w = net->run->weights[i];
        sum += w * w;
    }
    return sqrt(sum);
}

#endif
