/* Preloaded into a node: a process that is named in $CHAOS_STARVED gets no more memory.
 *
 * It is named by a symbolic link called after its number, whose target is the smallest request in
 * bytes that is refused: reading a link needs no memory. Smaller requests than SMALLEST are never
 * looked at, so that most cost nothing more. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SMALLEST = 1024 };

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

static int refused(size_t size) {
    if (size < SMALLEST) return 0;
    const char *folder = getenv("CHAOS_STARVED");
    char path[512], text[32];
    if (!folder || snprintf(path, sizeof path, "%s/%d", folder, (int)getpid()) >= (int)sizeof path)
        return 0;
    const ssize_t length = readlink(path, text, sizeof text - 1);
    if (length <= 0) return 0;
    text[length] = 0;
    if (size < (size_t)atol(text)) return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size) { return refused(size) ? NULL : __libc_malloc(size); }

void *calloc(size_t count, size_t size) {
    return refused(count * size) ? NULL : __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size) {
    return refused(size) ? NULL : __libc_realloc(memory, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
    return refused(size) ? NULL : __libc_memalign(alignment, size);
}

void *memalign(size_t alignment, size_t size) { return aligned_alloc(alignment, size); }

int posix_memalign(void **memory, size_t alignment, size_t size) {
    void *found = aligned_alloc(alignment, size);
    if (!found) return ENOMEM;
    *memory = found;
    return 0;
}
