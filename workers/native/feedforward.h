/* The gated FFN: x += W2 (mask * silu(W1 n) * W3 n). */
#ifndef GROKTIME_FEEDFORWARD_H
#define GROKTIME_FEEDFORWARD_H

#include "norm.h"

/* Word index of a column's first unit pair at position i. */
INLINE vu mask_counter(const Network *net, const uint32_t *example, int i, int v) {
    vu index;
    memcpy(&index, example + v * VL, sizeof index);
    return (index * TOKENS + (uint32_t)i) * (uint32_t)(net->F / 2);
}

/* In: h1 above h3 in h. Out: g = silu(h1) h3 m for W2, and what the backward pass multiplies the
 * gradient of g with: silu(h1) m (for h3) above silu'(h1) h3 m (for h1), in the place of h. */
static void gate_forward(const Network *net, const Dropout *dropout, const uint32_t *example,
                         int i, float *h, float *g, int panels) {
    const int F = net->F;
    const long h_stride = panel_stride(2 * F), g_stride = panel_stride(F);
    for (int p = 0; p < panels; p++, h += h_stride, g += g_stride)
        for (int v = 0; v < NV; v++) {
            vf mask[2] = {splat(1.0f), splat(1.0f)};
            vu counter = {0};
            if (dropout) counter = mask_counter(net, example + p * LANES, i, v);
            for (int u = 0; u < F; u += 2, counter += 1) {
                if (dropout) dropout_pair(dropout, counter, &mask[0], &mask[1]);
                for (int half = 0; half < 2; half++) {
                    const vf h1 = CROW(h, u + half, v), h3 = CROW(h, F + u + half, v);
                    const vf sigmoid = 1.0f / (1.0f + exp_vf(-h1));
                    const vf silu = h1 * sigmoid;
                    const vf slope = sigmoid + silu * (1.0f - sigmoid);
                    const vf kept = silu * mask[half];
                    ROW(h, u + half, v) = kept;
                    ROW(h, F + u + half, v) = slope * h3 * mask[half];
                    ROW(g, u + half, v) = kept * h3;
                }
            }
        }
}

/* h becomes dh1 above dh3. */
static void gate_backward(int F, const float *dg, float *h, int panels) {
    const long h_stride = panel_stride(2 * F), g_stride = panel_stride(F);
    for (int p = 0; p < panels; p++, h += h_stride, dg += g_stride)
        for (int u = 0; u < F; u++)
            for (int v = 0; v < NV; v++) {
                const vf gradient = CROW(dg, u, v), kept = CROW(h, u, v);
                ROW(h, u, v) = gradient * CROW(h, F + u, v);
                ROW(h, F + u, v) = gradient * kept;
            }
}

/* From the residual stream to the hidden units. */
static void hidden_forward(Network *net, int l, Columns *set, int i, const Dropout *dropout) {
    LayerColumns *s = set->layers + l;
    const int d = net->d, panels = set->panels;
    rms_forward(d, set->x[i], s->n_ff[i], s->r_ff[i], panels);
    apply(&net->step[l].w13, s->n_ff[i], s->h[i], panels, 0);
    gate_forward(net, dropout, set->example, i, s->h[i], s->g[i], panels);
}

/* From dg back to the residual stream: adds to dx_i. */
static void hidden_backward(Network *net, int l, Columns *set, int i, const float *dg) {
    LayerColumns *s = set->layers + l;
    const int d = net->d, F = net->F, panels = set->panels;
    float *dn = net->scratch_d[4];
    gate_backward(F, dg, s->h[i], panels);
    add_gradient(net, &net->step[l].w13, s->h[i], s->n_ff[i], panels);
    apply_transposed(&net->step[l].w13, s->h[i], dn, panels, 0);
    rms_backward(d, dn, s->n_ff[i], s->r_ff[i], set->dx[i], panels, 1);
}

static void feedforward(Network *net, int l, Columns *set, int i) {
    LayerColumns *s = set->layers + l;
    const Dropout *dropout = net->dropout_on ? net->masks + l : NULL;
    hidden_forward(net, l, set, i, dropout);
    apply(&net->step[l].w2, s->g[i], set->x[i], set->panels, 1);
}

/* dg = W2^T dx_i into scratch, and the gradient of W2. */
static float *output_backward(Network *net, int l, Columns *set, int i) {
    const Linear *w2 = &net->step[l].w2;
    add_gradient(net, w2, set->dx[i], set->layers[l].g[i], set->panels);
    apply_transposed(w2, set->dx[i], net->scratch_f, set->panels, 0);
    return net->scratch_f;
}

static void feedforward_backward(Network *net, int l, Columns *set, int i) {
    hidden_backward(net, l, set, i, output_backward(net, l, set, i));
}

/* Layer 0 with dropout, where stream and hidden units depend on the first token alone but the
 * mask does not: look both up, then mask and W2 per example. */
static void feedforward_shared(Network *net, Columns *set, int i) {
    LayerColumns *s = set->layers;
    const Dropout *dropout = net->masks;
    const int d = net->d, F = net->F;
    const long stride = panel_stride(d), g_stride = panel_stride(F);
    for (int p = 0; p < set->panels; p++) {
        const int32_t *token = set->token[0] + p * LANES;
        float *g = s->g[i] + p * g_stride, *mask = s->h[i] + p * g_stride;
        gather(d, net->share.x_tm[i], token, set->x[i] + p * stride);
        gather(F, net->share.p_tm[i], token, g);
        for (int v = 0; v < NV; v++) {
            vu counter = mask_counter(net, set->example + p * LANES, i, v);
            for (int u = 0; u < F; u += 2, counter += 1) {
                vf even, odd;
                dropout_pair(dropout, counter, &even, &odd);
                ROW(mask, u, v) = even;
                ROW(mask, u + 1, v) = odd;
                ROW(g, u, v) *= even;
                ROW(g, u + 1, v) *= odd;
            }
        }
    }
    apply(&net->step[0].w2, s->g[i], set->x[i], set->panels, 1);
}

static void feedforward_shared_backward(Network *net, Columns *set, int i) {
    const int d = net->d, F = net->F;
    const long stride = panel_stride(d), g_stride = panel_stride(F);
    float *dg = output_backward(net, 0, set, i);
    for (int p = 0; p < set->panels; p++) {
        const int32_t *token = set->token[0] + p * LANES;
        float *panel = dg + p * g_stride;
        const float *mask = set->layers[0].h[i] + p * g_stride;
        for (long e = 0; e < (long)F * LANES; e += VL) *(vf *)(panel + e) *= *(const vf *)(mask + e);
        scatter_add(F, panel, token, net->share.dp_tm[i]);
        scatter_add(d, set->dx[i] + p * stride, token, net->share.dx_tm[i]);
    }
}

#endif
