/* The random streams of workers/streams.py, word for word. */
#ifndef GROKTIME_STREAMS_H
#define GROKTIME_STREAMS_H

#include "panels.h"

enum { PURPOSE_SHUFFLE = 5, PURPOSE_DROPOUT = 6 };

#define GOLDEN 0x9E3779B97F4A7C15ull

INLINE uint64_t mix64(uint64_t word) {
    word += GOLDEN;
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9ull;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBull;
    return word ^ (word >> 31);
}

static uint64_t shuffle_key(uint64_t seed, int64_t epoch) {
    return mix64(mix64(mix64(seed) ^ PURPOSE_SHUFFLE) ^ (uint64_t)epoch);
}

static uint64_t dropout_key(uint64_t seed, int64_t epoch, int64_t step, int64_t layer) {
    uint64_t key = mix64(mix64(mix64(seed) ^ PURPOSE_DROPOUT) ^ (uint64_t)epoch);
    return mix64(mix64(key ^ (uint64_t)step) ^ (uint64_t)layer);
}

/* The permutation of range(count): indices sorted by 31 random bits, ties by index. Sorting is by
 * three passes of 11 bits; each keeps equal keys in order, so ties fall to the lower index. */
static void permutation(uint64_t key, int count, uint64_t *work, uint64_t *spare, int32_t *order) {
    for (int i = 0; i < count; i++)
        work[i] = ((mix64(key + (uint64_t)i * GOLDEN) >> 33) << 32) | (uint32_t)i;
    for (int shift = 32; shift < 64; shift += 11) {
        int start[2048] = {0}, total = 0;
        for (int i = 0; i < count; i++) start[(work[i] >> shift) & 2047]++;
        for (int b = 0; b < 2048; b++) {
            const int size = start[b];
            start[b] = total;
            total += size;
        }
        for (int i = 0; i < count; i++) spare[start[(work[i] >> shift) & 2047]++] = work[i];
        uint64_t *swap = work;
        work = spare;
        spare = swap;
    }
    for (int i = 0; i < count; i++) order[i] = (int32_t)(work[i] & 0xFFFFFFFFu);
}

INLINE vu mix32(vu word) {
    word = (word ^ (word >> 16)) * 0x7FEB352Du;
    word = (word ^ (word >> 15)) * 0x846CA68Bu;
    return word ^ (word >> 16);
}

/* Dropout of one (epoch, step, layer): lanes below `threshold` are dropped, others scaled. */
typedef struct {
    uint32_t low, high;  /* halves of the key */
    int32_t threshold;   /* of 65536; 0 turns dropout off */
    float scale;
} Dropout;

INLINE Dropout dropout_of(uint64_t key, int32_t threshold, float scale) {
    return (Dropout){(uint32_t)key, (uint32_t)(key >> 32), threshold, scale};
}

/* Factors (0 or scale) of the units 2w and 2w + 1, where `counter` holds each lane's word index. */
INLINE void dropout_pair(const Dropout *dropout, vu counter, vf *even, vf *odd) {
    const vu word = mix32(mix32(counter ^ dropout->low) + dropout->high);
    const vi low = (vi)(word & 0xFFFFu), high = (vi)(word >> 16);
    const vf scale = splat(dropout->scale);
    *even = (vf)((vi)scale & (low >= dropout->threshold));
    *odd = (vf)((vi)scale & (high >= dropout->threshold));
}

#endif
