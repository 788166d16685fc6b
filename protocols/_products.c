/* Sums over rows of products of 16-bit numbers, modulo 2^16: what `products` has NumPy do in float64.

Products and sums wrap as Z_2^16 does, so that nothing is widened. Numbers are copied in chunks of 64 bytes, with zeros
where rows or entries are missing, so that nothing is read beyond the end of an array and the inner loop has no rest.
That loop is compiled for several kinds of processors, of which the module names those that this one can run. Secret:
operands and sums; neither branches nor addresses depend on them. Public: shapes. Source: own. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "_variants.h"

#define CHUNK 64                             /* Bytes, a line of the cache. */
#define NUMBERS (CHUNK / 2)                  /* Numbers in a chunk. */
#define DEPTH 32                             /* Chunks of rows at a time. */
#define LEFT 4                               /* Entries of left at a time, */
#define RIGHT 2                              /* and of right. */
#define PANELS 16                            /* Times RIGHT entries of right stay in the cache. */
#define PANEL (DEPTH * RIGHT * CHUNK)        /* Bytes of one of them. */

typedef struct {
    const char *start;
    Py_ssize_t entries, rows;
    Py_ssize_t entry_step, row_step; /* In bytes. */
} Operand;

typedef void (*Inner)(const char *left, const char *right, Py_ssize_t chunks, uint16_t sums[LEFT][RIGHT]);

/* Sums of LEFT entries with RIGHT entries over some chunks, which lie beside one another: in vectors of BYTES, whose
   numbers are added up at the end. Vectors of unsigned numbers wrap. */
#define INNER(NAME, BYTES, TARGET)                                                                                     \
    TARGET static void NAME(const char *left, const char *right, Py_ssize_t chunks, uint16_t sums[LEFT][RIGHT])        \
    {                                                                                                                  \
        typedef uint16_t Vector __attribute__((vector_size(BYTES), may_alias));                                        \
        const Vector *x = (const Vector *)left, *y = (const Vector *)right;                                            \
        enum { PARTS = CHUNK / BYTES };                                                                                \
        Vector sum[LEFT][RIGHT];                                                                                       \
        for (int i = 0; i < LEFT; i++)                                                                                 \
            for (int j = 0; j < RIGHT; j++)                                                                            \
                sum[i][j] = (Vector){0};                                                                               \
        for (Py_ssize_t chunk = 0; chunk < chunks; chunk++, x += LEFT * PARTS, y += RIGHT * PARTS)                     \
            for (int part = 0; part < PARTS; part++)                                                                   \
                for (int i = 0; i < LEFT; i++)                                                                         \
                    for (int j = 0; j < RIGHT; j++)                                                                    \
                        sum[i][j] += x[i * PARTS + part] * y[j * PARTS + part];                                        \
        for (int i = 0; i < LEFT; i++)                                                                                 \
            for (int j = 0; j < RIGHT; j++)                                                                            \
                sums[i][j] = added_up((const char *)&sum[i][j], BYTES);                                                \
    }

/* Sum of a vector's numbers. Even and odd ones of a word are added apart, so that none carries into its neighbour. */
static inline __attribute__((always_inline)) uint16_t added_up(const char *vector, int bytes)
{
    typedef uint16_t Half __attribute__((vector_size(16), may_alias));
    Half total = {0};
    uint64_t words[2], sum;
    for (int at = 0; at < bytes; at += 16)
        total += *(const Half *)(vector + at);
    memcpy(words, &total, sizeof words);
    const uint64_t even = UINT64_C(0x0000FFFF0000FFFF);
    sum = (words[0] & even) + (words[0] >> 16 & even) + (words[1] & even) + (words[1] >> 16 & even);
    return (uint16_t)(sum + (sum >> 32));
}

INNER(sums_portable, 16, )
#ifdef __x86_64__
INNER(sums_avx2, 32, __attribute__((target("avx2"))))
INNER(sums_avx512, 64, __attribute__((target("avx512bw"))))
#endif

static Inner inner_of(const char *variant)
{
    if (!runs_here(variant))
        return NULL;
#ifdef __x86_64__
    if (!strcmp(variant, "avx512"))
        return sums_avx512;
    if (!strcmp(variant, "avx2"))
        return sums_avx2;
#endif
    return sums_portable;
}

/* Copies `width` entries from `entry` on, and their rows from `row` on, chunk by chunk beside one another; zeros where
   there is none. */
static void packed(char *to, int width, const Operand *from, Py_ssize_t entry, Py_ssize_t row, Py_ssize_t chunks)
{
    for (int i = 0; i < width; i++, to += CHUNK) {
        const int there = entry + i < from->entries;
        const char *start = from->start + (there ? (entry + i) * from->entry_step + row * from->row_step : 0);
        for (Py_ssize_t chunk = 0; chunk < chunks; chunk++) {
            char *part = to + chunk * width * CHUNK;
            const Py_ssize_t first = chunk * NUMBERS, left = there ? from->rows - row - first : 0;
            const Py_ssize_t count = left < NUMBERS ? left : NUMBERS;
            if (count < NUMBERS)
                memset(part, 0, CHUNK);
            if (from->row_step == 2 && count == NUMBERS)
                memcpy(part, start + first * 2, CHUNK);
            else
                for (Py_ssize_t number = 0; number < count; number++)
                    memcpy(part + number * 2, start + (first + number) * from->row_step, 2);
        }
    }
}

