#include "called.h"

#include <nanobind/nanobind.h>
#include <structmember.h>

#include "call_cache.h"
#include "splitter.h"

namespace nb = nanobind;

namespace splitops {
namespace {

struct Called {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *call;  // a Splitter or a Recall; anything else, and null, has no short cut
};

PyTypeObject *g_called_type = nullptr;
ternaryfunc g_python_call = nullptr;  // what Python does to call an instance: it looks up `__call__`

Called *as_called(PyObject *self) { return reinterpret_cast<Called *>(self); }

// A class whose `__call__` has been assigned or overridden has another.
bool has_short_cut(PyTypeObject *type) { return type->tp_call == PyVectorcall_Call; }

PyObject *call_python(PyObject *self, PyObject *const *args, std::size_t nargsf, PyObject *kwnames) {
    const Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    PyObject *positional = PyTuple_New(nargs);
    if (positional == nullptr)
        return nullptr;
    for (Py_ssize_t i = 0; i < nargs; ++i)
        PyTuple_SET_ITEM(positional, i, Py_NewRef(args[i]));
    PyObject *keywords = nullptr;
    bool complete = kwnames == nullptr || (keywords = PyDict_New()) != nullptr;
    for (Py_ssize_t i = 0; complete && kwnames != nullptr && i < PyTuple_GET_SIZE(kwnames); ++i)
        complete = PyDict_SetItem(keywords, PyTuple_GET_ITEM(kwnames, i), args[nargs + i]) == 0;
    PyTypeObject *type = Py_TYPE(self);
    const ternaryfunc call = has_short_cut(type) ? g_python_call : type->tp_call;
    PyObject *result = nullptr;
    if (complete && call == nullptr)  // `__call__` has been deleted
        PyErr_Format(PyExc_TypeError, "'%.200s' object is not callable", type->tp_name);
    else if (complete)
        result = call(self, positional, keywords);
    Py_XDECREF(keywords);
    Py_DECREF(positional);
    return result;
}

PyObject *called_vectorcall(PyObject *self, PyObject *const *args, std::size_t nargsf, PyObject *kwnames) {
    PyObject *call = as_called(self)->call;
    if (call == nullptr || !has_short_cut(Py_TYPE(self)))
        return call_python(self, args, nargsf, kwnames);
    PyObject *result;
    Py_INCREF(call);  // a finalizer may take it out of its place meanwhile
    if (is_recall(call))
        result = call_recall(call, args, nargsf, kwnames);
    else if (PyVectorcall_NARGS(nargsf) == 1 && kwnames == nullptr && is_splitter(call) && fits(call, args[0]))
        result = split_views(call, args[0]);
    else
        result = call_python(self, args, nargsf, kwnames);
    Py_DECREF(call);
    return result;
}

PyObject *called_new(PyTypeObject *type, PyObject *, PyObject *) {
    PyObject *nothing = PyTuple_New(0);
    // As an object: to allocate alone would leave its attributes in a dictionary of its own.
    PyObject *self = nothing == nullptr ? nullptr : PyBaseObject_Type.tp_new(type, nothing, nullptr);
    Py_XDECREF(nothing);
    if (self != nullptr) {
        as_called(self)->vectorcall = called_vectorcall;
        as_called(self)->call = Py_NewRef(Py_None);
    }
    return self;
}

void called_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(as_called(self)->call);
    type->tp_free(self);
    Py_DECREF(type);
}

// CPython 3.11 inherits vectorcall to no class that is written in Python, so each direct subclass is given it here.
PyObject *called_init_subclass(PyObject *cls, PyObject *args, PyObject *kwargs) {
    PyTypeObject *type = reinterpret_cast<PyTypeObject *>(cls);
    if (type->tp_call == nullptr) {
        PyErr_Format(PyExc_TypeError, "%.80s has no __call__", type->tp_name);
        return nullptr;
    }
#ifndef Py_GIL_DISABLED  // there another thread may replace what is called while it is read
    if (type->tp_base == g_called_type && !has_short_cut(type)) {
        g_python_call = type->tp_call;
        type->tp_call = PyVectorcall_Call;
        type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
        PyType_Modified(type);
    }
#endif
    const nb::object next = nb::steal(PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject *>(&PySuper_Type),
                                                                   g_called_type, cls, nullptr));
    if (!next.is_valid())
        return nullptr;
    const nb::object init = nb::steal(PyObject_GetAttrString(next.ptr(), "__init_subclass__"));
    return init.is_valid() ? PyObject_Call(init.ptr(), args, kwargs) : nullptr;
}

}  // namespace

bool add_called(PyObject *module) {
    static PyMethodDef methods[] = {
        {"__init_subclass__",
         reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(called_init_subclass)),
         METH_CLASS | METH_VARARGS | METH_KEYWORDS, nullptr},
        {nullptr, nullptr, 0, nullptr},
    };
    static PyMemberDef members[] = {
        {"__vectorcalloffset__", T_PYSSIZET, offsetof(Called, vectorcall), READONLY, nullptr},
        {"_call", T_OBJECT_EX, offsetof(Called, call), 0, nullptr},
        {nullptr, 0, 0, 0, nullptr},
    };
    static PyType_Slot slots[] = {
        {Py_tp_new, reinterpret_cast<void *>(called_new)},
        {Py_tp_dealloc, reinterpret_cast<void *>(called_dealloc)},
        {Py_tp_methods, methods},
        {Py_tp_members, members},
        {Py_tp_doc, const_cast<char *>("A base of classes whose instances are called past their `__call__`.")},
        {0, nullptr},
    };
    static PyType_Spec spec = {"splitops.native._core.Called", sizeof(Called), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE, slots};
    g_called_type = reinterpret_cast<PyTypeObject *>(PyType_FromSpec(&spec));
    return g_called_type != nullptr && PyModule_AddType(module, g_called_type) == 0;
}

}  // namespace splitops
