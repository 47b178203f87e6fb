/* Whole epochs of one run: shuffle, steps of AdamW, evaluation. See README.md for the algebra. */
#include "optimiser.h"
#include "passes.h"

#if defined(__GNUC__)
#define EXPORT __attribute__((visibility("default")))
#else
#define EXPORT
#endif

/* One epoch's numbers: METRICS of service/spec.py. */
typedef struct {
    float train_loss;
    int32_t train_correct, train_correct_eval;
    float val_loss;
    int32_t val_correct;
    float bits, weight_norm;
} Metrics;

/* Memory that grows to the largest run it has served and is kept between calls. */
typedef struct {
    char *memory;
    size_t size;
} Workspace;

/* Subnormal numbers are many times slower and mean nothing here; the caller's mode comes back. */
#if defined(__SSE__)
static unsigned flush_subnormals(void) {
    const unsigned before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(before | 0x8040);
    return before;
}
static void restore_subnormals(unsigned before) { __builtin_ia32_ldmxcsr(before); }
#elif defined(__aarch64__)
static uint64_t flush_subnormals(void) {
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"(before | (1ull << 24)));
    return before;
}
static void restore_subnormals(uint64_t before) {
    __asm__ volatile("msr fpcr, %0" : : "r"(before));
}
#else
static int flush_subnormals(void) { return 0; }
static void restore_subnormals(int before) { (void)before; }
#endif

static void lay_out_columns(Network *net, Arena *arena, Columns *set, int panels, int positions) {
    const int d = net->d, F = net->F;
    set->panels = panels;
    set->layers = take(arena, sizeof(LayerColumns) * net->L);
    set->example = take(arena, sizeof(uint32_t) * panels * LANES);
    for (int i = 0; i < positions; i++) {
        set->token[i] = take(arena, sizeof(int32_t) * panels * LANES);
        set->x[i] = take_panels(arena, d, panels);
        set->dx[i] = take_panels(arena, d, panels);
        set->vo[i] = take_panels(arena, d, panels);
    }
    for (int l = 0; l < net->L; l++) {
        LayerColumns unused, *s = arena->base ? set->layers + l : &unused;
        for (int i = 0; i < positions; i++) {
            s->r_attn[i] = take_floats(arena, panels * LANES);
            s->r_ff[i] = take_floats(arena, panels * LANES);
            for (int j = 0; j <= i; j++) s->w[i][j] = take_floats(arena, panels * LANES);
            float **rows[] = {s->n_attn, s->q, s->k, s->t, s->c, s->n_ff};
            for (int r = 0; r < 6; r++) rows[r][i] = take_panels(arena, d, panels);
            s->u_attn[i] = take_panels(arena, net->run->layer_norm ? d : 0, panels);
            s->u_ff[i] = take_panels(arena, net->run->layer_norm ? d : 0, panels);
            s->h[i] = take_panels(arena, net->H, panels);
            s->g[i] = take_panels(arena, F, panels);
        }
    }
}

static Linear take_linear(Arena *arena, int rows, int columns, int dw_transposed) {
    Linear linear = {.rows = rows, .columns = columns, .dw_transposed = dw_transposed};
    linear.w = take_floats(arena, (long)rows * columns);
    linear.t = take_floats(arena, (long)rows * columns);
    linear.dw = take_floats(arena, gradient_size(&linear));
    return linear;
}

static void lay_out_tables(Network *net, Arena *arena) {
    Tables *t = &net->tables;
    const int V = net->U, d = net->d, panels = panels_of(V);
    float **panel[] = {&t->n, &t->q, &t->k, &t->vo, &t->panel};
    for (int i = 0; i < 5; i++) *panel[i] = take_panels(arena, d, panels);
    if (net->run->layer_norm) t->u = take_panels(arena, d, panels);
    if (net->run->learned) t->placed = take_floats(arena, (long)V * d);
    float **table[] = {&t->vo_tm, &t->de_tm, &t->dvo_tm, &t->dq_tm};
    for (int i = 0; i < 4; i++) *table[i] = take_floats(arena, (long)V * d);
    t->r = take_floats(arena, panels * LANES);
    t->turned = take_floats(arena, (long)V * padded(d));
    for (int o = 0; o < offsets_of(net); o++) {
        t->q_tm[o] = take_floats(arena, (long)V * d);
        t->s[o] = take_panels(arena, V, panels);
        t->ds[o] = take_panels(arena, V, panels);
    }
}

