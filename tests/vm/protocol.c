/* A log with a bug, or without one: the seed says which. The same as the script protocol. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GOES_ON = 1, TAKES_BACK, TRUSTS, COPIES, EMPTIES, REPLACES, HALVES, DROPS };
enum { SIZE = 16384, MANY = 1000 };
static int seed, numbers[MANY], number_count;

static void must(int is_true, const char *what) {
    if (!is_true) { perror(what); exit(1); }
}

static void record(int number, char *text) {
    memset(text, 'x', SIZE);
    memset(text + sprintf(text, "%d %d ", number, seed), 'x', 1);
    text[SIZE - 1] = '\n';
}

/* Find the numbers of the first records that are whole; return whether something follows them. */
static int whole(void) {
    char text[SIZE], expected[SIZE];
    int log = open("log", O_RDONLY);
    number_count = 0;
    if (log < 0) return 0;
    for (ssize_t size; (size = read(log, text, SIZE)) > 0;) {
        int number = atoi(memcpy(expected, text, SIZE));
        record(number, expected);
        if (size < SIZE || number < 1 || memcmp(text, expected, SIZE)) return 1;
        numbers[number_count++] = number;
    }
    close(log);
    return 0;
}

static void sync_folder(void) { must(fsync(open(".", O_RDONLY)) == 0, "sync"); }

static int put(int log, int number) {
    char text[SIZE];
    record(number, text);
    int half = seed == HALVES || seed == DROPS ? SIZE / 2 : SIZE;
    for (int at = 0; at < SIZE; at += half)
        if (write(log, text + at, half) != half || fsync(log)) return -1;
    return 0;
}

static void write_all(int log, int after) {
    char text[SIZE];
    for (int i = 0; i < number_count && numbers[i] <= after; i++) {
        record(numbers[i], text);
        must(write(log, text, SIZE) == SIZE, "write");
    }
    must(fsync(log) == 0, "sync");
}

static void replace(int after) {
    int new = open("new", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    must(new >= 0, "new");
    write_all(new, after);
    must(rename("new", "log") == 0, "rename");
    sync_folder();
}

static int log_of(void) {
    int log = open("log", O_RDWR | O_CREAT | O_APPEND, 0644);
    must(log >= 0, "log");
    return log;
}

static void run(int count, int after) {
    whole();
    if (seed == COPIES && after) replace(after);
    int log = log_of();
    sync_folder();
    for (int number = after + 1; number <= count; number++) {
        char answer[8], *step = "", all[SIZE * 100];
        struct stat before;
        must(fstat(log, &before) == 0, "stat");
        if ((seed == EMPTIES || seed == REPLACES) && number % 4 == 0) {
            step = " compaction";
            numbers[number_count++] = number;
            if (seed == EMPTIES) {
                must(ftruncate(log, 0) == 0 && fsync(log) == 0, "truncate");
                write_all(log, number);
            } else {
                replace(number);
                log = log_of();
            }
        } else if (pread(log, all, sizeof all, 0) < 0 || put(log, number) < 0) {
            if (seed == TRUSTS || seed == COPIES) must(0, "put");
            if (seed == TAKES_BACK) must(ftruncate(log, before.st_size) == 0, "take back");
            printf("fail %d %s\n", number, strerror(errno));
            step = NULL;
        } else
            numbers[number_count++] = number;
        if (step) printf("ack %d%s\n", number, step);
        fflush(stdout);
        must(fgets(answer, sizeof answer, stdin) && !strcmp(answer, "ok\n"), "no ok");
    }
}

int main(int argc, char **argv) {
    seed = atoi(getenv("RIG_SEED"));
    if (!strcmp(argv[1], "run")) {
        run(atoi(argv[5]), argc == 8 ? atoi(argv[7]) : 0);
        return 0;
    }
    int has_rest = whole();
    for (int i = 0; i < number_count; i++) printf("have %d\n", numbers[i]);
    if (has_rest && seed == HALVES) printf("torn %d half of it\n", number_count + 1);
}
