#include "python/plan.h"

#include <nanobind/nanobind.h>
#include <structmember.h>

#include <new>
#include <vector>

#include "python/copies.h"
#include "python/gil.h"
#include "python/views.h"

namespace nb = nanobind;

namespace splitops {
namespace {

PyTypeObject *g_plan_type = nullptr;
PyObject *g_general_call = nullptr;

Plan *as_plan(PyObject *self) { return reinterpret_cast<Plan *>(self); }

PyArrayObject *as_array(PyObject *object) { return reinterpret_cast<PyArrayObject *>(object); }

// The argument as an array of the plan's shape; null with an error set.
PyArrayObject *fitting_array(PyObject *self, PyObject *object) {
    PyArrayObject *array = exact_array(object);
    if (array != nullptr && !as_plan(self)->cuts.matches(array)) {
        set_shape_error(as_plan(self)->shape, array);
        return nullptr;
    }
    return array;
}

// The result of `__call__` in Python.
PyObject *call_general(PyObject *self, PyObject *const *args, std::size_t nargs, PyObject *kwnames) {
    if (g_general_call == nullptr) {
        PyErr_SetString(PyExc_TypeError, "plans cannot be called before the module is initialised");
        return nullptr;
    }
    const std::size_t total = nargs + (kwnames == nullptr ? 0 : static_cast<std::size_t>(PyTuple_GET_SIZE(kwnames)));
    std::vector<PyObject *> all{self};
    all.insert(all.end(), args, args + total);
    return asleep_at_exit([&] { return PyObject_Vectorcall(g_general_call, all.data(), nargs + 1, kwnames); });
}

// Reads `copy=` and `out=`; false for other arguments, or values that are not handled here.
bool read_keywords(PyObject *const *values, PyObject *kwnames, PyObject **copy, PyObject **out) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(kwnames); ++i) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, i);
        if (PyUnicode_CompareWithASCIIString(name, "copy") == 0)
            *copy = values[i];
        else if (PyUnicode_CompareWithASCIIString(name, "out") == 0)
            *out = values[i];
        else
            return false;
    }
    return is_copy_argument(*copy);
}

PyObject *plan_call(PyObject *self, PyObject *const *args, std::size_t nargsf, PyObject *kwnames) {
    const std::size_t nargs = static_cast<std::size_t>(PyVectorcall_NARGS(nargsf));
    if (nargs == 1 && PyArray_CheckExact(args[0]) && as_plan(self)->cuts.matches(as_array(args[0]))) {
        PyObject *copy = Py_None, *out = Py_None;
        if (kwnames == nullptr)
            return make_views(as_array(args[0]), as_plan(self)->cuts);
        if (read_keywords(args + 1, kwnames, &copy, &out))
            return run_plan(self, args[0], copy, out);
    }
    return call_general(self, args, nargs, kwnames);
}

PyObject *plan_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static const char *names[] = {"shape", "axis", "offsets", "sizes", "squeeze", "sequence", nullptr};
    PyObject *shape, *offsets, *sizes, *squeeze = Py_False, *sequence = Py_False;
    Py_ssize_t axis;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OnOO|O!O!:Plan", const_cast<char **>(names), &shape, &axis,
                                     &offsets, &sizes, &PyBool_Type, &squeeze, &PyBool_Type, &sequence))
        return nullptr;
    PyObject *self = type->tp_alloc(type, 0);
    if (self == nullptr)
        return nullptr;
    Plan *plan = as_plan(self);
    plan->call = plan_call;
    new (&plan->cuts) Cuts;
    plan->cuts.listed = sequence == Py_True;
    // Own tuples, so that no other thread can change them while they are read.
    const bool read = (plan->shape = integer_tuple(shape, "shape")) != nullptr &&
                      (plan->offsets = integer_tuple(offsets, "offsets")) != nullptr &&
                      (plan->sizes = integer_tuple(sizes, "sizes")) != nullptr;
    try {
        if (read && read_cuts(plan->shape, axis, plan->offsets, plan->sizes, squeeze == Py_True, plan->cuts))
            return self;
    } catch (const std::bad_alloc &) {
        PyErr_NoMemory();
    }
    Py_DECREF(self);
    return nullptr;
}

void plan_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    Plan *plan = as_plan(self);
    Py_XDECREF(plan->shape);
    Py_XDECREF(plan->offsets);
    Py_XDECREF(plan->sizes);
    plan->cuts.~Cuts();
    type->tp_free(self);
    Py_DECREF(type);
}

PyObject *plan_views(PyObject *self, PyObject *object) {
    PyArrayObject *array = fitting_array(self, object);
    return array == nullptr ? nullptr : make_views(array, as_plan(self)->cuts);
}

PyObject *plan_copies(PyObject *self, PyObject *args, PyObject *kwargs) {
    static const char *names[] = {"array", "separate", nullptr};
    PyObject *object;
    int separate = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$p:copies", const_cast<char **>(names), &object, &separate))
        return nullptr;
    PyArrayObject *array = fitting_array(self, object);
    return array == nullptr ? nullptr : make_copies(array, as_plan(self)->cuts, separate != 0);
}

