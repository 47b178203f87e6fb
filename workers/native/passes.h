/* Forward and backward through all layers, for the shared positions and for a chunk. */
#ifndef GROKTIME_PASSES_H
#define GROKTIME_PASSES_H

#include "attention.h"
#include "feedforward.h"
#include "head.h"
#include "tables.h"

/* Positions below this are not columns of the examples above layer 0. */
static int lowest(const Network *net) { return net->dropout_on ? 0 : net->shared; }

/* Positions that depend on the first token alone, once for each token. With dropout this holds
 * up to the FFN's hidden units of layer 0; without, up to the last layer's attention. */
static void shared_forward(Network *net) {
    Columns *set = &net->first_token;
    Shared *share = &net->share;
    const int d = net->d, V = net->V, count = net->shared;
    embedding_attention(net, set, 0, count);
    if (net->dropout_on) {
        for (int i = 0; i < count; i++) {
            feedforward_masked(net, 0, set, i, NULL, NULL);
            from_panels(d, V, set->x[i], share->x_tm[i]);
            from_panels(net->F, V, set->layers[0].g[i], share->p_tm[i]);
            memset(share->dx_tm[i], 0, (size_t)V * d * sizeof(float));
            memset(share->dp_tm[i], 0, (size_t)V * net->F * sizeof(float));
        }
        return;
    }
    for (int l = 0; l < net->L - 1; l++) {
        if (l > 0) attention_middle(net, l, set, 0, count);
        LayerColumns *above = set->layers + l + 1;
        for (int i = 0; i < count; i++) {
            feedforward(net, l, set, i);
            norm_forward(net, net->at.layers[l + 1].attn_norm, set->x[i], above->n_attn[i],
                         above->u_attn[i], above->r_attn[i], set->panels);
            from_panels(d, V, above->n_attn[i], share->n_tm[i][l + 1]);
            memset(share->dn_tm[i][l + 1], 0, (size_t)V * d * sizeof(float));
        }
    }
}

static void shared_backward(Network *net) {
    Columns *set = &net->first_token;
    Shared *share = &net->share;
    const int d = net->d, V = net->V, count = net->shared;
    for (int i = 0; i < count && net->dropout_on; i++) {
        to_panels(d, V, share->dx_tm[i], set->dx[i]);
        to_panels(net->F, V, share->dp_tm[i], net->scratch_f);
        feedforward_backward_from(net, 0, set, i, net->scratch_f);
    }
    for (int l = net->L - 1; l >= 1 && !net->dropout_on; l--) {
        LayerColumns *s = set->layers + l;
        for (int i = 0; i < count; i++)
            to_panels(d, V, share->dn_tm[i][l], net->scratch_d[i]);
        if (l < net->L - 1) attention_middle_backward(net, l, set, 0, count);
        for (int i = 0; i < count; i++)
            norm_backward(net, net->at.layers[l].attn_norm, net->scratch_d[i], s->n_attn[i],
                          s->u_attn[i], s->r_attn[i], set->dx[i], set->panels, l < net->L - 1);
        for (int i = 0; i < count; i++) feedforward_backward(net, l - 1, set, i);
    }
    embedding_attention_backward(net, set, 0, count);
}

static void examples_forward(Network *net, Columns *set) {
    const int d = net->d, top = net->L - 1;
    const int first = top == 0 ? TOKENS - 1 : net->shared, low = lowest(net);
    embedding_attention(net, set, first, TOKENS);
    if (top > 0 && net->dropout_on)
        for (int i = 0; i < net->shared; i++) feedforward_shared(net, set, i);
    for (int i = first; i < TOKENS; i++) feedforward(net, 0, set, i);
    for (int l = 1; l <= top; l++) {
        LayerColumns *s = set->layers + l;
        for (int j = 0; j < low; j++)
            for (int p = 0; p < set->panels; p++)
                gather(d, net->share.n_tm[j][l], set->token[0] + p * LANES,
                       s->n_attn[j] + p * panel_stride(d));
        for (int j = low; j < TOKENS; j++)
            norm_forward(net, net->at.layers[l].attn_norm, set->x[j], s->n_attn[j], s->u_attn[j],
                         s->r_attn[j], set->panels);
        if (l == top) {
            attention_last(net, l, set);
            feedforward(net, l, set, TOKENS - 1);
        } else {
            attention_middle(net, l, set, low, TOKENS);
            for (int i = low; i < TOKENS; i++) feedforward(net, l, set, i);
        }
    }
}

/* From dx_3 above the last layer to all gradients of weights and tables. */
static void examples_backward(Network *net, Columns *set) {
    const int d = net->d, top = net->L - 1;
    const int first = top == 0 ? TOKENS - 1 : net->shared, low = lowest(net);
    const long stride = panel_stride(d);
    for (int l = top; l >= 1; l--) {
        LayerColumns *s = set->layers + l;
        float **dn = net->scratch_d;
        if (l == top) {
            feedforward_backward(net, l, set, TOKENS - 1);
            attention_last_backward(net, l, set);
        } else {
            for (int i = low; i < TOKENS; i++) feedforward_backward(net, l, set, i);
            for (int j = 0; j < TOKENS; j++)
                memset(dn[j], 0, (size_t)stride * set->panels * sizeof(float));
            attention_middle_backward(net, l, set, low, TOKENS);
        }
        for (int j = 0; j < low; j++)
            for (int p = 0; p < set->panels; p++)
                scatter_add(d, dn[j] + p * stride, set->token[0] + p * LANES,
                            net->share.dn_tm[j][l]);
        /* Below the last layer every position has a gradient; above it only the last one had. */
        for (int j = low; j < TOKENS; j++)
            norm_backward(net, net->at.layers[l].attn_norm, dn[j], s->n_attn[j], s->u_attn[j],
                          s->r_attn[j], set->dx[j], set->panels, l < top || j == TOKENS - 1);
    }
    for (int i = first; i < TOKENS; i++) feedforward_backward(net, 0, set, i);
    if (top > 0 && net->dropout_on)
        for (int i = 0; i < net->shared; i++) feedforward_shared_backward(net, set, i);
    embedding_attention_backward(net, set, first, TOKENS);
}

#endif
