/* The network's sizes, its parameters in one flat vector, and the memory of one training step. */
#ifndef GROKTIME_NETWORK_H
#define GROKTIME_NETWORK_H

#include <stddef.h>
#include <stdlib.h>

#include "gemm.h"
#include "streams.h"

#define TOKENS 4
#define NORM_EPS 1e-5f
#define ROPE_BASE 1e6

/* One run: what Python fills in. Field order and types are those of engine.py. */
typedef struct {
    int32_t vocabulary, width, depth;
    int32_t rope, learned; /* positions; both zero: none */
    int32_t layer_norm;    /* LayerNorm instead of RMSNorm */
    int32_t gated;         /* the FFN has W3 */
    int32_t pairs;      /* tokens 1 and 3 are the same in every example */
    int32_t batch_size, n_train, n_val;
    int32_t evaluates_train; /* the eval clock or bits are wanted */
    int32_t dropout_threshold;
    float dropout_scale;
    double lr, beta1, beta2, eps, weight_decay;
    uint64_t seed;
    const int32_t *x_train, *y_train, *x_val, *y_val; /* [n][4] and [n] */
    float *weights, *first_moment, *second_moment;    /* flat, see parameter_offsets */
} Run;

/* Offsets of one layer's tensors in the flat vector. A LayerNorm's bias follows its gain. */
typedef struct {
    long attn_norm, wq, wk, wv, wo, ff_norm, w1, w2, w3;
} LayerOffsets;

typedef struct {
    long embedding, positions, norm, out, size;
    LayerOffsets *layers;
} Offsets;

/* Weights of a step, with the gain of an RMSNorm before them multiplied in: W diag(gain). */
typedef struct {
    Linear wq, wk, wv, wo; /* wq also carries the scale 1 / sqrt(width) */
    Linear qk, vo;         /* Wk^T Wq, where the last layer has no positions; Wo Wv */
    Linear w13, w2;        /* W1 above W3, or W1 alone */
} StepLayer;

/* What the forward pass of one layer keeps for the backward pass, for a set of columns. */
typedef struct {
    float *n_attn[TOKENS], *r_attn[TOKENS]; /* normalised input, 1 / rms */
    float *u_attn[TOKENS], *u_ff[TOKENS];   /* LayerNorm: the same before gain and bias */
    float *q[TOKENS], *k[TOKENS];           /* queries (last layer: by offset), keys */
    float *t[TOKENS];                       /* last layer: Wk^T q, by offset */
    float *w[TOKENS][TOKENS];               /* attention weights of query i on key j */
    float *c[TOKENS];                       /* mixed inputs */
    float *n_ff[TOKENS], *r_ff[TOKENS];
    float *h[TOKENS]; /* silu(h1)*mask above silu'(h1)*h3*mask; not gated: silu'(h1)*mask */
    float *g[TOKENS]; /* silu(h1)*h3*mask, what W2 sees; not gated: silu(h1)*mask */
} LayerColumns;

/* Columns processed together: a chunk of examples, or the vocabulary as first tokens. */
typedef struct {
    int panels;
    int32_t *token[TOKENS];   /* the table's row of each column at each position */
    uint32_t *example;        /* index in the batch, which keys the dropout mask */
    float *x[TOKENS], *dx[TOKENS];
    float *vo[TOKENS];        /* layer 0: rows of the VO table at the columns' tokens */
    LayerColumns *layers;
} Columns;

/* Layer 0 as functions of the token; with learned positions of position and token, where row
 * position * V + token is theirs. `_tm` tables are token-major: [U][d]. */
typedef struct {
    float *e_tm, *r, *n, *u;        /* embedding, 1 / rms, normalised [d x U] */
    float *placed;                  /* embedding plus learned position */
    float *q, *k, *vo;              /* panels */
    float *vo_tm, *q_tm[TOKENS];
    float *s[TOKENS];               /* scores by offset: rows are queries, columns keys */
    float *de_tm, *dvo_tm, *dq_tm;  /* gradients */
    float *ds[TOKENS], *turned;
    float *panel;                   /* scratch, d x U */
} Tables;

