#include "splitter.h"

#include <structmember.h>

#include <new>

#include "copies.h"
#include "views.h"

namespace splitops {
namespace {

PyTypeObject *g_splitter_type = nullptr;

Splitter *as_splitter(PyObject *self) { return reinterpret_cast<Splitter *>(self); }

// The argument as an array of the right shape; null with an error set.
PyArrayObject *fitting_array(const Splitter *splitter, PyObject *object) {
    PyArrayObject *array = exact_array(object);
    if (array != nullptr && !splitter->cuts.matches(array)) {
        set_shape_error(splitter->cuts, array);
        return nullptr;
    }
    return array;
}

PyObject *splitter_call(PyObject *self, PyObject *const *args, std::size_t nargsf, PyObject *kwnames) {
    if (PyVectorcall_NARGS(nargsf) != 1 || (kwnames != nullptr && PyTuple_GET_SIZE(kwnames) != 0)) {
        PyErr_SetString(PyExc_TypeError, "a Splitter takes exactly one array");
        return nullptr;
    }
    PyArrayObject *array = fitting_array(as_splitter(self), args[0]);
    return array == nullptr ? nullptr : make_views(array, as_splitter(self)->cuts);
}

PyObject *splitter_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static const char *names[] = {"shape", "axis", "offsets", "sizes", "squeeze", "listed", nullptr};
    PyObject *shape, *offsets, *sizes, *squeeze, *listed = Py_False;
    Py_ssize_t axis;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OnOOO!|$O!:Splitter", const_cast<char **>(names), &shape, &axis,
                                     &offsets, &sizes, &PyBool_Type, &squeeze, &PyBool_Type, &listed))
        return nullptr;
    PyObject *self = type->tp_alloc(type, 0);
    if (self == nullptr)
        return nullptr;
    Splitter *splitter = as_splitter(self);
    splitter->call = splitter_call;
    new (&splitter->cuts) Cuts;
    splitter->cuts.listed = listed == Py_True;
    try {
        if (read_cuts(shape, axis, offsets, sizes, squeeze == Py_True, splitter->cuts))
            return self;
    } catch (const std::bad_alloc &) {
        PyErr_NoMemory();
    }
    Py_DECREF(self);
    return nullptr;
}

void splitter_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    as_splitter(self)->cuts.~Cuts();
    type->tp_free(self);
    Py_DECREF(type);
}

PyObject *splitter_copies(PyObject *self, PyObject *args, PyObject *kwargs) {
    static const char *names[] = {"array", "separate", nullptr};
    PyObject *object;
    int separate = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$p:copies", const_cast<char **>(names), &object, &separate))
        return nullptr;
    PyArrayObject *array = fitting_array(as_splitter(self), object);
    return array == nullptr ? nullptr : make_copies(array, as_splitter(self)->cuts, separate != 0);
}

PyObject *splitter_copies_into(PyObject *self, PyObject *args, PyObject *kwargs) {
    static const char *names[] = {"array", "out", nullptr};
    PyObject *object, *out;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:copies_into", const_cast<char **>(names), &object, &out))
        return nullptr;
    PyArrayObject *array = fitting_array(as_splitter(self), object);
    if (array == nullptr || !copy_into(array, as_splitter(self)->cuts, out))
        return nullptr;
    Py_RETURN_NONE;
}

PyObject *splitter_fill(PyObject *self, PyObject *args, PyObject *kwargs) {
    static const char *names[] = {"array", "out", nullptr};
    PyObject *object, *out;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:fill", const_cast<char **>(names), &object, &out))
        return nullptr;
    PyArrayObject *array = fitting_array(as_splitter(self), object);
    return array == nullptr ? nullptr : fill(array, as_splitter(self)->cuts, out);
}

PyCFunction with_keywords(PyCFunctionWithKeywords function) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

}  // namespace

bool add_splitter(PyObject *module) {
    static PyMethodDef methods[] = {
        {"copies", with_keywords(splitter_copies), METH_VARARGS | METH_KEYWORDS,
         "copies(array, *, separate=False)\n\nFresh, C-contiguous, writeable parts of the array."},
        {"copies_into", with_keywords(splitter_copies_into), METH_VARARGS | METH_KEYWORDS,
         "copies_into(array, out)\n\nFills the arrays of `out` with the parts of the array."},
        {"fill", with_keywords(splitter_fill), METH_VARARGS | METH_KEYWORDS,
         "fill(array, out)\n\nThe arrays of `out`, filled with the parts; None, and nothing written, where they "
         "do not fit or are not surely disjoint."},
        {nullptr, nullptr, 0, nullptr},
    };
    static PyMemberDef members[] = {
        {"__vectorcalloffset__", T_PYSSIZET, offsetof(Splitter, call), READONLY, nullptr},
        {nullptr, 0, 0, 0, nullptr},
    };
    static PyType_Slot slots[] = {
        {Py_tp_new, reinterpret_cast<void *>(splitter_new)},
        {Py_tp_dealloc, reinterpret_cast<void *>(splitter_dealloc)},
        {Py_tp_call, reinterpret_cast<void *>(PyVectorcall_Call)},
        {Py_tp_methods, methods},
        {Py_tp_members, members},
        {Py_tp_doc, const_cast<char *>("Splitter(shape, axis, offsets, sizes, squeeze, *, listed=False)\n\n"
                                       "A compiled split of arrays of one shape; calling it gives views.")},
        {0, nullptr},
    };
    static PyType_Spec spec = {"splitops.native._core.Splitter", sizeof(Splitter), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE, slots};
    g_splitter_type = reinterpret_cast<PyTypeObject *>(PyType_FromSpec(&spec));
    return g_splitter_type != nullptr && PyModule_AddType(module, g_splitter_type) == 0;
}

bool is_splitter(PyObject *object) { return Py_IS_TYPE(object, g_splitter_type); }

bool fits(PyObject *splitter, PyObject *object) {
    return PyArray_CheckExact(object) &&
           as_splitter(splitter)->cuts.matches(reinterpret_cast<PyArrayObject *>(object));
}

PyObject *split_views(PyObject *splitter, PyObject *array) {
    return make_views(reinterpret_cast<PyArrayObject *>(array), as_splitter(splitter)->cuts);
}

}  // namespace splitops