PyObject *plan_copies_into(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "copies_into requires an array and the arrays to fill");
        return nullptr;
    }
    PyArrayObject *array = fitting_array(self, args[0]);
    if (array == nullptr || !copy_into(array, as_plan(self)->cuts, args[1]))
        return nullptr;
    Py_RETURN_NONE;
}

PyObject *plan_fill(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "fill requires an array and the arrays to fill");
        return nullptr;
    }
    PyArrayObject *array = fitting_array(self, args[0]);
    return array == nullptr ? nullptr : fill(array, as_plan(self)->cuts, args[1]);
}

PyCFunction fastcall(PyObject *(*function)(PyObject *, PyObject *const *, Py_ssize_t)) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

}  // namespace

bool add_plan(PyObject *module, PyObject *base) {
    static PyMethodDef methods[] = {
        {"views", plan_views, METH_O, nullptr},
        {"copies", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(plan_copies)),
         METH_VARARGS | METH_KEYWORDS, nullptr},
        {"copies_into", fastcall(plan_copies_into), METH_FASTCALL, nullptr},
        {"fill", fastcall(plan_fill), METH_FASTCALL, nullptr},
        {nullptr, nullptr, 0, nullptr},
    };
    static PyMemberDef members[] = {
        {"__vectorcalloffset__", T_PYSSIZET, offsetof(Plan, call), READONLY, nullptr},
        {"shape", T_OBJECT_EX, offsetof(Plan, shape), READONLY, nullptr},
        {"axis", T_INT, offsetof(Plan, cuts) + offsetof(Cuts, axis), READONLY, nullptr},
        {"offsets", T_OBJECT_EX, offsetof(Plan, offsets), READONLY, nullptr},
        {"sizes", T_OBJECT_EX, offsetof(Plan, sizes), READONLY, nullptr},
        {"squeeze", T_BOOL, offsetof(Plan, cuts) + offsetof(Cuts, squeeze), READONLY, nullptr},
        {"sequence", T_BOOL, offsetof(Plan, cuts) + offsetof(Cuts, listed), READONLY, nullptr},
        {nullptr, 0, 0, 0, nullptr},
    };
    static PyType_Slot slots[] = {
        {Py_tp_new, reinterpret_cast<void *>(plan_new)},
        {Py_tp_dealloc, reinterpret_cast<void *>(plan_dealloc)},
        {Py_tp_call, reinterpret_cast<void *>(PyVectorcall_Call)},
        {Py_tp_methods, methods},
        {Py_tp_members, members},
        {Py_tp_doc, const_cast<char *>("Plan(shape, axis, offsets, sizes, squeeze=False, sequence=False)\n--\n\n")},
        {0, nullptr},
    };
    static PyType_Spec spec = {"splitops.Plan", sizeof(Plan), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, slots};
    const nb::object bases = nb::steal(PyTuple_Pack(1, base));
    if (!bases.is_valid())
        return false;
    g_plan_type = reinterpret_cast<PyTypeObject *>(PyType_FromSpecWithBases(&spec, bases.ptr()));
    const nb::object documentation = nb::steal(PyObject_GetAttrString(base, "__doc__"));
    return g_plan_type != nullptr && documentation.is_valid() &&
           PyDict_SetItemString(g_plan_type->tp_dict, "__doc__", documentation.ptr()) == 0 &&
           PyModule_AddObjectRef(module, "Plan", reinterpret_cast<PyObject *>(g_plan_type)) == 0;
}

bool show_call(PyTypeObject *type, PyObject *function) {
    if (PyDict_SetItemString(type->tp_dict, "__call__", function) != 0)
        return false;
    PyType_Modified(type);
    return true;
}

bool set_general_call(PyObject *function) {
    Py_XSETREF(g_general_call, Py_NewRef(function));
    return show_call(g_plan_type, function);
}

bool is_plan(PyObject *object) { return Py_IS_TYPE(object, g_plan_type); }

PyObject *run_plan(PyObject *plan, PyObject *array, PyObject *copy, PyObject *out) {
    const Cuts &cuts = as_plan(plan)->cuts;
    if (out == Py_None)
        return copy == Py_True ? make_copies(as_array(array), cuts) : make_views(as_array(array), cuts);
    if (copy != Py_False) {
        PyObject *filled = fill(as_array(array), cuts, out);
        if (filled != Py_None)
            return filled;
        Py_DECREF(filled);
    }
    // If the buffers do not certainly match, Python checks them and raises the error.
    const nb::object names = nb::steal(Py_BuildValue("(ss)", "copy", "out"));
    PyObject *const args[] = {array, copy, out};
    return names.is_valid() ? call_general(plan, args, 1, names.ptr()) : nullptr;
}

}  // namespace splitops
