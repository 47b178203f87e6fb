/* Attention of the layers above 0, from the normalised inputs n_j of all positions. */
#ifndef GROKTIME_ATTENTION_H
#define GROKTIME_ATTENTION_H

#include "norm.h"

/* y (+)= sum_j weight_j x_j for one panel. */
INLINE void mix_panel(int rows, const vf *weight, float *const *x, long at, int count, int v,
                      float *y, int accumulate) {
    for (int f = 0; f < rows; f++) {
        vf sum = accumulate ? CROW(y, f, v) : (vf){0};
        for (int j = 0; j < count; j++) sum += weight[j] * CROW(x[j] + at, f, v);
        ROW(y, f, v) = sum;
    }
}

/* x_i += Wo Wv c_i. */
static void attention_output(Network *net, int l, LayerColumns *s, int i, float *x, int panels) {
    apply(&net->step[l].vo, s->c[i], x, panels, 1);
}

/* From dx_i to dc_i, which takes the place of c_i. */
static void attention_output_backward(Network *net, int l, LayerColumns *s, int i,
                                      const float *dx, int panels) {
    const Linear *vo = &net->step[l].vo;
    add_gradient(net, vo, dx, s->c[i], panels);
    apply_transposed(vo, dx, s->c[i], panels, 0);
}

/* The last layer's one query, as what the inputs are multiplied with: t_o = Wk^T R_o Wq n_3, where
 * the offset o is 3 - j. Without positions that is one matrix and one t. */
static void last_query(Network *net, int l, LayerColumns *s, int panels) {
    const StepLayer *w = net->step + l;
    if (!net->run->rope) {
        apply(&w->qk, s->n_attn[3], s->t[0], panels, 0);
        return;
    }
    apply(&w->wq, s->n_attn[3], s->q[0], panels, 0);
    for (int o = 0; o < TOKENS; o++) {
        if (o > 0) rotate(net, s->q[0], s->q[o], o, 1.0f, panels);
        apply_transposed(&w->wk, s->q[o], s->t[o], panels, 0);
    }
}

/* From dt_o, in the place of t_o; adds to dn_3. */
static void last_query_backward(Network *net, int l, LayerColumns *s, int panels, float *dn) {
    const StepLayer *w = net->step + l;
    if (!net->run->rope) {
        add_gradient(net, &w->qk, s->t[0], s->n_attn[3], panels);
        apply_transposed(&w->qk, s->t[0], dn, panels, 1);
        return;
    }
    float *dq = net->scratch_d[4], *turned = net->scratch_d[5];
    const long all = panel_stride(net->d) * panels;
    for (int o = 0; o < TOKENS; o++) {
        add_gradient(net, &w->wk, s->q[o], s->t[o], panels);
        apply(&w->wk, s->t[o], o > 0 ? turned : dq, panels, 0);
        if (o == 0) continue;
        rotate(net, turned, turned, o, -1.0f, panels);
        for (long e = 0; e < all; e += VL) *(vm *)(dq + e) += load(turned + e);
    }
    add_gradient(net, &w->wq, dq, s->n_attn[3], panels);
    apply_transposed(&w->wq, dq, dn, panels, 1);
}

/* The last layer has one query an example: score_j = t_{3-j} . n_j, and the inputs are mixed before
 * Wo Wv, so that no product runs over all four positions. */
static void attention_last(Network *net, int l, Columns *set) {
    LayerColumns *s = set->layers + l;
    const int d = net->d, panels = set->panels, rope = net->run->rope;
    const long stride = panel_stride(d);
    last_query(net, l, s, panels);
    for (int p = 0; p < panels; p++)
        for (int v = 0; v < NV; v++) {
            vf weight[TOKENS];
            for (int j = 0; j < TOKENS; j++)
                weight[j] = dot_rows(d, s->t[rope ? 3 - j : 0] + p * stride,
                                     s->n_attn[j] + p * stride, v);
            softmax_lanes(weight, TOKENS);
            for (int j = 0; j < TOKENS; j++) ROW(s->w[3][j] + p * LANES, 0, v) = weight[j];
            mix_panel(d, weight, s->n_attn, p * stride, TOKENS, v, s->c[3] + p * stride, 0);
        }
    attention_output(net, l, s, 3, set->x[3], panels);
}

