/* The few functions of numba's runtime that kernels call: memory of the arrays that live during a call, and ldexp. */
#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#include "caller.h"

/* The head of an allocation. numba's code counts in the first field and takes the address from `data`. */
typedef struct {
    size_t references;
    void *destructor;
    void *destructor_info;
    void *data;
    size_t size;
    void *allocator;
} MemInfo;

static _Atomic int64_t alive;

int64_t kernel_arrays_alive(void) { return alive; }

void *NRT_MemInfo_alloc_aligned(size_t size, unsigned align) {
    MemInfo *head = malloc(sizeof(MemInfo) + size + align);
    if (head == NULL)
        return NULL;
    size_t begin = (size_t)(head + 1);
    if (align > 1)
        begin = (begin + align - 1) / align * align;
    *head = (MemInfo){1, NULL, NULL, (void *)begin, size, NULL};
    alive++;
    return head;
}

void *NRT_MemInfo_alloc_safe_aligned(size_t size, unsigned align) { return NRT_MemInfo_alloc_aligned(size, align); }

void *NRT_MemInfo_alloc(size_t size) { return NRT_MemInfo_alloc_aligned(size, 1); }

void NRT_MemInfo_call_dtor(void *head) {
    alive--;
    free(head);
}

double numba_ldexp(double value, int exponent) { return ldexp(value, exponent); }
