/* Sums and products of elements of GR(2^16, 47) for many rows at a time: what `galois` has NumPy do in floating point.

Elements are 47 numbers of 16 bits, one array of rows for each; numbers wrap as Z_2^16 does. Rows are copied in chunks of
64 bytes, with zeros where some are missing, and every number of a chunk is another row's, so that nothing is ever added
up within a vector. Inner loops are compiled for several kinds of processors, of which the module names those that this
one can run. Secret: rows and sums; neither branches nor addresses depend on them. Public: shapes, factors. Source: own. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "_variants.h"

#define DEGREE 47 /* The modulus is x^47 + x^5 + 1. */
#define MIDDLE 5
#define PRODUCT (2 * DEGREE - 1)
#define CHUNK 64              /* Bytes, a line of the cache. */
#define NUMBERS (CHUNK / 2)   /* Rows in a chunk. */
#define CHUNKS 4              /* So many are read at a time, since the next coefficient's lie far away. */
#define GROUP 4               /* Numbers whose sums are all in one table; */
#define GROUPS 4              /* so many tables at a time. */
#define SUMS (1 << GROUP)
#define BLOCK 6               /* Coefficients in registers at a time; */
#define PADDED (8 * BLOCK)    /* so many with zeros behind. */
#define EDGE (BLOCK - 1)

typedef uint16_t Chunk[NUMBERS] __attribute__((aligned(CHUNK)));

typedef struct {
    Chunk x[PADDED], y[EDGE + DEGREE + EDGE], sums[PADDED + DEGREE + EDGE];
} Room;

/* Numbers of the tables that each coefficient of GROUP * GROUPS numbers with weights 0 and 1 takes. */
typedef uint8_t Picked[DEGREE][GROUPS];

/* Terms of elements for rows: number (term, coefficient, row) lies at start + term * term_step + ... */
typedef struct {
    char *start;
    Py_ssize_t terms, rows, term_step, step;
} Elements;

typedef struct {
    void (*add_products)(Room *);
    void (*add_multiples)(Room *, const int *powers, int count);
    void (*add_weighted)(Room *, const char *x, Py_ssize_t step, Py_ssize_t count, const uint32_t *weights);
    void (*add_picked)(Room *, const char *x, Py_ssize_t step, Py_ssize_t count, const Picked *picked);
} Loops;

/* In vectors of BYTES, all of a chunk's parts: products of x and y to sums; multiples of y by powers of the variable;
   numbers of count arrays, each with PADDED weights that are twice in a word, to sums; the same of weights 0 and 1. */
