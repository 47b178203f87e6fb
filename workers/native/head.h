/* The head: final norm, logits of the last position, cross-entropy and counts. */
#ifndef GROKTIME_HEAD_H
#define GROKTIME_HEAD_H

#include "norm.h"

/* Sums over examples. */
typedef struct {
    double loss; /* nats */
    int64_t correct;
} Tally;

/* Cross-entropy of one panel; the first `count` columns are examples. A prediction is the first
 * largest logit. With scale != 0 the logits become scale (softmax - onehot), padding zero. */
static void panel_loss(int V, float *logits, const int32_t *label, int count, float scale,
                       Tally *tally) {
    float top[LANES] __attribute__((aligned(64))), sum[LANES] __attribute__((aligned(64)));
    float of_label[LANES];
    int32_t choice[LANES] __attribute__((aligned(64)));
    for (int c = 0; c < LANES; c++) of_label[c] = logits[label[c] * LANES + c];
    for (int v = 0; v < NV; v++) {
        vf best = CROW(logits, 0, v), total = (vf){0};
        vi at = (vi){0};
        for (int u = 1; u < V; u++) {
            const vf value = CROW(logits, u, v);
            const vi better = value > best;
            best = select_vf(better, value, best);
            at = (better & u) | (~better & at);
        }
        for (int u = 0; u < V; u += 4) {
            vf value[4];
            for (int k = 0; k < 4; k++)
                value[k] = u + k < V ? CROW(logits, u + k, v) - best : splat(-100.0f);
            exp_many(value, 4);
            for (int k = 0; k < 4 && u + k < V; k++) {
                total += value[k];
                if (scale != 0.0f) ROW(logits, u + k, v) = value[k];
            }
        }
        ROW(top, 0, v) = best;
        ROW(sum, 0, v) = total;
        memcpy(choice + v * VL, &at, sizeof at);
        if (scale != 0.0f) {
            vf factor = scale / total;
            for (int c = 0; c < VL; c++)
                if (v * VL + c >= count) factor[c] = 0.0f;
            for (int u = 0; u < V; u++) ROW(logits, u, v) *= factor;
        }
    }
    for (int c = 0; c < count; c++) {
        tally->loss += (double)(top[c] - of_label[c]) + log((double)sum[c]);
        tally->correct += choice[c] == label[c];
        if (scale != 0.0f) logits[label[c] * LANES + c] -= scale;
    }
}

/* Logits of the set's last position; counts loss and correct answers of its first `count`
 * columns. With scale != 0 also goes back: gradient of out, and dx_3. */
static void head(Network *net, Columns *set, int count, float scale, Tally *tally) {
    const int V = net->V;
    norm_forward(net, net->at.norm, set->x[3], net->n_final, net->u_final, net->r_final,
                 set->panels);
    apply(&net->out, net->n_final, net->logits, set->panels, 0);
    for (int p = 0; p < set->panels; p++) {
        const int left = count - p * LANES;
        panel_loss(V, net->logits + p * panel_stride(V), net->labels + p * LANES,
                   left < LANES ? left : LANES, scale, tally);
    }
    if (scale == 0.0f) return;
    float *dn = net->scratch_d[4];
    add_gradient(net, &net->out, net->logits, net->n_final, set->panels);
    apply_transposed(&net->out, net->logits, dn, set->panels, 0);
    norm_backward(net, net->at.norm, dn, net->n_final, net->u_final, net->r_final, set->dx[3],
                  set->panels, 0);
}

#endif
