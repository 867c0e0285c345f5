/* The library's Python module: it calls the kernels that are linked with it.
 *
 * Of Python only the stable ABI is used, so one library serves every version from 3.11 on. An array is read from
 * numpy's structure, whose layout is the same in all of numpy 2: the buffer protocol would cost 0.1 us an array.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#include <numpy/ndarraytypes.h>

#include "caller.h"

typedef struct {
    PyObject_HEAD
    const Entry *entry;
} Kernel;

typedef struct {
    const Entry *entry;
    const char *code; /* What the kernel takes next: see caller.h. */
    int64_t *slot;    /* The slot that is filled next. */
    Py_ssize_t place; /* The argument's number in the call. */
    int64_t elements; /* Of all arrays so far. */
} Filling;

/* A call over fewer elements takes microseconds: a thread that gives the GIL up for less than that mostly finds it
 * taken, sleeps, and must be woken. */
#define SMALL_ELEMENTS (1 << 15)

static PyTypeObject *array_type;

static int refused_array(const Filling *filling, PyArrayObject *array, const char *wanted, int dimensions) {
    const char *layout = PyArray_CHKFLAGS(array, NPY_ARRAY_C_CONTIGUOUS) ? "" : ", not contiguous";
    PyErr_Format(PyExc_TypeError, "%s: argument %zd is an array of %S with %d dimension(s)%s; it takes %s with %d, contiguous",
                 filling->entry->name, filling->place, (PyObject *)PyArray_DESCR(array), PyArray_NDIM(array), layout,
                 wanted, dimensions);
    return -1;
}

static int refused(const Filling *filling, PyObject *argument, const char *wanted) {
    PyObject *type = PyType_GetName(Py_TYPE(argument));
    PyErr_Format(PyExc_TypeError, "%s: argument %zd is of type %V; it takes %s", filling->entry->name, filling->place,
                 type, "?", wanted);
    Py_XDECREF(type);
    return -1;
}

/* Name and numbers of a type of elements. Two C types have eight bytes. */
static const char *element(char code, int *number, int *other) {
    switch (code) {
    case 'q': *number = NPY_LONG, *other = NPY_LONGLONG; return "int64";
    case 'Q': *number = NPY_ULONG, *other = NPY_ULONGLONG; return "uint64";
    case 'd': *number = *other = NPY_DOUBLE; return "float64";
    case 'i': *number = *other = NPY_INT; return "int32";
    case 'I': *number = *other = NPY_UINT; return "uint32";
    case 'H': *number = *other = NPY_USHORT; return "uint16";
    case 'B': *number = *other = NPY_UBYTE; return "uint8";
    default: *number = *other = NPY_BOOL; return "bool";
    }
}

static int fill_array(Filling *filling, PyObject *argument, int dimensions) {
    int number, other;
    const char *wanted = element(*filling->code++, &number, &other);
    if (Py_TYPE(argument) != array_type && !PyType_IsSubtype(Py_TYPE(argument), array_type))
        return refused(filling, argument, "an array");
    PyArrayObject *array = (PyArrayObject *)argument;
    int type = PyArray_DESCR(array)->type_num;
    if ((type != number && type != other) || PyArray_NDIM(array) != dimensions ||
        !PyArray_CHKFLAGS(array, NPY_ARRAY_C_CONTIGUOUS) || PyArray_DESCR(array)->byteorder == NPY_OPPBYTE)
        return refused_array(filling, array, wanted, dimensions);
    *filling->slot++ = (int64_t)(intptr_t)PyArray_DATA(array);
    int64_t elements = 1;
    for (int dimension = 0; dimension < dimensions; dimension++) {
        *filling->slot++ = PyArray_DIM(array, dimension);
        elements *= PyArray_DIM(array, dimension);
    }
    filling->elements += elements;
    return 0;
}

static int fill_integer(Filling *filling, PyObject *argument, char code) {
    PyObject *integer = PyNumber_Index(argument);
    if (integer == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_TypeError))
            return -1;
        PyErr_Clear();
        return refused(filling, argument, "an integer");
    }
    if (code == 'l') {
        long long value = PyLong_AsLongLong(integer);
        memcpy(filling->slot++, &value, 8);
    } else {
        unsigned long long value = PyLong_AsUnsignedLongLong(integer);
        if (code == 'u' && value > UINT32_MAX && !PyErr_Occurred())
            PyErr_Format(PyExc_OverflowError, "%s: argument %zd is %llu; it takes a uint32", filling->entry->name,
                         filling->place, value);
        memcpy(filling->slot++, &value, 8);
    }
    Py_DECREF(integer);
    return PyErr_Occurred() ? -1 : 0;
}

static int fill(Filling *filling, PyObject *argument) {
    char code = *filling->code++;
    switch (code) {
    case '1': case '2': case '3':
        return fill_array(filling, argument, code - '0');
    case 'l': case 'L': case 'u':
        return fill_integer(filling, argument, code);
    case 'f': {
        double value = PyFloat_AsDouble(argument);
        if (value == -1.0 && PyErr_Occurred())
            return -1;
        memcpy(filling->slot++, &value, 8);
        return 0;
    }
    case 'b': {
        int value = PyObject_IsTrue(argument);
        *filling->slot++ = value;
        return value < 0 ? -1 : 0;
    }
    default: { /* A tuple. */
        if (!PyTuple_Check(argument))
            return refused(filling, argument, "a tuple");
        Py_ssize_t size = PyTuple_Size(argument), item = 0;
        for (; *filling->code != ')'; item++)
            if (item >= size || fill(filling, PyTuple_GetItem(argument, item)) < 0)
                return PyErr_Occurred() ? -1 : refused(filling, argument, "a longer tuple");
        filling->code++;
        return item == size ? 0 : refused(filling, argument, "a shorter tuple");
    }
    }
}

