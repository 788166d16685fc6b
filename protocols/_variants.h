/* Kinds of processors for which loops are compiled, and which of them this processor is. Public. A module whose loops need
   more than a kind's usual instructions defines OWN_KINDS and `runs_here` before. */

#include <string.h>

#ifndef OWN_KINDS
static int runs_here(const char *variant)
{
#ifdef __x86_64__
    if (!strcmp(variant, "avx512"))
        return __builtin_cpu_supports("avx512bw") != 0;
    if (!strcmp(variant, "avx2"))
        return __builtin_cpu_supports("avx2") != 0;
#endif
    return !strcmp(variant, "portable");
}
#endif

/* Adds VARIANTS to a module: the names of those that run here, the fastest first. Returns 0, or -1 and an exception. */
static int add_variants(PyObject *module)
{
    const char *const names[] = {"avx512", "avx2", "portable"};
    PyObject *list = PyList_New(0), *tuple = NULL;
    for (size_t i = 0; list && i < sizeof names / sizeof *names; i++) {
        if (!runs_here(names[i]))
            continue;
        PyObject *name = PyUnicode_FromString(names[i]);
        if (!name || PyList_Append(list, name))
            Py_CLEAR(list);
        Py_XDECREF(name);
    }
    if (list)
        tuple = PyList_AsTuple(list);
    Py_XDECREF(list);
    const int failed = !tuple || PyModule_AddObjectRef(module, "VARIANTS", tuple);
    Py_XDECREF(tuple);
    return failed ? -1 : 0;
}