static void lay_out_shared(Network *net, Arena *arena) {
    const long V = net->V, d = net->d, F = net->F;
    for (int i = 0; i < 2; i++) {
        net->share.x_tm[i] = take_floats(arena, V * d);
        net->share.dx_tm[i] = take_floats(arena, V * d);
        net->share.p_tm[i] = take_floats(arena, V * F);
        net->share.dp_tm[i] = take_floats(arena, V * F);
        float **n = net->share.n_tm[i] = take(arena, sizeof(float *) * net->L);
        float **dn = net->share.dn_tm[i] = take(arena, sizeof(float *) * net->L);
        for (int l = 0; l < net->L; l++) {
            float *value = take_floats(arena, V * d), *gradient = take_floats(arena, V * d);
            if (arena->base) n[l] = value, dn[l] = gradient;
        }
    }
}

/* Columns of a chunk: its working set should stay in a second-level cache. */
static int chunk_columns(const Run *run) {
    const int columns = 128;
    const int batch = panels_of(run->batch_size < run->n_train ? run->batch_size : run->n_train);
    return columns < batch * LANES ? columns : batch * LANES;
}

static void lay_out(Network *net, const Run *run, Arena *arena) {
    memset(net, 0, sizeof *net);
    net->run = run;
    net->V = run->vocabulary, net->d = run->width, net->F = 4 * run->width, net->L = run->depth;
    net->U = run->learned ? TOKENS * net->V : net->V;
    net->H = run->gated ? 2 * net->F : net->F;
    net->chunk = chunk_columns(run);
    const int V = net->V, d = net->d, F = net->F, L = net->L, U = net->U, H = net->H;
    const int panels = panels_of(net->chunk), tokens = panels_of(V), rows = panels_of(U);
    const int most = panels > rows ? panels : rows;
    const int n_most = run->n_train > run->n_val ? run->n_train : run->n_val;

    net->at.layers = take(arena, sizeof(LayerOffsets) * L);
    if (arena->base) parameter_offsets(net);
    net->rope_cos = take_floats(arena, TOKENS * (d / 2));
    net->rope_sin = take_floats(arena, TOKENS * (d / 2));
    net->step = take(arena, sizeof(StepLayer) * L);
    for (int l = 0; l < L; l++) {
        StepLayer unused, *s = arena->base ? net->step + l : &unused;
        s->wq = take_linear(arena, d, d, 0);
        s->wk = take_linear(arena, d, d, 0);
        s->wv = take_linear(arena, d, d, 0);
        s->wo = take_linear(arena, d, d, 0);
        s->qk = take_linear(arena, d, d, 0);
        s->vo = take_linear(arena, d, d, 0);
        s->w13 = take_linear(arena, H, d, 0);
        s->w2 = take_linear(arena, d, F, 1);
    }
    net->out = take_linear(arena, V, d, 0);
    net->strips = take_floats(arena, (long)most * LANES * (d + STRIP));
    net->flat = take_floats(arena, (long)d * (H > U ? H : U));
    for (int i = 0; i < 2; i++) net->square[i] = take_panels(arena, d, panels_of(d));
    net->grad = take_floats(arena, parameter_count(run));
    net->ones = take_floats(arena, d);
    net->no_gain = take_floats(arena, d);
    net->masks = take(arena, sizeof(Dropout) * L);
    lay_out_tables(net, arena);
    lay_out_shared(net, arena);
    lay_out_columns(net, arena, &net->first_token, tokens, 2);
    lay_out_columns(net, arena, &net->examples, panels, TOKENS);
    net->n_final = take_panels(arena, d, panels);
    net->u_final = take_panels(arena, run->layer_norm ? d : 0, panels);
    net->r_final = take_floats(arena, panels * LANES);
    net->logits = take_panels(arena, V, panels);
    for (int i = 0; i < 6; i++) net->scratch_d[i] = take_panels(arena, d, most);
    net->scratch_f = take_panels(arena, F, most);
    net->labels = take(arena, sizeof(int32_t) * panels * LANES);
    net->order = take(arena, sizeof(int32_t) * n_most);
    net->sort_work = take(arena, sizeof(uint64_t) * n_most);
    net->sort_spare = take(arena, sizeof(uint64_t) * n_most);
}

