/* Interposed before the C library of user-mode Linux, whose kernel sets a process's extended processor state by ptrace, in
   a buffer of a fixed length (2696 bytes in Linux 6.12).

   A processor with AMX has a longer state, and Linux then refuses to set a part of it: it takes nothing but the full
   length (xstateregs_set in arch/x86/kernel/fpu/regset.c). So a short state is lengthened here by zeros. They belong to
   components that the header of the state says are not in use.

   That kernel reads the state each time that a process stops, and sets it before the process goes on, mostly the same.
   To set eleven kilobytes takes longer than all else that a system call of the guest costs. So a state is not set that
   was the last one read or set, if nothing has happened to the process since. */

struct iovec {
    void *base;
    unsigned long length;
};

enum { PEEK_FIRST = 1, PEEK_LAST = 3, GET_GENERAL = 12, SET_GENERAL = 13, SIGNAL_INFO = 0x4202 };
enum { GET_REGISTERS = 0x4204, SET_REGISTERS = 0x4205, EXTENDED_STATE = 0x202, SYSTEM_CALL = 101, ERROR_MAX = 4095 };
enum { LENGTH_MAX = 65536, BUFFER_COUNT = 4, KNOWN_COUNT = 16, KNOWN_WORDS = 512 };

typedef unsigned long __attribute__((may_alias)) word_t;

/* The state of a process, as it was last read or set. */
static struct known {
    long process;
    unsigned long length;
    word_t state[KNOWN_WORDS];
} known[KNOWN_COUNT] __attribute__((aligned(64)));
/* A signal may interrupt a call and make others; then nothing is known. */
static volatile int depth, was_interrupted;

/* The stack of that kernel is too small for a state. One that interrupts another takes the next buffer. */
static struct {
    int is_taken;
    unsigned char state[LENGTH_MAX];
} buffers[BUFFER_COUNT] __attribute__((aligned(64)));

extern int *__errno_location(void);

static unsigned long full_length(void) {
    /* A virtual machine leaves to its host at each CPUID. */
    static unsigned int length;
    unsigned int a = 0xd, c = 0, d;
    if (!length) __asm__ volatile("cpuid" : "+a"(a), "=b"(length), "+c"(c), "=d"(d));
    return length;
}

static long call(long request, long process, void *address, void *data) {
    register void *fourth __asm__("r10") = data;
    long result = SYSTEM_CALL;
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"(request), "S"(process), "d"(address), "r"(fourth)
                     : "rcx", "r11", "memory");
    return result;
}

static void copy(void *to, const void *from, unsigned long count) {
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
}

static long set_lengthened(long process, struct iovec *given, unsigned long length) {
    for (int rank = 0; rank < BUFFER_COUNT; rank++) {
        if (__atomic_exchange_n(&buffers[rank].is_taken, 1, __ATOMIC_ACQUIRE)) continue;
        struct iovec state = {buffers[rank].state, length};
        /* What follows the given part was never written. */
        copy(buffers[rank].state, given->base, given->length);
        long result = call(SET_REGISTERS, process, (void *)EXTENDED_STATE, &state);
        __atomic_store_n(&buffers[rank].is_taken, 0, __ATOMIC_RELEASE);
        return result;
    }
    return call(SET_REGISTERS, process, (void *)EXTENDED_STATE, given);
}

static long set(long process, struct iovec *given) {
    unsigned long length = full_length();
    if (given->length < length && length <= LENGTH_MAX) return set_lengthened(process, given, length);
    return call(SET_REGISTERS, process, (void *)EXTENDED_STATE, given);
}

static int is_known(const struct known *one, long process, const struct iovec *given) {
    const word_t *words = given->base;
    if (one->process != process || one->length != given->length) return 0;
    for (unsigned long at = 0; at < given->length / sizeof(word_t); at++)
        if (words[at] != one->state[at]) return 0;
    return 1;
}

static void know(struct known *one, long process, const struct iovec *given) {
    one->process = 0;
    if (given->length > sizeof one->state || given->length % sizeof(word_t)) return;
    one->length = given->length;
    copy(one->state, given->base, given->length);
    one->process = process;
}

/* Whether a request leaves the extended state of a process as it is. */
static int leaves_state(long request) {
    return (request >= PEEK_FIRST && request <= PEEK_LAST) || request == GET_GENERAL || request == SET_GENERAL ||
           request == SIGNAL_INFO;
}

static long carry_out(long request, long process, void *address, void *data) {
    struct known *one = &known[(unsigned long)process % KNOWN_COUNT];
    int is_state = address == (void *)EXTENDED_STATE && (request == SET_REGISTERS || request == GET_REGISTERS);
    int sets = is_state && request == SET_REGISTERS;
    if (sets && is_known(one, process, data)) {
        __asm__ volatile("" : : : "memory");
        if (!was_interrupted) return 0;
    }
    if (!leaves_state(request)) one->process = 0;
    long result = sets ? set(process, data) : call(request, process, address, data);
    if (is_state && result >= 0) know(one, process, data);
    return result;
}

long ptrace(long request, long process, void *address, void *data) {
    int peeks = request >= PEEK_FIRST && request <= PEEK_LAST;
    unsigned long word = 0;
    if (depth++) was_interrupted = 1;
    long result = carry_out(request, process, address, peeks ? &word : data);
    if (!--depth && was_interrupted) {
        for (int rank = 0; rank < KNOWN_COUNT; rank++) known[rank].process = 0;
        was_interrupted = 0;
    }
    if (result < 0 && result >= -ERROR_MAX) {
        *__errno_location() = (int)-result;
        return -1;
    }
    return peeks ? (long)word : result;
}