#define LOOPS(NAME, BYTES, TARGET)                                                                                     \
    typedef uint16_t Vector##NAME __attribute__((vector_size(BYTES), may_alias));                                      \
    typedef uint32_t Pairs##NAME __attribute__((vector_size(BYTES), may_alias));                                       \
                                                                                                                       \
    TARGET static void products_##NAME(Room *room)                                                                     \
    {                                                                                                                  \
        typedef Vector##NAME Vector;                                                                                   \
        enum { PARTS = CHUNK / BYTES };                                                                                \
        for (int part = 0; part < PARTS; part++) {                                                                     \
            const Vector *const x = (const Vector *)room->x + part, *const y = (const Vector *)room->y + part;         \
            Vector *const sums = (Vector *)room->sums + part;                                                          \
            for (int first = 0; first < PADDED; first += BLOCK) {                                                      \
                const Vector x0 = x[first * PARTS], x1 = x[(first + 1) * PARTS], x2 = x[(first + 2) * PARTS];          \
                const Vector x3 = x[(first + 3) * PARTS], x4 = x[(first + 4) * PARTS], x5 = x[(first + 5) * PARTS];    \
                const Vector *from = y + EDGE * PARTS;                                                                 \
                Vector *to = sums + first * PARTS;                                                                     \
                for (int power = 0; power < DEGREE + EDGE; power++, from += PARTS, to += PARTS)                        \
                    *to += x0 * from[0] + x1 * from[-PARTS] + x2 * from[-2 * PARTS] + x3 * from[-3 * PARTS] +          \
                           x4 * from[-4 * PARTS] + x5 * from[-5 * PARTS];                                              \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    TARGET static void multiples_##NAME(Room *room, const int *powers, int count)                                      \
    {                                                                                                                  \
        typedef Vector##NAME Vector;                                                                                   \
        enum { PARTS = CHUNK / BYTES };                                                                                \
        int first = 0, last = 0;                                                                                       \
        for (int power = 0; power < PRODUCT; power++) {                                                                \
            while (first < count && powers[first] <= power - DEGREE)                                                   \
                first++;                                                                                               \
            while (last < count && powers[last] <= power)                                                              \
                last++;                                                                                                \
            Vector sum[PARTS];                                                                                         \
            for (int part = 0; part < PARTS; part++)                                                                   \
                sum[part] = (Vector){0};                                                                               \
            for (int at = first; at < last; at++) {                                                                    \
                const Vector *const y = (const Vector *)room->y[EDGE + power - powers[at]];                            \
                for (int part = 0; part < PARTS; part++)                                                               \
                    sum[part] += y[part];                                                                              \
            }                                                                                                          \
            for (int part = 0; part < PARTS; part++)                                                                   \
                ((Vector *)room->sums[power])[part] = sum[part];                                                       \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    TARGET static void weighted_##NAME(Room *room, const char *x, Py_ssize_t step, Py_ssize_t count,                   \
                                       const uint32_t *weights)                                                        \
    {                                                                                                                  \
        typedef Vector##NAME Vector;                                                                                   \
        typedef Vector Loose __attribute__((aligned(1)));                                                              \
        enum { PARTS = CHUNK / BYTES, TOGETHER = PARTS < 2 ? 1 : 2 };                                                  \
        for (int part = 0; part < PARTS; part += TOGETHER)                                                             \
            for (int first = 0; first < PADDED; first += BLOCK) {                                                      \
                Vector sum[BLOCK][TOGETHER];                                                                           \
                for (int i = 0; i < BLOCK; i++)                                                                        \
                    for (int j = 0; j < TOGETHER; j++)                                                                 \
                        sum[i][j] = ((Vector *)room->sums[first + i])[part + j];                                       \
                const char *from = x + part * BYTES;                                                                   \
                const uint32_t *weight = weights + first;                                                              \
                for (Py_ssize_t at = 0; at < count; at++, from += step, weight += PADDED)                              \
                    for (int i = 0; i < BLOCK; i++)                                                                    \
                        for (int j = 0; j < TOGETHER; j++)                                                             \
                            sum[i][j] += (Vector)((Pairs##NAME){0} + weight[i]) * ((const Loose *)from)[j];            \
                for (int i = 0; i < BLOCK; i++)                                                                        \
                    for (int j = 0; j < TOGETHER; j++)                                                                 \
                        ((Vector *)room->sums[first + i])[part + j] = sum[i][j];                                       \
            }                                                                                                          \
    }                                                                                                                  \
                                                                                                                       \
    TARGET static void picked_##NAME(Room *room, const char *x, Py_ssize_t step, Py_ssize_t count,                     \
                                     const Picked *picked)                                                             \
    {                                                                                                                  \
        typedef Vector##NAME Vector;                                                                                   \
        typedef Vector Loose __attribute__((aligned(1)));                                                              \
        enum { PARTS = CHUNK / BYTES };                                                                                \
        Vector table[GROUPS][SUMS];                                                                                    \
        for (int part = 0; part < PARTS; part++) {                                                                     \
            const char *from = x + part * BYTES;                                                                       \
            const Picked *pick = picked;                                                                               \
            for (Py_ssize_t at = 0; at < count; pick++) {                                                              \
                for (int group = 0; group < GROUPS; group++) {                                                         \
                    table[group][0] = (Vector){0};                                                                     \
                    for (int i = 0; i < GROUP; i++, at++, from += step) {                                              \
                        const Vector number = at < count ? *(const Loose *)from : (Vector){0};                         \
                        for (int j = 0; j < 1 << i; j++)                                                               \
                            table[group][(1 << i) + j] = table[group][j] + number;                                     \
                    }                                                                                                  \
                }                                                                                                      \
                for (int power = 0; power < DEGREE; power++) {                                                         \
                    const uint8_t *const at_power = (*pick)[power];                                                    \
                    ((Vector *)room->sums[power])[part] += (table[0][at_power[0]] + table[1][at_power[1]]) +           \
                                                           (table[2][at_power[2]] + table[3][at_power[3]]);            \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static const Loops NAME = {products_##NAME, multiples_##NAME, weighted_##NAME, picked_##NAME};

LOOPS(portable, 16, )
#ifdef __x86_64__
LOOPS(avx2, 32, __attribute__((target("avx2"))))
LOOPS(avx512, 64, __attribute__((target("avx512bw"))))
#endif

static const Loops *loops_of(const char *variant)
{
    if (!runs_here(variant))
        return NULL;
#ifdef __x86_64__
    if (!strcmp(variant, "avx512"))
        return &avx512;
    if (!strcmp(variant, "avx2"))
        return &avx2;
#endif
    return &portable;
}

static Py_ssize_t smaller(Py_ssize_t a, Py_ssize_t b)
{
    return a < b ? a : b;
}

/* Returns the number of rows of a chunk, from row on. */
static Py_ssize_t rows_of(const Elements *from, Py_ssize_t row)
{
    const Py_ssize_t rest = from->rows - row;
    return rest < 0 ? 0 : smaller(NUMBERS, rest);
}

/* Copies so many rows, with zeros behind them: a whole chunk in a few instructions. */
static inline void copy_rows(uint16_t *to, const char *from, Py_ssize_t count)
{
    if (count == NUMBERS)
        memcpy(to, from, CHUNK);
    else {
        memset(to, 0, CHUNK);
        memcpy(to, from, count * 2);
    }
}

/* Copies some rows of an element, with zeros behind them, to the chunks of rooms that are so far from one another. */
static void read_chunks(Chunk *to, const Elements *from, Py_ssize_t term, Py_ssize_t row)
{
    const char *start = from->start + term * from->term_step + row * 2;
    for (int power = 0; power < DEGREE; power++, start += from->step)
        for (int chunk = 0; chunk < CHUNKS; chunk++) {
            uint16_t *const numbers = to[power + chunk * (sizeof(Room) / sizeof(Chunk))];
            const Py_ssize_t count = rows_of(from, row + chunk * NUMBERS);
            copy_rows(numbers, start + chunk * CHUNK, count);
        }
}

/* Adds some rows of the rooms' sums to an element. */
static void add_chunks(const Elements *to, Py_ssize_t term, Py_ssize_t row, const Room *rooms, int chunks)
{
    char *start = to->start + term * to->term_step + row * 2;
    for (int power = 0; power < DEGREE; power++, start += to->step)
        for (int chunk = 0; chunk < chunks; chunk++) {
            const Py_ssize_t count = rows_of(to, row + chunk * NUMBERS);
            const uint16_t *const sums = rooms[chunk].sums[power];
            char *const here = start + chunk * CHUNK;
            Chunk numbers;
            copy_rows(numbers, here, count);
            for (int at = 0; at < NUMBERS; at++)
                numbers[at] = (uint16_t)(numbers[at] + sums[at]);
            memcpy(here, numbers, count == NUMBERS ? CHUNK : count * 2);
        }
}

/* Reduces PRODUCT coefficients: x^(47 + j) is -x^j - x^(5 + j), which for j >= 42 is reduced once more. */
static void reduce(Chunk *sums)
{
    for (int power = PRODUCT - 1; power >= DEGREE; power--)
        for (int at = 0; at < NUMBERS; at++) {
            sums[power - DEGREE][at] = (uint16_t)(sums[power - DEGREE][at] - sums[power][at]);
            sums[power - DEGREE + MIDDLE][at] = (uint16_t)(sums[power - DEGREE + MIDDLE][at] - sums[power][at]);
        }
}

static void all_products(const Elements *x, const Elements *y, const Elements *to, const Loops *loops, Room *rooms)
{
    for (Py_ssize_t row = 0; row < to->rows; row += CHUNKS * NUMBERS) {
        for (int chunk = 0; chunk < CHUNKS; chunk++)
            memset(rooms[chunk].sums, 0, sizeof rooms[chunk].sums);
        for (Py_ssize_t term = 0; term < x->terms; term++) {
            read_chunks(rooms->x, x, term, row);
            read_chunks(rooms->y + EDGE, y, term, row);
            for (int chunk = 0; chunk < CHUNKS && row + chunk * NUMBERS < to->rows; chunk++)
                loops->add_products(&rooms[chunk]);
        }
        for (int chunk = 0; chunk < CHUNKS; chunk++)
            reduce(rooms[chunk].sums);
        add_chunks(to, 0, row, rooms, CHUNKS);
    }
}

static void all_multiples(const int *powers, int count, const Elements *x, const Elements *to, const Loops *loops,
                          Room *rooms)
{
    for (Py_ssize_t term = 0; term < x->terms; term++)
        for (Py_ssize_t row = 0; row < x->rows; row += CHUNKS * NUMBERS) {
            read_chunks(rooms->y + EDGE, x, term, row);
            for (int chunk = 0; chunk < CHUNKS && row + chunk * NUMBERS < x->rows; chunk++) {
                loops->add_multiples(&rooms[chunk], powers, count);
                reduce(rooms[chunk].sums);
            }
            add_chunks(to, term, row, rooms, CHUNKS);
        }
}

/* `x` has arrays of rows, step apart; the last rows are copied, for nothing may be read beyond an array's end. Where
   there are picks, weights are not looked at. */
static void all_weighted(const uint32_t *weights, const Picked *picked, const Elements *x, const Elements *to,
                         const Loops *loops, Room *room, Chunk *rest)
{
    for (Py_ssize_t row = 0; row < x->rows; row += NUMBERS) {
        const Py_ssize_t count = rows_of(x, row);
        const char *start = x->start + row * 2;
        Py_ssize_t step = x->step;
        memset(room->sums, 0, sizeof room->sums);
        if (count < NUMBERS) {
            for (Py_ssize_t at = 0; at < x->terms; at++)
                copy_rows(rest[at], start + at * step, count);
            start = (const char *)rest;
            step = CHUNK;
        }
        if (picked)
            loops->add_picked(room, start, step, x->terms, picked);
        else
            loops->add_weighted(room, start, step, x->terms, weights);
        add_chunks(to, 0, row, room, 1);
    }
}

/* Writes the weights (47, count), each twice in a word, and the picks; returns 0 where weights are not 0 and 1 alone. */
static int prepared(const Py_buffer *weights, Py_ssize_t count, uint32_t *twice, Picked *picked)
{
    int bits = 1;
    for (int power = 0; power < DEGREE; power++) {
        const char *const row = (const char *)weights->buf + power * weights->strides[0];
        for (Py_ssize_t at = 0; at < count; at++) {
            uint16_t number;
            memcpy(&number, row + at * 2, 2);
            twice[at * PADDED + power] = number * UINT32_C(0x10001);
            bits &= number < 2;
            picked[at / (GROUP * GROUPS)][power][at / GROUP % GROUPS] |= (uint8_t)((number & 1) << at % GROUP);
        }
    }
    return bits;
}

/* Returns 0, and an exception is set, for anything but 16-bit numbers of so many axes whose last one has no gaps. */
static int array(PyObject *object, const char *name, int axes, int flags, Py_buffer *found)
{
    if (PyObject_GetBuffer(object, found, PyBUF_STRIDES | PyBUF_FORMAT | flags))
        return 0;
    const char *type = found->format ? found->format : "B";
    type += *type == '='; /* So NumPy writes it where the array is not aligned. */
    if (found->ndim != axes || found->itemsize != 2 || type[0] != 'H' || type[1])
        PyErr_Format(PyExc_TypeError, "%s has %d axes and numbers of type '%s'; expected %d axes and type 'H'", name,
                     found->ndim, type, axes);
    else if (found->shape[axes - 1] > 1 && found->strides[axes - 1] != 2)
        PyErr_Format(PyExc_ValueError, "%s has gaps along its last axis", name);
    else
        return 1;
    PyBuffer_Release(found);
    return 0;
}

static Elements elements_of(const Py_buffer *view)
{
    return (Elements){view->buf, view->shape[0], view->shape[2], view->strides[0], view->strides[1]};
}

/* Sums of one element, (DEGREE, rows). */
static Elements sums_of(const Py_buffer *view)
{
    return (Elements){view->buf, 1, view->shape[1], 0, view->strides[0]};
}

static int are_elements(const Py_buffer *view, const Py_buffer *like)
{
    return view->shape[1] == DEGREE && view->shape[0] == like->shape[0] && view->shape[2] == like->shape[2];
}

/* Returns aligned memory within what was allocated, to be freed by its owner. */
static void *allocated(size_t size, void **owner)
{
    *owner = PyMem_Malloc(size + CHUNK);
    if (!*owner) {
        PyErr_NoMemory();
        return NULL;
    }
    return (char *)*owner + (CHUNK - (uintptr_t)*owner % CHUNK);
}

static void release(Py_buffer *views, int count)
{
    while (count)
        PyBuffer_Release(&views[--count]);
}

/* Takes arrays and the variant from the arguments; the last array is written to. Returns how many it has to release. */
static int taken(PyObject *arguments, const char *format, const char *const *names, const int *axes, Py_buffer *views,
                 const Loops **loops)
{
    PyObject *objects[3];
    const char *variant;
    if (!PyArg_ParseTuple(arguments, format, &objects[0], &objects[1], &objects[2], &variant))
        return 0;
    *loops = loops_of(variant);
    if (!*loops) {
        PyErr_Format(PyExc_ValueError, "variant '%s' is none of VARIANTS", variant);
        return 0;
    }
    for (int i = 0; i < 3; i++)
        if (!array(objects[i], names[i], axes[i], i == 2 ? PyBUF_WRITABLE : 0, &views[i])) {
            release(views, i);
            return 0;
        }
    return 3;
}

static PyObject *multiply(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    const char *const names[] = {"x", "y", "sums"};
    const int axes[] = {3, 3, 2};
    Py_buffer views[3];
    const Loops *loops;
    void *owner = NULL;
    const int held = taken(arguments, "OOOs:multiply", names, axes, views, &loops);
    if (!held)
        return NULL;
    if (!are_elements(&views[0], &views[0]) || !are_elements(&views[1], &views[0]) || views[2].shape[0] != DEGREE ||
        views[2].shape[1] != views[0].shape[2])
        PyErr_SetString(PyExc_ValueError, "expected x and y (terms, 47, rows) and sums (47, rows)");
    else {
        Room *const rooms = allocated(CHUNKS * sizeof(Room), &owner);
        if (rooms) {
            const Elements x = elements_of(&views[0]), y = elements_of(&views[1]), to = sums_of(&views[2]);
            Py_BEGIN_ALLOW_THREADS
            memset(rooms, 0, CHUNKS * sizeof *rooms);
            all_products(&x, &y, &to, loops, rooms);
            Py_END_ALLOW_THREADS
        }
    }
    PyMem_Free(owner);
    release(views, held);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyObject *scale(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    const char *const names[] = {"factor", "x", "sums"};
    const int axes[] = {1, 3, 3};
    Py_buffer views[3];
    const Loops *loops;
    void *owner = NULL;
    const int held = taken(arguments, "OOOs:scale", names, axes, views, &loops);
    if (!held)
        return NULL;
    if (views[0].shape[0] != DEGREE || !are_elements(&views[1], &views[1]) || !are_elements(&views[2], &views[1]))
        PyErr_SetString(PyExc_ValueError, "expected a factor (47,), and x and sums (terms, 47, rows)");
    else {
        Room *const rooms = allocated(CHUNKS * sizeof(Room), &owner);
        int powers[DEGREE], count = 0, known = 1;
        for (int power = 0; power < DEGREE; power++) {
            uint16_t number;
            memcpy(&number, (const char *)views[0].buf + power * 2, 2);
            known &= number < 2;
            if (number)
                powers[count++] = power;
        }
        if (!known)
            PyErr_SetString(PyExc_ValueError, "the factor has coefficients other than 0 and 1");
        else if (rooms) {
            const Elements x = elements_of(&views[1]), to = elements_of(&views[2]);
            Py_BEGIN_ALLOW_THREADS
            all_multiples(powers, count, &x, &to, loops, rooms);
            Py_END_ALLOW_THREADS
        }
    }
    PyMem_Free(owner);
    release(views, held);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyObject *weigh(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    const char *const names[] = {"weights", "x", "sums"};
    const int axes[] = {2, 2, 2};
    Py_buffer views[3];
    const Loops *loops;
    void *owner = NULL;
    const int held = taken(arguments, "OOOs:weigh", names, axes, views, &loops);
    if (!held)
        return NULL;
    const Py_ssize_t count = views[1].shape[0];
    if (views[0].shape[0] != DEGREE || views[0].shape[1] != count || views[2].shape[0] != DEGREE ||
        views[2].shape[1] != views[1].shape[1])
        PyErr_SetString(PyExc_ValueError, "expected weights (47, numbers), x (numbers, rows) and sums (47, rows)");
    else {
        const size_t of_room = sizeof(Room), of_rest = count * CHUNK, of_weights = count * PADDED * sizeof(uint32_t);
        const size_t of_picks = (count / (GROUP * GROUPS) + 1) * sizeof(Picked);
        char *const memory = allocated(of_room + of_rest + of_weights + of_picks, &owner);
        if (memory) {
            Chunk *const rest = (Chunk *)(memory + of_room);
            uint32_t *const twice = (uint32_t *)(memory + of_room + of_rest);
            Picked *const picked = (Picked *)(memory + of_room + of_rest + of_weights);
            const Elements x = {views[1].buf, count, views[1].shape[1], 0, views[1].strides[0]};
            const Elements to = sums_of(&views[2]);
            Py_BEGIN_ALLOW_THREADS
            memset(twice, 0, of_weights + of_picks);
            const int bits = prepared(&views[0], count, twice, picked);
            all_weighted(twice, bits ? picked : NULL, &x, &to, loops, (Room *)memory, rest);
            Py_END_ALLOW_THREADS
        }
    }
    PyMem_Free(owner);
    release(views, held);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyMethodDef methods[] = {
    {"multiply", multiply, METH_VARARGS, "Adds to sums (47, rows) the products of x and y (terms, 47, rows)."},
    {"scale", scale, METH_VARARGS, "Adds to sums the product of a factor (47,) and x, (terms, 47, rows) both."},
    {"weigh", weigh, METH_VARARGS, "Adds to sums (47, rows) the product of weights (47, n) and x (n, rows)."},
    {NULL, NULL, 0, NULL},
};
static PyModuleDef_Slot slots[] = {{Py_mod_exec, add_variants}, {0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_galois", "Sums and products of elements of GR(2^16, 47).", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__galois(void)
{
    return PyModuleDef_Init(&definition);
}
