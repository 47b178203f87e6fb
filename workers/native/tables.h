/* Layer 0: attention sees only V different tokens (times four with learned positions), so queries, keys, scores and Wo Wv of the
 * values are tables over the vocabulary; an example looks up, softmaxes and mixes. */
#ifndef GROKTIME_TABLES_H
#define GROKTIME_TABLES_H

#include "norm.h"

static int offsets_of(const Network *net) { return net->run->rope ? TOKENS : 1; }

/* The table of offset i - j; without positions there is one for all. */
INLINE int offset_between(const Network *net, int i, int j) { return net->run->rope ? i - j : 0; }

/* Embedding plus position, for every pair of them. */
static float *placed_embedding(const Network *net) {
    const float *token = net->run->weights + net->at.embedding;
    const float *position = net->run->weights + net->at.positions;
    const long d = net->d, V = net->V;
    for (long row = 0; row < net->U; row++)
        for (long f = 0; f < d; f++)
            net->tables.placed[row * d + f] = token[row % V * d + f] + position[row / V * d + f];
    return net->tables.placed;
}

/* And back: a token's gradient is the sum over positions, a position's that over tokens. */
static void placed_embedding_backward(const Network *net, const float *gradient) {
    float *token = net->grad + net->at.embedding, *position = net->grad + net->at.positions;
    const long d = net->d, V = net->V;
    for (long row = 0; row < net->U; row++)
        for (long f = 0; f < d; f++) {
            token[row % V * d + f] += gradient[row * d + f];
            position[row / V * d + f] += gradient[row * d + f];
        }
}

static void tables_forward(Network *net) {
    Tables *t = &net->tables;
    const StepLayer *w = &net->step[0];
    const int V = net->U, d = net->d, panels = panels_of(V);
    t->e_tm = net->run->learned ? placed_embedding(net) : net->run->weights + net->at.embedding;
    to_panels(d, V, t->e_tm, t->panel);
    norm_forward(net, net->at.layers[0].attn_norm, t->panel, t->n, t->u, t->r, panels);
    apply(&w->wq, t->n, t->q, panels, 0);
    apply(&w->wk, t->n, t->k, panels, 0);
    apply(&w->vo, t->n, t->vo, panels, 0);
    from_panels(d, V, t->vo, t->vo_tm);
    from_panels(d, V, t->q, t->q_tm[0]);
    for (int o = 0; o < offsets_of(net); o++) {
        if (o > 0) rotate_table(net, t->q_tm[0], d, t->q_tm[o], o, 1.0f, 0);
        to_tiles(V, d, t->q_tm[o], d, 1, net->flat);
        multiply(V, d, net->flat, t->k, t->s[o], panels, 0);
    }
}

static void tables_zero_gradients(Network *net) {
    Tables *t = &net->tables;
    const int V = net->U;
    const size_t table = (size_t)V * net->d * sizeof(float);
    memset(t->de_tm, 0, table);
    memset(t->dvo_tm, 0, table);
    for (int o = 0; o < offsets_of(net); o++)
        memset(t->ds[o], 0, (size_t)panel_stride(V) * panels_of(V) * sizeof(float));
}

/* From the tables' gradients to those of Wq, Wk, Wv, Wo (folded) and the embedding. */
static void tables_backward(Network *net) {
    Tables *t = &net->tables;
    const StepLayer *w = &net->step[0];
    const int V = net->U, d = net->d, panels = panels_of(V);
    float *dvo = t->panel, *dn = t->q, *dk = t->vo; /* q, vo: done with */

    to_panels(d, V, t->dvo_tm, dvo);
    add_gradient(net, &w->vo, dvo, t->n, panels);
    apply_transposed(&w->vo, dvo, dn, panels, 0);

    /* S_o = (R_o Q)^T K:  dK = sum_o R_o Q dS_o,  dQ = sum_o R_-o (K dS_o^T). */
    float *turned = t->turned;
    const float *k_strips = to_strips(net, d, t->k, panels);
    for (int o = 0; o < offsets_of(net); o++) {
        to_tiles(d, V, t->q_tm[o], 1, d, net->flat);
        multiply(d, V, net->flat, t->ds[o], dk, panels, o > 0);
        memset(turned, 0, (size_t)V * padded(d) * sizeof(float));
        accumulate_outer(V, d, t->ds[o], k_strips, panels, turned);
        rotate_table(net, turned, padded(d), t->dq_tm, o, -1.0f, o > 0);
    }
    float *dq = t->panel;
    to_panels(d, V, t->dq_tm, dq);
    add_gradient(net, &w->wq, dq, t->n, panels);
    apply_transposed(&w->wq, dq, dn, panels, 1);
    add_gradient(net, &w->wk, dk, t->n, panels);
    apply_transposed(&w->wk, dk, dn, panels, 1);

    float *de = t->panel;
    to_panels(d, V, t->de_tm, de);
    norm_backward(net, net->at.layers[0].attn_norm, dn, t->n, t->u, t->r, de, panels, 1);
    from_panels(d, V, de, net->run->learned ? t->de_tm : net->grad + net->at.embedding);
    if (net->run->learned) placed_embedding_backward(net, t->de_tm);
}