static PyObject *value_of(char code, int64_t slot) {
    double number;
    switch (code) {
    case 'l': return PyLong_FromLongLong(slot);
    case 'L': return PyLong_FromUnsignedLongLong((uint64_t)slot);
    case 'u': return PyLong_FromUnsignedLongLong((uint32_t)slot);
    case 'b': return PyBool_FromLong((long)(slot & 1));
    default: memcpy(&number, &slot, 8); return PyFloat_FromDouble(number);
    }
}

static PyObject *result_of(const char *codes, const int64_t *slots) {
    size_t count = strlen(codes);
    if (count == 0)
        Py_RETURN_NONE;
    if (count == 1)
        return value_of(*codes, *slots);
    PyObject *tuple = PyTuple_New((Py_ssize_t)count);
    for (size_t item = 0; tuple != NULL && item < count; item++) {
        PyObject *value = value_of(codes[item], slots[item]);
        if (value == NULL || PyTuple_SetItem(tuple, (Py_ssize_t)item, value) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *call(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    const Entry *entry = ((Kernel *)self)->entry;
    int64_t slots[SLOTS], results[RESULTS]; /* As many as the largest kernel of the library takes: see link.py. */
    int status;
    Filling filling = {entry, entry->arguments, slots, 0, 0};
    for (; filling.place < count && *filling.code; filling.place++)
        if (fill(&filling, arguments[filling.place]) < 0)
            return NULL;
    if (filling.place < count || *filling.code)
        return PyErr_Format(PyExc_TypeError, "%s: called with %zd arguments; it takes %d", entry->name, count, entry->count);
    if (entry->keeps_gil == ALWAYS || (entry->keeps_gil == IF_SMALL && filling.elements < SMALL_ELEMENTS)) {
        status = entry->call(slots, results);
    } else {
        PyThreadState *state = PyEval_SaveThread();
        status = entry->call(slots, results);
        PyEval_RestoreThread(state);
    }
    if (status != 0) /* No kernel raises: it is an allocation. */
        return PyErr_Format(PyExc_MemoryError, "%s: no memory for its work", entry->name);
    return result_of(entry->result, results);
}

static PyObject *get_name(PyObject *self, void *unused) {
    (void)unused;
    return PyUnicode_FromString(((Kernel *)self)->entry->name);
}

static PyObject *get_keeps_gil(PyObject *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(((Kernel *)self)->entry->keeps_gil == ALWAYS);
}

static PyMethodDef kernel_methods[] = {
    {"call", (PyCFunction)(void (*)(void))call, METH_FASTCALL, "Call the kernel."},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef kernel_attributes[] = {
    {"name", get_name, NULL, "Module and name of the function.", NULL},
    {"keeps_gil", get_keeps_gil, NULL, "Whether every call keeps the GIL.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot kernel_slots[] = {
    {Py_tp_methods, kernel_methods},
    {Py_tp_getset, kernel_attributes},
    {0, NULL},
};
static PyType_Spec kernel_spec = {
    "kafka_tsdb_kernels.Kernel", sizeof(Kernel), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, kernel_slots,
};
static PyTypeObject *kernel_type;

static PyObject *kernel(PyObject *module, PyObject *argument) {
    (void)module;
    const char *name = PyUnicode_AsUTF8AndSize(argument, NULL);
    if (name == NULL)
        return NULL;
    for (const Entry *entry = entries; entry->name != NULL; entry++) {
        if (strcmp(entry->name, name) != 0)
            continue;
        Kernel *found = PyObject_New(Kernel, kernel_type);
        if (found == NULL)
            return NULL;
        found->entry = entry;
        PyObject *method = PyObject_GetAttrString((PyObject *)found, "call");
        Py_DECREF(found);
        return method;
    }
    PyErr_SetObject(PyExc_KeyError, argument);
    return NULL;
}

static PyObject *arrays_alive(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    return PyLong_FromLongLong(kernel_arrays_alive());
}

static PyMethodDef methods[] = {
    {"kernel", kernel, METH_O, "The kernel of this name, as a function. Raises KeyError."},
    {"arrays_alive", arrays_alive, METH_NOARGS, "Number of arrays that kernels have allocated and not freed."},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "kafka_tsdb_kernels", "Calls the kernels.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_kafka_tsdb_kernels(void) {
    const char *missing = missing_feature();
    if (missing != NULL)
        return PyErr_Format(PyExc_ImportError,
                            "it was built for processors of level %s, and this one lacks %s. Build it for another level: "
                            "KAFKA_TSDB_KERNEL_LEVEL=native (or x86-64-v2, generic) and `make kernels` or `pip wheel`",
                            level, missing);
    PyObject *numpy = PyImport_ImportModule("numpy");
    if (numpy == NULL)
        return NULL;
    array_type = (PyTypeObject *)PyObject_GetAttrString(numpy, "ndarray");
    Py_DECREF(numpy);
    kernel_type = (PyTypeObject *)PyType_FromSpec(&kernel_spec);
    if (array_type == NULL || kernel_type == NULL)
        return NULL;
    return PyModule_Create(&definition);
}
