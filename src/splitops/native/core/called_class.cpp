#include "called_class.h"

#include <nanobind/nanobind.h>
#include <structmember.h>

#include "call_cache.h"
#include "splitter.h"

namespace nb = nanobind;

namespace splitops {

#ifdef Py_GIL_DISABLED

// Another thread may replace what the slot holds while it is read here: the class's own `__call__` does it all.
bool call_by_splitter(PyObject *, PyObject *) { return true; }
bool call_by_recall(PyObject *, PyObject *) { return true; }

#else

namespace {

// Null without an error: the short cut is not for this call.
using ShortCut = PyObject *(*)(PyObject *held, PyObject *args, PyObject *kwargs);

PyObject *split_by(PyObject *held, PyObject *args, PyObject *kwargs) {
    if (kwargs != nullptr || PyTuple_GET_SIZE(args) != 1 || !is_splitter(held) ||
        !PyArray_CheckExact(PyTuple_GET_ITEM(args, 0)))
        return nullptr;
    PyArrayObject *array = reinterpret_cast<PyArrayObject *>(PyTuple_GET_ITEM(args, 0));
    const Splitter *splitter = reinterpret_cast<Splitter *>(held);
    if (!splitter->cuts.matches(array))
        return nullptr;
    nb::object owned = nb::borrow(held);  // a finalizer may take it out of the slot meanwhile
    return split_views(splitter, array);
}

PyObject *recall_by(PyObject *held, PyObject *args, PyObject *kwargs) {
    if (!is_recall(held))
        return nullptr;
    nb::object owned = nb::borrow(held);
    return call_recall(held, args, kwargs);
}

// The one class of Python that has the short cut.
template <ShortCut short_cut>
struct CalledClass {
    static inline ternaryfunc python_call = nullptr;  // what Python does to call an instance: it looks up `__call__`
    static inline Py_ssize_t offset = 0;              // where the instances keep what does the call

    static PyObject *call(PyObject *self, PyObject *args, PyObject *kwargs) {
        PyObject *held = *reinterpret_cast<PyObject **>(reinterpret_cast<char *>(self) + offset);
        if (held != nullptr) {
            PyObject *result = short_cut(held, args, kwargs);
            if (result != nullptr || PyErr_Occurred() != nullptr)
                return result;
        }
        return python_call(self, args, kwargs);
    }

    static bool take(PyObject *type, PyObject *slot) {
        if (!PyType_Check(type) || !PyType_HasFeature(reinterpret_cast<PyTypeObject *>(type), Py_TPFLAGS_HEAPTYPE)) {
            PyErr_SetString(PyExc_TypeError, "expected a class that is written in Python");
            return false;
        }
        nb::object member = nb::steal(PyObject_GetAttr(type, slot));
        if (!member.is_valid())
            return false;
        const PyMemberDef *place = Py_IS_TYPE(member.ptr(), &PyMemberDescr_Type)
                                       ? reinterpret_cast<PyMemberDescrObject *>(member.ptr())->d_member
                                       : nullptr;
        PyTypeObject *cls = reinterpret_cast<PyTypeObject *>(type);
        if (place == nullptr || place->type != T_OBJECT_EX || cls->tp_call == nullptr) {
            PyErr_SetString(PyExc_TypeError, "expected a class with __call__ and the slot");
            return false;
        }
        if (python_call != nullptr && (cls->tp_call != python_call || place->offset != offset)) {
            PyErr_SetString(PyExc_TypeError, "a class before has the slot at another place");
            return false;
        }
        python_call = cls->tp_call;
        offset = place->offset;
        // Python itself sets this field anew where `__call__` is assigned to the class, and in each subclass: what a
        // user overrides is what is called.
        cls->tp_call = call;
        PyType_Modified(cls);
        return true;
    }
};

}  // namespace

bool call_by_splitter(PyObject *type, PyObject *slot) { return CalledClass<split_by>::take(type, slot); }

bool call_by_recall(PyObject *type, PyObject *slot) { return CalledClass<recall_by>::take(type, slot); }

#endif

}  // namespace splitops
