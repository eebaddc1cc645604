/* A log with group commit under the rig, in C: one client syncs for all that have written, the others wait for it.

   It shows what the protocol can say: several clients at work, a step by name, and a transaction that failed.
   Build it with: cc -static -pthread -o grouplog grouplog.c */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 600, CLIENTS_MAX = 16 };
static int seed, count, after, client_count = 1;
static int file, folder, written, synced, is_syncing, failure_count;
static int ok_count[CLIENTS_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void must(int is_true, const char *what) {
    if (!is_true) { perror(what); exit(1); }
}

static void record(int number, char *text) {
    unsigned sum = 2166136261u;
    char end[10];
    memset(text, 'x', SIZE);
    text[sprintf(text, "%d %d ", number, seed)] = 'x';
    for (int i = 0; i < SIZE - 9; i++) sum = (sum ^ (unsigned char)text[i]) * 16777619u;
    sprintf(end, "%08x\n", sum);
    memcpy(text + SIZE - 9, end, 9);
}

/* Read the next record; return its number, 0 if there is none that is whole. */
static int next(int log) {
    char text[SIZE], expected[SIZE];
    if (read(log, text, SIZE) != SIZE) return 0;
    int number = atoi(text);
    record(number, expected);
    return memcmp(text, expected, SIZE) ? 0 : number;
}

/* Append a record and wait until it is durable; return whether it is. */
static int commit(int number) {
    char text[SIZE];
    record(number, text);
    pthread_mutex_lock(&lock);
    int failures = failure_count, is_written = write(file, text, SIZE) == SIZE;
    int own = written + SIZE;
    if (is_written) written = own;
    else must(!ftruncate(file, written), "truncate"), errno = ENOSPC;
    while (is_written && synced < own && failures == failure_count) {
        if (is_syncing) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        /* Sync what has been written until now. What is written meanwhile is for the next leader. */
        is_syncing = 1;
        int covered = written;
        pthread_mutex_unlock(&lock);
        int is_durable = fdatasync(file) == 0;
        pthread_mutex_lock(&lock);
        is_syncing = 0;
        if (is_durable) synced = covered;
        else {
            /* What was written is in doubt, and a second sync would not say so. */
            failure_count++;
            written = synced;
            must(!ftruncate(file, written), "truncate");
        }
        pthread_cond_broadcast(&changed);
    }
    int is_kept = is_written && failures == failure_count;
    if (is_written && !is_kept) errno = EIO;
    pthread_mutex_unlock(&lock);
    return is_kept;
}

/* Write durably up to which record the log was whole; return whether that could be done. */
static int checkpoint(int number) {
    pthread_mutex_lock(&lock);
    int new = open("new", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    int is_done = new >= 0 && dprintf(new, "%d\n", number) > 0 && fsync(new) == 0 && rename("new", "checkpoint") == 0
        && fsync(folder) == 0;
    if (new >= 0) close(new);
    pthread_mutex_unlock(&lock);
    return is_done;
}

static void say(const char *format, int number, const char *words) {
    char line[100];
    int length = snprintf(line, sizeof line, format, number, words);
    must(write(1, line, length) == length, "say");
}

static void *client(void *first) {
    int rank = (int)(long)first % client_count;
    for (int number = (int)(long)first, turn = 1; number <= count; number += client_count, turn++) {
        int is_step = number % 10 == 0;
        if (client_count > 1) say("begin %d\n", number, "");
        if (commit(number) && (!is_step || checkpoint(number))) say("ack %d%s\n", number, is_step ? " checkpoint" : "");
        else say("fail %d %s\n", number, strerror(errno));
        pthread_mutex_lock(&lock);
        while (ok_count[rank] < turn) pthread_cond_wait(&changed, &lock);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

static void run(void) {
    pthread_t threads[CLIENTS_MAX];
    char answer[32];
    file = open("log", O_RDWR | O_CREAT | O_APPEND, 0644);
    folder = open(".", O_RDONLY);
    /* What a cut has left after the last whole record goes, before new ones are appended. */
    while (next(file)) written += SIZE;
    synced = written;
    /* The name of the file is durable only with its directory. */
    must(file >= 0 && !ftruncate(file, written) && fsync(folder) == 0, "log");
    for (long i = 0; i < client_count; i++) pthread_create(&threads[i], NULL, client, (void *)(after + i + 1));
    for (int number = after + 1; number <= count && fgets(answer, sizeof answer, stdin); number++) {
        pthread_mutex_lock(&lock);
        /* `ok`, or with several clients `ok i`. */
        ok_count[(client_count > 1 ? atoi(answer + 3) : number) % client_count]++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    for (int i = 0; i < client_count; i++) pthread_join(threads[i], NULL);
}

static void recover(void) {
    int log = open("log", O_RDONLY), pointer = open("checkpoint", O_RDONLY), named = 0, is_there = 0;
    char text[16] = "";
    /* If only the program was killed, this may not be on the disk yet. What is shown must be. */
    must(log < 0 || fsync(log) == 0, "sync");
    if (pointer >= 0 && read(pointer, text, sizeof text - 1) > 0) named = atoi(text);
    for (int number; log >= 0 && (number = next(log)); is_there |= number == named) printf("have %d\n", number);
    if (named && !is_there) printf("torn %d the checkpoint names a record that is not there\n", named);
}

int main(int argc, char **argv) {
    for (int i = 2; i + 1 < argc; i += 2) {
        int value = atoi(argv[i + 1]);
        if (!strcmp(argv[i], "--seed")) seed = value;
        else if (!strcmp(argv[i], "--transactions")) count = value;
        else if (!strcmp(argv[i], "--clients")) client_count = value;
        else if (!strcmp(argv[i], "--after")) after = value;
        else return 2;
    }
    if (argc > 1 && !strcmp(argv[1], "run")) run();
    else if (argc == 2 && getenv("RIG_SEED")) seed = atoi(getenv("RIG_SEED")), recover();
    else return 2;
}
