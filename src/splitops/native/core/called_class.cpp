#include "called_class.h"

#include <nanobind/nanobind.h>
#include <structmember.h>

#include "splitter.h"

namespace nb = nanobind;

namespace splitops {

#ifdef Py_GIL_DISABLED

// Another thread may replace what the slot holds while it is read here: the class's own `__call__` does it all.
bool call_by_splitter(PyObject *, PyObject *) { return true; }

#else

namespace {

// What Python does to call an instance: it looks up `__call__`. The same function for every class.
ternaryfunc g_python_call = nullptr;

// Where the instances keep their Splitter; the same for every class.
Py_ssize_t g_offset = 0;

PyObject *call(PyObject *self, PyObject *args, PyObject *kwargs) {
    PyObject *splitter = *reinterpret_cast<PyObject **>(reinterpret_cast<char *>(self) + g_offset);
    if (kwargs == nullptr && PyTuple_GET_SIZE(args) == 1 && splitter != nullptr && is_splitter(splitter) &&
        PyArray_CheckExact(PyTuple_GET_ITEM(args, 0))) {
        PyArrayObject *array = reinterpret_cast<PyArrayObject *>(PyTuple_GET_ITEM(args, 0));
        const Splitter *compiled = reinterpret_cast<Splitter *>(splitter);
        if (compiled->cuts.matches(array)) {
            nb::object owned = nb::borrow(splitter);  // a finalizer may take it out of the slot meanwhile
            return split_views(compiled, array);
        }
    }
    return g_python_call(self, args, kwargs);
}

}  // namespace

bool call_by_splitter(PyObject *type, PyObject *slot) {
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
    if (g_python_call != nullptr && (cls->tp_call != g_python_call || place->offset != g_offset)) {
        PyErr_SetString(PyExc_TypeError, "a class before has the slot at another place");
        return false;
    }
    g_python_call = cls->tp_call;
    g_offset = place->offset;
    // Python itself sets this field anew where `__call__` is assigned to the class, and in each subclass: what a user
    // overrides is what is called.
    cls->tp_call = call;
    PyType_Modified(cls);
    return true;
}

#endif

}  // namespace splitops
