/* Interposed before the C library of user-mode Linux, whose kernel sets a process's extended processor state by ptrace, in
   a buffer of a fixed length (2696 bytes in Linux 6.12).

   A processor with AMX has a longer state, and Linux then refuses to set a part of it: it takes nothing but the full
   length (xstateregs_set in arch/x86/kernel/fpu/regset.c). So a short state is lengthened here by zeros. They belong to
   components that the header of the state says are not in use. */

struct iovec {
    void *base;
    unsigned long length;
};

enum { PEEK_FIRST = 1, PEEK_LAST = 3, SET_REGISTERS = 0x4205, EXTENDED_STATE = 0x202, SYSTEM_CALL = 101, ERROR_MAX = 4095 };
enum { LENGTH_MAX = 65536, BUFFER_COUNT = 4 };

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

static long set_lengthened(long process, struct iovec *given, unsigned long length) {
    for (int rank = 0; rank < BUFFER_COUNT; rank++) {
        if (__atomic_exchange_n(&buffers[rank].is_taken, 1, __ATOMIC_ACQUIRE)) continue;
        struct iovec state = {buffers[rank].state, length};
        /* What follows the given part was never written. */
        for (unsigned long at = 0; at < given->length; at++) buffers[rank].state[at] = ((unsigned char *)given->base)[at];
        long result = call(SET_REGISTERS, process, (void *)EXTENDED_STATE, &state);
        __atomic_store_n(&buffers[rank].is_taken, 0, __ATOMIC_RELEASE);
        return result;
    }
    return call(SET_REGISTERS, process, (void *)EXTENDED_STATE, given);
}

long ptrace(long request, long process, void *address, void *data) {
    int peeks = request >= PEEK_FIRST && request <= PEEK_LAST;
    unsigned long word = 0, length;
    long result;
    if (request == SET_REGISTERS && address == (void *)EXTENDED_STATE &&
        ((struct iovec *)data)->length < (length = full_length()) && length <= LENGTH_MAX)
        result = set_lengthened(process, data, length);
    else
        result = call(request, process, address, peeks ? &word : data);
    if (result < 0 && result >= -ERROR_MAX) {
        *__errno_location() = (int)-result;
        return -1;
    }
    return peeks ? (long)word : result;
}
