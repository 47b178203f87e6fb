/* The FFN: x += W2 (mask * silu(W1 n) * W3 n), or without W3 n where it is not gated. */
#ifndef GROKTIME_FEEDFORWARD_H
#define GROKTIME_FEEDFORWARD_H

#include "norm.h"

/* Word index of a column's first unit pair at position i. */
INLINE vu mask_counter(const Network *net, const uint32_t *example, int i, int v) {
    vu index;
    memcpy(&index, example + v * VL, sizeof index);
    return (index * TOKENS + (uint32_t)i) * (uint32_t)(net->F / 2);
}

/* Panels that go through all steps of an FFN together. Where the weights fit into a second-level
 * cache one panel at a time keeps the hidden units in the first. */
static int group_of(const Network *net) { return net->d <= 96 ? 1 : 4; }

#define WIDE (NV < 2 ? 1 : 2) /* vectors of a panel row that the gate takes at once */

/* Two units of 16 (or fewer) columns: h1 at `h`, h3 at `above`, what W2 sees to g. For the backward
 * pass h1 and h3 give way to what it multiplies the gradient of g with: silu(h1) m, for h3, and
 * silu'(h1) h3 m, for h1; not gated, silu'(h1) m in the place of h1. Vectors go through together,
 * see exp_many. */
INLINE void gate_units(float *h, float *above, float *g, vf (*mask)[2], const int masked,
                       const int kept, const int gated) {
    vf sigmoid[2 * WIDE];
    for (int e = 0; e < 2 * WIDE; e++) sigmoid[e] = -CROW(h, e / WIDE, e % WIDE);
    exp_many(sigmoid, 2 * WIDE);
    for (int e = 0; e < 2 * WIDE; e++) sigmoid[e] = 1.0f / (1.0f + sigmoid[e]);
    for (int e = 0; e < 2 * WIDE; e++) {
        const int u = e / WIDE, v = e % WIDE;
        const vf h1 = CROW(h, u, v), silu = h1 * sigmoid[e];
        if (!gated) {
            const vf slope = sigmoid[e] + silu * (1.0f - sigmoid[e]);
            ROW(g, u, v) = masked ? silu * mask[v][u] : silu;
            if (kept) ROW(h, u, v) = masked ? slope * mask[v][u] : slope;
            continue;
        }
        const vf h3 = CROW(above, u, v);
        vf passed = silu, slope = (sigmoid[e] + silu * (1.0f - sigmoid[e])) * h3;
        if (masked) passed *= mask[v][u], slope *= mask[v][u];
        ROW(g, u, v) = passed * h3;
        if (!kept) continue;
        ROW(h, u, v) = passed;
        ROW(above, u, v) = slope;
    }
}

INLINE void gate_panels(const Network *net, const Dropout *dropout, const uint32_t *example,
                        int i, float *h, float *g, int panels, const int masked,
                        const int kept, const int gated) {
    const int F = net->F;
    const long h_stride = panel_stride(net->H), g_stride = panel_stride(F);
    for (int p = 0; p < panels; p++, h += h_stride, g += g_stride)
        for (int first = 0; first < NV; first += WIDE) {
            vf mask[WIDE][2];
            vu counter[WIDE];
            for (int v = 0; v < WIDE && masked; v++)
                counter[v] = mask_counter(net, example + p * LANES, i, first + v);
            for (long at = first * VL; at < (long)F * LANES; at += 2 * LANES) {
                for (int v = 0; v < WIDE && masked; v++) {
                    dropout_pair(dropout, counter[v], &mask[v][0], &mask[v][1]);
                    counter[v] += 1;
                }
                gate_units(h + at, h + F * LANES + at, g + at, mask, masked, kept, gated);
            }
        }
}

INLINE void gate_masked(const Network *net, const Dropout *dropout, const uint32_t *example, int i,
                        float *h, float *g, int panels, const int gated) {
    if (!net->training)
        gate_panels(net, NULL, example, i, h, g, panels, 0, 0, gated);
    else if (dropout)
        gate_panels(net, dropout, example, i, h, g, panels, 1, 1, gated);
    else
        gate_panels(net, NULL, example, i, h, g, panels, 0, 1, gated);
}

static void gate_forward(const Network *net, const Dropout *dropout, const uint32_t *example,
                         int i, float *h, float *g, int panels) {
    if (net->run->gated)
        gate_masked(net, dropout, example, i, h, g, panels, 1);
    else
        gate_masked(net, dropout, example, i, h, g, panels, 0);
}

