/* The native engine's matrix products alone, in cache, against bare multiply-adds: see products.py. */
#include <stdio.h>
#include <time.h>

#include "network.h"

#define PANELS 8 /* a chunk of 128 columns */

#if defined(__aarch64__)
#define HOLD(vector) __asm__ volatile("" : "+w"(vector))
#else
#define HOLD(vector) __asm__ volatile("" : "+x"(vector))
#endif

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float *numbers(long count) {
    float *all = aligned_alloc(64, ((size_t)count * sizeof(float) + 63) / 64 * 64);
    for (long i = 0; i < count; i++) all[i] = 0.01f * (float)(i % 7);
    return all;
}

/* Multiply-adds a second of chains that nothing but their own latency holds up. */
static double bare_rate(void) {
    double best = 1e9;
    for (int round = 0; round < 30; round++) {
        vf sum[12], factor = splat(0.999f), term = splat(1e-3f);
        for (int i = 0; i < 12; i++) sum[i] = splat(0.1f * (float)i);
        const double start = now();
        for (int step = 0; step < 500000; step++) {
            for (int i = 0; i < 12; i++) sum[i] = sum[i] * factor + term;
            for (int i = 0; i < 12; i++) HOLD(sum[i]); /* no step is left out */
        }
        const double taken = now() - start;
        if (taken < best) best = taken;
    }
    return 12.0 * VL * 500000 / best;
}

#define SHARE(count, call)                                        \
    ({                                                            \
        double best = 1e9;                                        \
        for (int round = 0; round < 300; round++) {               \
            const double start = now();                           \
            for (int again = 0; again < 8; again++) call;         \
            const double taken = (now() - start) / 8;             \
            if (taken < best) best = taken;                       \
        }                                                         \
        (double)(count) * PANELS * LANES / best / bare;           \
    })

int main(void) {
    const int widths[] = {20, 24, 32, 48, 64, 96, 128};
    const double bare = bare_rate();
    printf("%.1f\n", 2 * bare / 1e9);
    for (int i = 0; i < 7; i++) {
        const int d = widths[i];
        float *w = numbers(8l * d * d), *b = numbers(PANELS * LANES * (d + STRIP));
        float *x = numbers(panel_stride(8 * d) * PANELS), *y = numbers(panel_stride(8 * d) * PANELS);
        float *gradient = numbers(8l * d * padded(d));
        printf("%d %.4f %.4f %.4f\n", d, SHARE(8 * d * d, multiply(8 * d, d, w, x, y, PANELS, 0)),
               SHARE(4 * d * d, multiply(d, 4 * d, w, x, y, PANELS, 0)),
               SHARE(8 * d * d, accumulate_outer(8 * d, d, y, b, PANELS, gradient)));
    }
    return 0;
}