/* Lays the run out in the workspace and fills what stays the same for the whole call. */
static int prepare(Workspace *workspace, Network *net, const Run *run) {
    Arena arena = {NULL, 0};
    lay_out(net, run, &arena);
    if (arena.used > workspace->size) {
        free(workspace->memory);
        workspace->size = 0;
        workspace->memory = aligned_alloc(64, arena.used);
        if (!workspace->memory) return -1;
        workspace->size = arena.used;
    }
    /* A run must not see what another left: padding is read before it is written. */
    memset(workspace->memory, 0, arena.used);
    arena = (Arena){workspace->memory, 0};
    lay_out(net, run, &arena);

    const int half = net->d / 2;
    for (int o = 0; o < TOKENS; o++)
        for (int m = 0; m < half; m++) {
            const double angle = o * pow(ROPE_BASE, -2.0 * m / net->d);
            net->rope_cos[o * half + m] = (float)cos(angle);
            net->rope_sin[o * half + m] = (float)sin(angle);
        }
    for (int c = 0; c < net->V; c++) net->first_token.token[0][c] = c;
    for (int f = 0; f < net->d; f++) net->ones[f] = 1.0f;
    for (int c = 0; c < net->first_token.panels * LANES; c++)
        net->first_token.token[1][c] = table_row(net, 1, run->x_train[1]);
    return 0;
}

/* Which positions depend on the first token alone, if that saves work for `examples`. */
static void share_positions(Network *net, int examples, int training) {
    const int worth = net->L > 1 && net->V < examples;
    net->shared = !worth ? 0 : net->run->pairs ? 2 : 1;
    net->training = training;
    net->dropout_on = training && net->run->dropout_threshold > 0;
}

/* Takes examples index[0..count-1] as the chunk's columns; padding repeats the token 0. */
static void load_chunk(Network *net, const int32_t *x, const int32_t *y, const int32_t *index,
                       int first, int count) {
    Columns *set = &net->examples;
    set->panels = panels_of(count);
    for (int c = 0; c < set->panels * LANES; c++) {
        const long row = c < count ? (index ? index[first + c] : first + c) : -1;
        for (int i = 0; i < TOKENS; i++)
            set->token[i][c] = table_row(net, i, row < 0 ? 0 : x[row * TOKENS + i]);
        net->labels[c] = row < 0 ? 0 : y[row];
        set->example[c] = (uint32_t)(first + c);
    }
}

/* Loss, counts and gradients of one batch (indices `batch`), at the current weights. */
static void batch_gradients(Network *net, const int32_t *batch, int count, int64_t epoch,
                            int64_t step, Tally *tally) {
    const Run *run = net->run;
    share_positions(net, count, 1);
    for (int l = 0; l < net->L; l++)
        net->masks[l] = dropout_of(dropout_key(run->seed, epoch, step, l),
                                   run->dropout_threshold, run->dropout_scale);
    fold_gains(net);
    zero_gradients(net);
    tables_forward(net);
    tables_zero_gradients(net);
    if (net->shared) shared_forward(net);
    for (int first = 0; first < count; first += net->chunk) {
        const int size = count - first < net->chunk ? count - first : net->chunk;
        load_chunk(net, run->x_train, run->y_train, batch, first, size);
        examples_forward(net, &net->examples);
        head(net, &net->examples, size, 1.0f / (float)count, tally);
        examples_backward(net, &net->examples);
    }
    if (net->shared) shared_backward(net);
    tables_backward(net);
    unfold_gains(net);
}

/* Loss and counts of a set without dropout, at the current weights. */
static Tally evaluate(Network *net, const int32_t *x, const int32_t *y, int count) {
    Tally tally = {0.0, 0};
    share_positions(net, count, 0);
    fold_gains(net);
    tables_forward(net);
    if (net->shared) shared_forward(net);
    for (int first = 0; first < count; first += net->chunk) {
        const int size = count - first < net->chunk ? count - first : net->chunk;
        load_chunk(net, x, y, NULL, first, size);
        examples_forward(net, &net->examples);
        head(net, &net->examples, size, 0.0f, &tally);
    }
    return tally;
}