/* What examples read from, and add to, the positions that depend on the first token only. */
typedef struct {
    float *x_tm[TOKENS], *p_tm[TOKENS];     /* layer 0: residual stream, FFN hidden */
    float *dx_tm[TOKENS], *dp_tm[TOKENS];
    float **n_tm[TOKENS], **dn_tm[TOKENS];  /* by layer: attention inputs, without dropout */
} Shared;

typedef struct {
    const Run *run;
    int V, d, F, L;
    int U;           /* rows of layer 0's tables: V, or 4 V with learned positions */
    int H;           /* hidden rows before the gate: 2 F, or F without one */
    Offsets at;
    int shared;      /* positions that are functions of the first token alone, 0 to 2 */
    int training, dropout_on;
    int chunk;       /* columns of a full chunk */
    float *rope_cos, *rope_sin; /* [4][d/2]: rotation by an offset */
    StepLayer *step;
    Linear out;
    float *grad;     /* flat, like the weights */
    float *ones, *no_gain; /* LayerNorm: gains that are folded (none) and where theirs go */
    float *strips;   /* scratch: what to_strips() made */
    float *flat;     /* scratch: a weight row by row, or a table in tiles */
    float *square[2]; /* scratch: d x d in panels */
    Tables tables;
    Shared share;
    Columns first_token, examples;
    Dropout *masks;  /* by layer */
    float *n_final, *u_final, *r_final, *logits; /* head */
    float *scratch_d[6], *scratch_f;
    int32_t *labels;
    uint64_t *sort_work, *sort_spare;
    int32_t *order;
} Network;

/* A bump allocator: the first pass (base NULL) measures, the second hands out. */
typedef struct {
    char *base;
    size_t used;
} Arena;

static void *take(Arena *arena, size_t bytes) {
    const size_t at = arena->used;
    arena->used += (bytes + 63) / 64 * 64;
    return arena->base ? arena->base + at : NULL;
}

static float *take_floats(Arena *arena, long count) {
    return take(arena, (size_t)count * sizeof(float));
}

static float *take_panels(Arena *arena, int rows, int panels) {
    return take_floats(arena, panel_stride(rows) * panels);
}

/* The row of layer 0's tables that a token has at a position. */
INLINE int32_t table_row(const Network *net, int position, int32_t token) {
    return net->run->learned ? position * net->V + token : token;
}

static long parameter_count(const Run *run) {
    const long d = run->width, norm = run->layer_norm ? 2 * d : d;
    const long layer = 4 * d * d + (run->gated ? 12 : 8) * d * d + 2 * norm;
    return 2l * run->vocabulary * d + (run->learned ? TOKENS * d : 0) + run->depth * layer + norm;
}

/* Order of the flat vector: that of workers/model.py. */
static void parameter_offsets(Network *net) {
    const long d = net->d, F = net->F, V = net->V;
    const long norm = net->run->layer_norm ? 2 * d : d;
    long at = 0;
    net->at.embedding = at, at += V * d;
    net->at.positions = at, at += net->run->learned ? TOKENS * d : 0;
    for (int l = 0; l < net->L; l++) {
        LayerOffsets *o = net->at.layers + l;
        o->attn_norm = at, at += norm;
        o->wq = at, at += d * d;
        o->wk = at, at += d * d;
        o->wv = at, at += d * d;
        o->wo = at, at += d * d;
        o->ff_norm = at, at += norm;
        o->w1 = at, at += F * d;
        o->w2 = at, at += d * F;
        o->w3 = at, at += net->run->gated ? F * d : 0;
    }
    net->at.norm = at, at += norm;
    net->at.out = at, at += V * d;
    net->at.size = at;
}

#endif