/* Adds to the cells from (first, second) on those sums that have one. */
static void add_sums(const Py_buffer *to, Py_ssize_t first, Py_ssize_t second, uint16_t sums[LEFT][RIGHT])
{
    for (Py_ssize_t i = 0; i < LEFT && first + i < to->shape[0]; i++)
        for (Py_ssize_t j = 0; j < RIGHT && second + j < to->shape[1]; j++) {
            char *cell = (char *)to->buf + (first + i) * to->strides[0] + (second + j) * to->strides[1];
            uint16_t sum;
            memcpy(&sum, cell, sizeof sum);
            sum = (uint16_t)(sum + sums[i][j]);
            memcpy(cell, &sum, sizeof sum);
        }
}

/* Adds the products of all entries to the sums, so many rows and entries of right at a time as stay in the cache.
   `room` is PANELS panels of right, then one of left, aligned to a chunk. */
static void add_all(const Operand *left, const Operand *right, const Py_buffer *to, Inner inner, char *room)
{
    char *const of_left = room + PANELS * PANEL;
    uint16_t sums[LEFT][RIGHT];
    for (Py_ssize_t row = 0; row < left->rows; row += DEPTH * NUMBERS) {
        const Py_ssize_t rest = left->rows - row;
        const Py_ssize_t chunks = rest < DEPTH * NUMBERS ? (rest + NUMBERS - 1) / NUMBERS : DEPTH;
        for (Py_ssize_t start = 0; start < right->entries; start += PANELS * RIGHT) {
            const Py_ssize_t beyond = right->entries - start;
            const Py_ssize_t panels = beyond < PANELS * RIGHT ? (beyond + RIGHT - 1) / RIGHT : PANELS;
            for (Py_ssize_t panel = 0; panel < panels; panel++)
                packed(room + panel * PANEL, RIGHT, right, start + panel * RIGHT, row, chunks);
            for (Py_ssize_t entry = 0; entry < left->entries; entry += LEFT) {
                packed(of_left, LEFT, left, entry, row, chunks);
                for (Py_ssize_t panel = 0; panel < panels; panel++) {
                    inner(of_left, room + panel * PANEL, chunks, sums);
                    add_sums(to, entry, start + panel * RIGHT, sums);
                }
            }
        }
    }
}

/* Returns 0, and an exception is set, for anything but a matrix of 16-bit numbers in this machine's order. */
static int matrix(PyObject *object, const char *name, char kind, int flags, Py_buffer *found)
{
    if (PyObject_GetBuffer(object, found, PyBUF_STRIDES | PyBUF_FORMAT | flags))
        return 0;
    const char *format = found->format ? found->format : "B";
    const char *type = format + (format[0] == '='); /* So NumPy writes it where the array is not aligned. */
    if (found->ndim == 2 && found->itemsize == 2 && type[0] == kind && !type[1])
        return 1;
    PyErr_Format(PyExc_TypeError, "%s has %d axes and numbers of type '%s'; expected 2 axes and type '%c'", name,
                 found->ndim, format, kind);
    PyBuffer_Release(found);
    return 0;
}

static PyObject *add_checked(const Py_buffer *left, const Py_buffer *right, const Py_buffer *to, const char *variant)
{
    if (left->shape[1] != right->shape[1] || to->shape[0] != left->shape[0] || to->shape[1] != right->shape[0])
        return PyErr_Format(PyExc_ValueError, "left is (%zd, %zd), right (%zd, %zd) and sums (%zd, %zd); expected "
                            "(a, rows), (b, rows) and (a, b)", left->shape[0], left->shape[1], right->shape[0],
                            right->shape[1], to->shape[0], to->shape[1]);
    const Inner inner = inner_of(variant);
    if (!inner)
        return PyErr_Format(PyExc_ValueError, "variant '%s' is none of VARIANTS", variant);
    const Operand x = {left->buf, left->shape[0], left->shape[1], left->strides[0], left->strides[1]};
    const Operand y = {right->buf, right->shape[0], right->shape[1], right->strides[0], right->strides[1]};
    char *const memory = PyMem_Malloc(PANELS * PANEL + PANEL / RIGHT * LEFT + CHUNK);
    if (!memory)
        return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS
    add_all(&x, &y, to, inner, memory + (CHUNK - (uintptr_t)memory % CHUNK));
    Py_END_ALLOW_THREADS
    PyMem_Free(memory);
    Py_RETURN_NONE;
}

static PyObject *add(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *objects[3], *done = NULL;
    Py_buffer left, right, to;
    const char *variant;
    if (!PyArg_ParseTuple(arguments, "OOOs:add", &objects[0], &objects[1], &objects[2], &variant))
        return NULL;
    if (!matrix(objects[0], "left", 'h', 0, &left))
        return NULL;
    if (matrix(objects[1], "right", 'h', 0, &right)) {
        if (matrix(objects[2], "sums", 'H', PyBUF_WRITABLE, &to)) {
            done = add_checked(&left, &right, &to, variant);
            PyBuffer_Release(&to);
        }
        PyBuffer_Release(&right);
    }
    PyBuffer_Release(&left);
    return done;
}

static PyMethodDef methods[] = {
    {"add", add, METH_VARARGS,
     "Adds to sums (a, b) the products of left (a, rows) and right (b, rows), summed over rows, modulo 2^16."},
    {NULL, NULL, 0, NULL},
};
static PyModuleDef_Slot slots[] = {{Py_mod_exec, add_variants}, {0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_products", "Sums over rows of products of 16-bit numbers.", 0, methods, slots, NULL, NULL,
    NULL,
};

PyMODINIT_FUNC PyInit__products(void)
{
    return PyModuleDef_Init(&definition);
}
