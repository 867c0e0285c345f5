/* What the parts of the library know of each other. */
#include <stdint.h>

/* A kernel. `arguments` has a code for each of its arguments: an array is its number of dimensions and a letter of its
 * elements; a scalar is l (int64), L (uint64), u (uint32), f (float64) or b (bool); a tuple has its items in parentheses.
 * `result` has a letter for each value that the kernel returns. `call` takes them in slots of eight bytes: an array is its
 * address and its shape. It returns 0, or another number if an allocation failed. */
typedef struct {
    const char *name;
    const char *arguments;
    const char *result;
    int count; /* Number of arguments. */
    int keeps_gil; /* One of the three below. */
    int (*call)(const int64_t *slots, int64_t *results);
} Entry;

/* IF_SMALL: a call over small arrays keeps the GIL. tsdb/codec/jit.py has the same numbers. */
enum { NEVER, ALWAYS, IF_SMALL };

/* Of the library: its kernels, the level of processors that it was made for, and a feature of that level which this
 * processor lacks, or NULL. */
extern const Entry entries[];
extern const char *const level;
const char *missing_feature(void);

int64_t kernel_arrays_alive(void);