/* h becomes dh1 above dh3, or dh1 alone. */
static void gate_backward(const Network *net, const float *dg, float *h, int panels) {
    const int F = net->F;
    const long h_stride = panel_stride(net->H), g_stride = panel_stride(F);
    if (!net->run->gated) {
        for (int p = 0; p < panels; p++, h += h_stride, dg += g_stride)
            for (long e = 0; e < (long)F * LANES; e += VL) *(vm *)(h + e) *= load(dg + e);
        return;
    }
    for (int p = 0; p < panels; p++, h += h_stride, dg += g_stride)
        for (int u = 0; u < F; u++)
            for (int v = 0; v < NV; v++) {
                const vf gradient = CROW(dg, u, v), masked = CROW(h, u, v);
                ROW(h, u, v) = gradient * CROW(h, F + u, v);
                ROW(h, F + u, v) = gradient * masked;
            }
}

/* From the residual stream to the hidden units, and with `w2` back to the stream. */
static void feedforward_masked(Network *net, int l, Columns *set, int i, const Dropout *dropout,
                               const Linear *w2) {
    LayerColumns *s = set->layers + l;
    const int d = net->d, F = net->F, group = group_of(net);
    const long stride = panel_stride(d), h_stride = panel_stride(net->H);
    const long g_stride = panel_stride(F), ff_norm = net->at.layers[l].ff_norm;
    for (int p = 0; p < set->panels; p += group) {
        const int panels = set->panels - p < group ? set->panels - p : group;
        float *x = set->x[i] + p * stride, *n = s->n_ff[i] + p * stride;
        float *h = s->h[i] + p * h_stride, *g = s->g[i] + p * g_stride;
        norm_forward(net, ff_norm, x, n, s->u_ff[i] + p * stride, s->r_ff[i] + p * LANES, panels);
        apply(&net->step[l].w13, n, h, panels, 0);
        gate_forward(net, dropout, set->example + p * LANES, i, h, g, panels);
        if (w2) apply(w2, g, x, panels, 1);
    }
}

static void feedforward(Network *net, int l, Columns *set, int i) {
    feedforward_masked(net, l, set, i, net->dropout_on ? net->masks + l : NULL,
                       &net->step[l].w2);
}

/* Adds to dx_i what comes back through the FFN. The gradient of g is W2^T dx_i, or `dg` where it
 * is known already (positions that end at their hidden units). */
static void feedforward_backward_from(Network *net, int l, Columns *set, int i, float *dg) {
    LayerColumns *s = set->layers + l;
    const StepLayer *w = net->step + l;
    const int d = net->d, F = net->F, group = group_of(net);
    const long stride = panel_stride(d), h_stride = panel_stride(net->H);
    const long g_stride = panel_stride(F), ff_norm = net->at.layers[l].ff_norm;
    if (!dg) add_gradient(net, &w->w2, set->dx[i], s->g[i], set->panels);
    for (int p = 0; p < set->panels; p += group) {
        const int panels = set->panels - p < group ? set->panels - p : group;
        float *dx = set->dx[i] + p * stride, *h = s->h[i] + p * h_stride;
        float *dn = net->scratch_d[4], *here = dg ? dg + p * g_stride : net->scratch_f;
        if (!dg) apply_transposed(&w->w2, dx, here, panels, 0);
        gate_backward(net, here, h, panels);
        apply_transposed(&w->w13, h, dn, panels, 0);
        norm_backward(net, ff_norm, dn, s->n_ff[i] + p * stride, s->u_ff[i] + p * stride,
                      s->r_ff[i] + p * LANES, dx, panels, 1);
    }
    add_gradient(net, &w->w13, s->h[i], s->n_ff[i], set->panels);
}

static void feedforward_backward(Network *net, int l, Columns *set, int i) {
    feedforward_backward_from(net, l, set, i, NULL);
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
        apply(&net->step[0].w2, g, set->x[i] + p * stride, 1, 1);
    }
}

static void feedforward_shared_backward(Network *net, Columns *set, int i) {
    const int d = net->d, F = net->F;
    const long stride = panel_stride(d), g_stride = panel_stride(F);
    const Linear *w2 = &net->step[0].w2;
    add_gradient(net, w2, set->dx[i], set->layers[0].g[i], set->panels);
    for (int p = 0; p < set->panels; p++) {
        const int32_t *token = set->token[0] + p * LANES;
        float *panel = net->scratch_f;
        const float *mask = set->layers[0].h[i] + p * g_stride;
        apply_transposed(w2, set->dx[i] + p * stride, panel, 1, 0);
        for (long e = 0; e < (long)F * LANES; e += VL) *(vm *)(panel + e) *= load(mask + e);
        scatter_add(F, panel, token, net->share.dp_tm[i]);
        scatter_add(d, set->dx[i] + p * stride, token, net->share.dx_tm[i]);
    }
}

#endif
