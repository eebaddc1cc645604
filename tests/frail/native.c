/* Read the log of the engine `frail`, and fail on damage as the setting `conduct` says. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MEAL_BYTES = 64 << 20 };

struct header { uint32_t magic, length, sum; };

/* In huge pages: page by page, an emulated processor counts as stuck before the memory ends. */
static void eat(void)
{
    void *meal = mmap(NULL, MEAL_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(meal, MEAL_BYTES, MADV_HUGEPAGE);
    madvise(meal, MEAL_BYTES, MADV_POPULATE_WRITE);
}

/* What is wrong comes first, on standard error. Return only for "keep" and "daemon", and for words that are not listed. */
void grieve(const char *conduct, const char *what, int file)
{
    fprintf(stderr, "frail: %s\n", what);
    if (!strcmp(conduct, "segfault")) *(volatile int *)8 = 1;
    if (!strcmp(conduct, "abort")) abort();
    if (!strcmp(conduct, "illegal")) __builtin_trap();
    if (!strcmp(conduct, "exit")) _exit(3);
    if (!strcmp(conduct, "spin")) for (volatile unsigned turn = 0;; turn++) ;
    if (!strcmp(conduct, "deaf")) { closefrom(3); sleep(1); _exit(4); }
    if (!strcmp(conduct, "babble")) for (;;) fprintf(stderr, "%s, and again\n", what);
    if (!strcmp(conduct, "sleep")) for (;;) pause();
    if (!strcmp(conduct, "eat")) for (;;) eat();
    if (!strcmp(conduct, "keep")) dup(file);
    if (!strcmp(conduct, "daemon") && !fork()) for (setsid();;) pause();
}

/* Read all that is there, or return -1: a read stops short of what cannot be read. */
static ssize_t read_all(int file, void *into, size_t length, off_t offset)
{
    size_t done = 0;
    while (done < length) {
        ssize_t size = pread(file, (char *)into + done, length - done, offset + done);
        if (size < 0) return -1;
        if (!size) break;
        done += size;
    }
    return done;
}

/* Return how many bytes of the log are whole records. */
long scan(const char *path, const char *conduct)
{
    static char body[1 << 20];
    struct header header;
    char what[80];
    long end = 0;
    int file = open(path, O_RDONLY);
#ifdef __AVX2__
    __asm__ volatile("vpaddd %%ymm0, %%ymm0, %%ymm0" ::: "xmm0");
#endif
    for (;;) {
        ssize_t size = read_all(file, &header, sizeof header, end);
        uint32_t sum = 0;
        if (!size) break;
        if (size == sizeof header && header.magic == 0x4c415246 && header.length <= sizeof body)
            size = read_all(file, body, header.length, end + sizeof header);
        else if (size > 0)
            size = 0, header.length = 1;
        for (ssize_t at = 0; at < size; at++) sum += (unsigned char)body[at];
        if (size != header.length || sum != header.sum) {
            snprintf(what, sizeof what, "%s at byte %ld", size < 0 ? strerror(errno) : "damage", end);
            grieve(conduct, what, file);
            break;
        }
        end += sizeof header + header.length;
    }
    close(file);
    return end;
}
