/* A log with group commit and a bug, or without one: the seed says which. The same as the script groups. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEAVES_EARLY = 1, TAKES_ALL, MENDED };
enum { SIZE = 600, CLIENTS_MAX = 16 };
static int seed, count, client_count, file, written, synced, is_syncing;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_cond_t said_ok = PTHREAD_COND_INITIALIZER;
static int ok_count[CLIENTS_MAX];

static void must(int is_true, const char *what) {
    if (!is_true) { perror(what); exit(1); }
}

static void record(int number, char *text) {
    unsigned sum = 2166136261u;
    memset(text, 'x', SIZE);
    text[sprintf(text, "%d %d ", number, seed)] = 'x';
    for (int i = 0; i < SIZE - 9; i++) sum = (sum ^ (unsigned char)text[i]) * 16777619u;
    char end[10];
    sprintf(end, "%08x\n", sum);
    memcpy(text + SIZE - 9, end, 9);
}

/* Sync what has been written until now. What is written meanwhile is for the next leader. */
static void lead(void) {
    is_syncing = 1;
    int covered = written;
    pthread_mutex_unlock(&lock);
    must(fdatasync(file) == 0, "sync");
    pthread_mutex_lock(&lock);
    synced = seed == TAKES_ALL ? written : covered;
    is_syncing = 0;
    pthread_cond_broadcast(&changed);
}

static void commit(int number) {
    char text[SIZE];
    record(number, text);
    pthread_mutex_lock(&lock);
    must(write(file, text, SIZE) == SIZE, "write");
    int own = ++written;
    while (synced < own) {
        if (!is_syncing) lead();
        else if (seed == LEAVES_EARLY) break;
        else pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
}

static void say(const char *word, int number) {
    char line[32];
    int length = sprintf(line, "%s %d\n", word, number);
    must(write(1, line, length) == length, "say");
}

static void *client(void *first) {
    int rank = (int)(long)first % client_count;
    for (int number = (int)(long)first, turn = 1; number <= count; number += client_count, turn++) {
        say("begin", number);
        commit(number);
        say("ack", number);
        pthread_mutex_lock(&lock);
        while (ok_count[rank] < turn) pthread_cond_wait(&said_ok, &lock);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

static void run(void) {
    pthread_t threads[CLIENTS_MAX];
    file = open("log", O_WRONLY | O_CREAT | O_APPEND, 0644);
    must(file >= 0 && fsync(open(".", O_RDONLY)) == 0, "log");
    for (long i = 0; i < client_count; i++) pthread_create(&threads[i], NULL, client, (void *)(i + 1));
    for (int i = 0, number; i < count; i++) {
        must(scanf(" ok %d", &number) == 1, "ok");
        pthread_mutex_lock(&lock);
        ok_count[number % client_count]++;
        pthread_cond_broadcast(&said_ok);
        pthread_mutex_unlock(&lock);
    }
    for (int i = 0; i < client_count; i++) pthread_join(threads[i], NULL);
}

static void recover(void) {
    char text[SIZE], expected[SIZE];
    int log = open("log", O_RDONLY);
    while (log >= 0 && read(log, text, SIZE) == SIZE) {
        int number = atoi(memcpy(expected, text, SIZE));
        record(number, expected);
        if (number > 0 && !memcmp(text, expected, SIZE)) printf("have %d\n", number);
    }
}

int main(int argc, char **argv) {
    seed = atoi(getenv("RIG_SEED"));
    count = atoi(getenv("RIG_TRANSACTIONS"));
    client_count = atoi(getenv("RIG_CLIENTS"));
    if (argc > 1 && !strcmp(argv[1], "run")) run();
    else recover();
}
