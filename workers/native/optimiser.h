/* The weights' side of a step: gains multiplied in before, taken apart after, and AdamW. */
#ifndef GROKTIME_OPTIMISER_H
#define GROKTIME_OPTIMISER_H

#include "network.h"

/* to = W diag(gain) * scale */
static void fold(long rows, long d, const float *w, const float *gain, float scale, float *to) {
    for (long i = 0; i < rows; i++)
        for (long f = 0; f < d; f++) to[i * d + f] = w[i * d + f] * (gain[f] * scale);
}

/* From the gradient of W diag(gain) * scale to those of W and of the gain. */
static void unfold(long rows, long d, const float *w, const float *gain, float scale,
                   const float *folded, float *dw, float *dgain) {
    for (long i = 0; i < rows; i++)
        for (long f = 0; f < d; f++) {
            const float gradient = folded[i * d + f] * scale;
            dgain[f] += gradient * w[i * d + f];
            dw[i * d + f] = gradient * gain[f];
        }
}

static void fold_gains(Network *net) {
    const long d = net->d, F = net->F;
    const float *w = net->run->weights;
    const float scale = 1.0f / sqrtf((float)d);
    for (int l = 0; l < net->L; l++) {
        const LayerOffsets *at = net->at.layers + l;
        StepLayer *step = net->step + l;
        fold(d, d, w + at->wq, w + at->attn_norm, scale, step->wq);
        fold(d, d, w + at->wk, w + at->attn_norm, 1.0f, step->wk);
        fold(d, d, w + at->wv, w + at->attn_norm, 1.0f, step->wv);
        fold(F, d, w + at->w1, w + at->ff_norm, 1.0f, step->w13);
        fold(F, d, w + at->w3, w + at->ff_norm, 1.0f, step->w13 + F * d);
        step->wo = w + at->wo;
        step->w2 = w + at->w2;
    }
    fold(net->V, d, w + net->at.out, w + net->at.norm, 1.0f, net->out_g);
}

static void zero_gradients(Network *net) {
    memset(net->grad, 0, (size_t)net->at.size * sizeof(float));
    for (int l = 0; l < net->L; l++)
        memset(net->step[l].dw13, 0, 2 * (size_t)net->F * net->d * sizeof(float));
}

static void unfold_gains(Network *net) {
    const long d = net->d, F = net->F;
    const float *w = net->run->weights;
    float *g = net->grad;
    const float scale = 1.0f / sqrtf((float)d);
    for (int l = 0; l < net->L; l++) {
        const LayerOffsets *at = net->at.layers + l;
        const float *attn = w + at->attn_norm, *ff = w + at->ff_norm;
        const float *dw13 = net->step[l].dw13;
        float *dattn = g + at->attn_norm, *dff = g + at->ff_norm;
        unfold(d, d, w + at->wq, attn, scale, g + at->wq, g + at->wq, dattn);
        unfold(d, d, w + at->wk, attn, 1.0f, g + at->wk, g + at->wk, dattn);
        unfold(d, d, w + at->wv, attn, 1.0f, g + at->wv, g + at->wv, dattn);
        unfold(F, d, w + at->w1, ff, 1.0f, dw13, g + at->w1, dff);
        unfold(F, d, w + at->w3, ff, 1.0f, dw13 + F * d, g + at->w3, dff);
    }
    unfold(net->V, d, w + net->at.out, w + net->at.norm, 1.0f, g + net->at.out, g + net->at.out,
           g + net->at.norm);
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