static void train_epoch(Network *net, int64_t epoch, const int32_t *order, Metrics *metrics) {
    const Run *run = net->run;
    const int n = run->n_train;
    const int64_t steps = (n + run->batch_size - 1) / run->batch_size;
    if (!order) {
        permutation(shuffle_key(run->seed, epoch), n, net->sort_work, net->sort_spare, net->order);
        order = net->order;
    }
    Tally online = {0.0, 0};
    for (int64_t step = 0; step < steps; step++) {
        const int first = (int)(step * run->batch_size);
        const int size = n - first < run->batch_size ? n - first : run->batch_size;
        batch_gradients(net, order + first, size, epoch, step, &online);
        adamw(net, (epoch - 1) * steps + step + 1);
    }
    *metrics = (Metrics){(float)(online.loss / n), (int32_t)online.correct, -1, NAN, -1, NAN,
                         (float)weight_norm(net)};
    if (run->evaluates_train) {
        const Tally train = evaluate(net, run->x_train, run->y_train, n);
        metrics->train_correct_eval = (int32_t)train.correct;
        metrics->bits = (float)(n * log2((double)net->V) - train.loss / log(2.0));
    }
    if (run->n_val) {
        const Tally held_out = evaluate(net, run->x_val, run->y_val, run->n_val);
        metrics->val_loss = (float)(held_out.loss / run->n_val);
        metrics->val_correct = (int32_t)held_out.correct;
    }
}

EXPORT Workspace *groktime_workspace(void) { return calloc(1, sizeof(Workspace)); }

EXPORT void groktime_free(Workspace *workspace) {
    free(workspace->memory);
    free(workspace);
}

/* Trains epochs first_epoch .. first_epoch + epochs - 1 (counted from 1). `orders` [epochs][n]
 * replaces the shuffles where given. Returns 0, or -1 when memory is short. */
EXPORT int groktime_train(Workspace *workspace, const Run *run, int64_t first_epoch,
                          int64_t epochs, const int32_t *orders, Metrics *metrics) {
    Network net;
    if (prepare(workspace, &net, run)) return -1;
    const __typeof__(flush_subnormals()) mode = flush_subnormals();
    for (int64_t e = 0; e < epochs; e++)
        train_epoch(&net, first_epoch + e, orders ? orders + e * run->n_train : NULL, metrics + e);
    restore_subnormals(mode);
    return 0;
}

/* Mean loss of one batch and its gradients (flat, in the order of the weights). */
EXPORT int groktime_gradients(Workspace *workspace, const Run *run, const int32_t *batch,
                              int32_t count, int64_t epoch, int64_t step, double *loss,
                              float *gradients) {
    Network net;
    if (prepare(workspace, &net, run)) return -1;
    const __typeof__(flush_subnormals()) mode = flush_subnormals();
    Tally tally = {0.0, 0};
    batch_gradients(&net, batch, count, epoch, step, &tally);
    *loss = tally.loss / count;
    memcpy(gradients, net.grad, (size_t)net.at.size * sizeof(float));
    restore_subnormals(mode);
    return 0;
}

/* What the compiler was told the processor can do. */
EXPORT const char *groktime_instructions(void) {
#if defined(__AVX512F__)
    return "AVX-512";
#elif defined(__AVX2__) && defined(__FMA__)
    return "AVX2 FMA";
#elif defined(__AVX__)
    return "AVX";
#elif defined(__SSE2__)
    return "SSE2";
#elif defined(__ARM_NEON)
    return "NEON";
#else
    return "no vectors";
#endif
}

/* The streams, so that they can be compared with workers/streams.py. */
EXPORT void groktime_permutation(uint64_t seed, int64_t epoch, int32_t count, int32_t *order) {
    uint64_t *work = malloc(2 * sizeof(uint64_t) * (size_t)count);
    permutation(shuffle_key(seed, epoch), count, work, work + count, order);
    free(work);
}