/* x_i = E[token_i] + sum_{j <= i} w_ij VO[token_j] for the positions first..last-1. */
static void embedding_attention(Network *net, Columns *set, int first, int last) {
    const Tables *t = &net->tables;
    const int d = net->d;
    const long stride = panel_stride(d), s_stride = panel_stride(net->U);
    for (int p = 0; p < set->panels; p++) {
        const int32_t *token[TOKENS];
        for (int j = 0; j < last; j++) {
            token[j] = set->token[j] + p * LANES;
            gather(d, t->vo_tm, token[j], set->vo[j] + p * stride);
        }
        for (int i = first; i < last; i++) {
            float score[TOKENS][LANES] __attribute__((aligned(64))) = {{0}};
            for (int j = 0; j <= i; j++) {
                const float *s = t->s[offset_between(net, i, j)];
                for (int c = 0; c < LANES; c++)
                    score[j][c] = s[(token[j][c] >> 4) * s_stride + token[i][c] * LANES +
                                    (token[j][c] & 15)];
            }
            float *x = set->x[i] + p * stride;
            gather(d, t->e_tm, token[i], x);
            for (int v = 0; v < NV; v++) {
                vf weight[TOKENS] = {{0}};
                for (int j = 0; j <= i; j++) weight[j] = CROW(score[j], 0, v);
                softmax_lanes(weight, i + 1);
                for (int j = 0; j <= i; j++) {
                    const float *vo = set->vo[j] + p * stride;
                    ROW(set->layers[0].w[i][j] + p * LANES, 0, v) = weight[j];
                    for (int f = 0; f < d; f++) ROW(x, f, v) += weight[j] * CROW(vo, f, v);
                }
            }
        }
    }
}

static void embedding_attention_backward(Network *net, Columns *set, int first, int last) {
    Tables *t = &net->tables;
    const int d = net->d;
    const long stride = panel_stride(d), s_stride = panel_stride(net->U);
    float *dvo = net->scratch_d[4];
    for (int p = 0; p < set->panels; p++) {
        const int32_t *token[TOKENS];
        for (int j = 0; j < last; j++) token[j] = set->token[j] + p * LANES;
        for (int i = first; i < last; i++) {
            const float *dx = set->dx[i] + p * stride;
            float dscore[TOKENS][LANES] __attribute__((aligned(64)));
            for (int v = 0; v < NV; v++) {
                vf weight[TOKENS], gradient[TOKENS];
                for (int j = 0; j <= i; j++) {
                    weight[j] = CROW(set->layers[0].w[i][j] + p * LANES, 0, v);
                    gradient[j] = dot_rows(d, set->vo[j] + p * stride, dx, v);
                }
                softmax_backward_lanes(weight, gradient, i + 1);
                for (int j = 0; j <= i; j++) ROW(dscore[j], 0, v) = gradient[j];
            }
            for (int j = 0; j <= i; j++) {
                float *ds = t->ds[offset_between(net, i, j)];
                for (int c = 0; c < LANES; c++)
                    ds[(token[j][c] >> 4) * s_stride + token[i][c] * LANES +
                       (token[j][c] & 15)] += dscore[j][c];
            }
            scatter_add(d, dx, token[i], t->de_tm);
        }
        for (int j = 0; j < last; j++) {
            const int from = j > first ? j : first; /* queries that see position j */
            for (int f = 0; f < d; f++)
                for (int v = 0; v < NV; v++) {
                    vf sum = (vf){0};
                    for (int i = from; i < last; i++)
                        sum += CROW(set->layers[0].w[i][j] + p * LANES, 0, v) *
                               CROW(set->dx[i] + p * stride, f, v);
                    ROW(dvo, f, v) = sum;
                }
            scatter_add(d, dvo, token[j], t->dvo_tm);
        }
    }
}

#endif