/* Leaves dn_j in scratch_d[j]. */
static void attention_last_backward(Network *net, int l, Columns *set) {
    LayerColumns *s = set->layers + l;
    const int d = net->d, panels = set->panels, rope = net->run->rope;
    const long stride = panel_stride(d);
    float **dn = net->scratch_d;
    attention_output_backward(net, l, s, 3, set->dx[3], panels);
    for (int p = 0; p < panels; p++)
        for (int v = 0; v < NV; v++) {
            vf weight[TOKENS], gradient[TOKENS];
            const float *dc = s->c[3] + p * stride;
            for (int j = 0; j < TOKENS; j++) {
                weight[j] = CROW(s->w[3][j] + p * LANES, 0, v);
                gradient[j] = dot_rows(d, dc, s->n_attn[j] + p * stride, v);
            }
            softmax_backward_lanes(weight, gradient, TOKENS);
            for (int j = 0; j < TOKENS; j++) {
                const float *t = s->t[rope ? 3 - j : 0] + p * stride;
                for (int f = 0; f < d; f++)
                    ROW(dn[j] + p * stride, f, v) =
                        weight[j] * CROW(dc, f, v) + gradient[j] * CROW(t, f, v);
            }
            /* dt_o, in the place of t_o */
            if (!rope)
                mix_panel(d, gradient, s->n_attn, p * stride, TOKENS, v, s->t[0] + p * stride, 0);
            else
                for (int j = 0; j < TOKENS; j++)
                    for (int f = 0; f < d; f++)
                        ROW(s->t[3 - j] + p * stride, f, v) =
                            gradient[j] * CROW(s->n_attn[j] + p * stride, f, v);
        }
    last_query_backward(net, l, s, panels, dn[3]);
}

/* A layer in between: positions first..last-1 ask, positions 0..last-1 are seen. */
static void attention_middle(Network *net, int l, Columns *set, int first, int last) {
    LayerColumns *s = set->layers + l;
    const StepLayer *w = net->step + l;
    const int d = net->d, panels = set->panels;
    const long stride = panel_stride(d);
    for (int j = 0; j < last; j++) {
        apply(&w->wk, s->n_attn[j], s->k[j], panels, 0);
        if (j >= first) apply(&w->wq, s->n_attn[j], s->q[j], panels, 0);
        if (!net->run->rope || j == 0) continue;
        rotate(net, s->k[j], s->k[j], j, 1.0f, panels);
        if (j >= first) rotate(net, s->q[j], s->q[j], j, 1.0f, panels);
    }
    for (int i = first; i < last; i++) {
        for (int p = 0; p < panels; p++)
            for (int v = 0; v < NV; v++) {
                vf weight[TOKENS];
                for (int j = 0; j <= i; j++)
                    weight[j] = dot_rows(d, s->q[i] + p * stride, s->k[j] + p * stride, v);
                softmax_lanes(weight, i + 1);
                for (int j = 0; j <= i; j++) ROW(s->w[i][j] + p * LANES, 0, v) = weight[j];
                mix_panel(d, weight, s->n_attn, p * stride, i + 1, v, s->c[i] + p * stride, 0);
            }
        attention_output(net, l, s, i, set->x[i], panels);
    }
}

/* Adds to the dn_j that scratch_d[j] holds already. */
static void attention_middle_backward(Network *net, int l, Columns *set, int first, int last) {
    LayerColumns *s = set->layers + l;
    const StepLayer *w = net->step + l;
    const int d = net->d, panels = set->panels;
    const long stride = panel_stride(d);
    float **dn = net->scratch_d, **dk = s->t, **dq = s->c; /* dc_i gives way to dq_i */
    for (int j = 0; j < last; j++) memset(dk[j], 0, stride * panels * sizeof(float));
    for (int i = first; i < last; i++) {
        attention_output_backward(net, l, s, i, set->dx[i], panels);
        for (int p = 0; p < panels; p++)
            for (int v = 0; v < NV; v++) {
                vf weight[TOKENS], gradient[TOKENS];
                const float *dc = s->c[i] + p * stride;
                for (int j = 0; j <= i; j++) {
                    weight[j] = CROW(s->w[i][j] + p * LANES, 0, v);
                    gradient[j] = dot_rows(d, dc, s->n_attn[j] + p * stride, v);
                }
                softmax_backward_lanes(weight, gradient, i + 1);
                for (int j = 0; j <= i; j++)
                    for (int f = 0; f < d; f++) {
                        ROW(dn[j] + p * stride, f, v) += weight[j] * CROW(dc, f, v);
                        ROW(dk[j] + p * stride, f, v) +=
                            gradient[j] * CROW(s->q[i] + p * stride, f, v);
                    }
                mix_panel(d, gradient, s->k, p * stride, i + 1, v, dq[i] + p * stride, 0);
            }
    }
    for (int j = 0; j < last; j++) {
        if (net->run->rope && j > 0) {
            rotate(net, dk[j], dk[j], j, -1.0f, panels);
            if (j >= first) rotate(net, dq[j], dq[j], j, -1.0f, panels);
        }
        add_gradient(net, &w->wk, dk[j], s->n_attn[j], panels);
        apply_transposed(&w->wk, dk[j], dn[j], panels, 1);
        if (j < first) continue;
        add_gradient(net, &w->wq, dq[j], s->n_attn[j], panels);
        apply_transposed(&w->wq, dq[j], dn[j], panels, 1);
    }
}

#endif
