#include "python/function.h"

#include <nanobind/nanobind.h>
#include <structmember.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <vector>

#include "python/gil.h"
#include "python/plan.h"

namespace nb = nanobind;

namespace splitops {
namespace {

// A key is a short list of words: dtype address, rank, extents, then each argument with its type. It is exact: two
// calls have the same words only if their arguments have the same types and values.
constexpr std::size_t kMaxWords = 96;  // the words of any array, and a few dozen lengths
constexpr Py_ssize_t kMaxParameters = 16;
constexpr std::size_t kMaxParts = 4096;  // longer plans are not cached, to limit the memory
constexpr std::size_t kWays = 4;
constexpr std::size_t kSets = 64;

enum Tag : std::int64_t { kNone, kInt, kList, kTuple, kArray };

struct Key {
    std::int64_t words[kMaxWords];
    std::size_t count = 0;

    bool push(std::int64_t word) {
        if (count == kMaxWords)
            return false;
        words[count++] = word;
        return true;
    }

    std::uint64_t hash() const {
        std::uint64_t h = count;
        for (std::size_t i = 0; i < count; ++i) {
            h = (h ^ static_cast<std::uint64_t>(words[i])) * 0x9E3779B97F4A7C15u;
            h ^= h >> 32;
        }
        return h;
    }
};

// bool is a subclass of int, so the exact type is what tells True from 1.
bool push_int(Key &key, PyObject *object) {
    if (!PyLong_CheckExact(object))
        return false;
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
    return overflow == 0 && key.push(value);
}

bool push_items(Key &key, PyObject *const *items, Py_ssize_t count) {
    if (!key.push(count))
        return false;
    for (Py_ssize_t i = 0; i < count; ++i)
        if (!push_int(key, items[i]))
            return false;
    return true;
}

template <class Integer>
bool push_numbers(Key &key, PyArrayObject *array, npy_intp count, npy_intp stride) {
    const char *item = PyArray_BYTES(array);
    for (npy_intp i = 0; i < count; ++i, item += stride)
        if (!key.push(*reinterpret_cast<const Integer *>(item)))
            return false;
    return true;
}

// Lengths as NumPy usually has them: int64 or int32, of rank 0 or 1. The type distinguishes them from a list.
bool push_array(Key &key, PyArrayObject *array) {
    const int ndim = PyArray_NDIM(array);
    if (ndim > 1 || !PyArray_ISBEHAVED_RO(array))
        return false;
    const npy_intp count = PyArray_SIZE(array), stride = ndim == 0 ? 0 : PyArray_STRIDE(array, 0);
    const int type = PyArray_TYPE(array);
    if (!key.push(kArray) || !key.push(type) || !key.push(ndim) || !key.push(count))
        return false;
    if (type == NPY_INT64)
        return push_numbers<std::int64_t>(key, array, count, stride);
    return type == NPY_INT32 && push_numbers<std::int32_t>(key, array, count, stride);
}

bool push_argument(Key &key, PyObject *object) {
    if (object == Py_None)
        return key.push(kNone);
    if (PyLong_CheckExact(object))
        return key.push(kInt) && push_int(key, object);
    if (PyTuple_CheckExact(object))
        return key.push(kTuple) && push_items(key, &PyTuple_GET_ITEM(object, 0), PyTuple_GET_SIZE(object));
    if (PyList_CheckExact(object)) {
        nb::ft_object_guard guard(object);  // another thread must not change the list now
        return key.push(kList) && push_items(key, reinterpret_cast<PyListObject *>(object)->ob_item,
                                             PyList_GET_SIZE(object));
    }
    if (PyArray_CheckExact(object))
        return push_array(key, reinterpret_cast<PyArrayObject *>(object));
    return false;
}

std::int64_t word_of(PyArray_Descr *descr) {
    return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(descr));
}

// False if a value does not qualify. Objects do not, because their element type depends on their values.
bool make_key(PyObject *const *args, std::size_t nargs, Key &key) {
    PyArrayObject *array = reinterpret_cast<PyArrayObject *>(args[0]);
    if (PyArray_TYPE(array) == NPY_OBJECT)
        return false;
    const int ndim = PyArray_NDIM(array);
    key.push(word_of(PyArray_DESCR(array)));
    key.push(ndim);
    for (int i = 0; i < ndim; ++i)
        key.push(PyArray_DIM(array, i));
    for (std::size_t i = 1; i < nargs; ++i)
        if (!push_argument(key, args[i]))
            return false;
    return true;
}

static_assert(kMaxWords > NPY_MAXDIMS + 2, "the words of any array fit");

// Whether the array still matches the key, and the plan is for it.
bool is_of(const Key &key, PyArrayObject *array, const Cuts &cuts) {
    return key.words[0] == word_of(PyArray_DESCR(array)) && key.words[1] == cuts.ndim &&
           std::equal(cuts.shape, cuts.shape + cuts.ndim, key.words + 2) && cuts.matches(array);
}

struct Entry {
    std::uint64_t hash = 0;
    std::vector<std::int64_t> words;
    nb::object dtype;  // kept alive, because the key has its address
    nb::object plan;

    bool matches(const Key &key) const {
        return plan.is_valid() && words.size() == key.count && std::equal(words.begin(), words.end(), key.words);
    }

    bool matches(const Key &key, std::uint64_t h) const { return hash == h && matches(key); }
};

// A bounded cache from keys to plans.
class Table {
  public:
    // The plan of an earlier call; null without an error if there is none.
    nb::object find(const Key &key) {
        nb::ft_lock_guard lock(mutex_);
        if (latest_->matches(key))
            return latest_->plan;
        const std::uint64_t hash = key.hash();
        for (const Entry &entry : entries_[hash % kSets])
            if (entry.matches(key, hash)) {
                latest_ = &entry;
                return entry.plan;
            }
        return {};
    }

    void store(const Key &key, PyArrayObject *array, PyObject *plan) {  // throws std::bad_alloc
        Entry fresh;
        fresh.hash = key.hash();
        fresh.words.assign(key.words, key.words + key.count);
        fresh.dtype = nb::borrow(reinterpret_cast<PyObject *>(PyArray_DESCR(array)));
        fresh.plan = nb::borrow(plan);
        nb::ft_lock_guard lock(mutex_);
        const std::size_t set = fresh.hash % kSets;
        Entry *place = nullptr;
        for (Entry &entry : entries_[set])
            if (entry.matches(key, fresh.hash))
                place = &entry;
        if (place == nullptr) {
            place = &entries_[set][next_[set]];
            next_[set] = static_cast<unsigned char>((next_[set] + 1) % kWays);
        }
        std::swap(*place, fresh);
        latest_ = place;
        // The old entry is freed after the lock is released, because freeing may run other code; so `fresh` was created
        // before.
    }

  private:
    nb::ft_mutex mutex_;
    Entry entries_[kSets][kWays];
    unsigned char next_[kSets] = {};        // the way for the next new entry of the set
    const Entry *latest_ = &entries_[0][0];  // of the last call, which the next one usually equals
};

PyTypeObject *g_function_type = nullptr;

// The names of its parameters begin with the array and end with `copy` and `out`. Those between form the cache key.
struct Function {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *function;  // handles calls that are not cached
    PyObject *planner;   // makes the plan from the values before `copy`
    PyObject *names;
    PyObject *defaults;  // of every parameter; Ellipsis if there is none
    Py_ssize_t positional;
    Table *table;
    PyObject *dict;
    PyObject *weakrefs;
};

Function *as_function(PyObject *self) { return reinterpret_cast<Function *>(self); }

// The values of all parameters, borrowed; false if the call cannot be cached.
bool read_parameters(const Function *f, PyObject *const *args, Py_ssize_t given, PyObject *kwnames,
                     PyObject **values) {
    const Py_ssize_t count = PyTuple_GET_SIZE(f->names);
    if (given == 0 || given > f->positional || !PyArray_CheckExact(args[0]))
        return false;
    for (Py_ssize_t i = 0; i < count; ++i)
        values[i] = i < given ? args[i] : PyTuple_GET_ITEM(f->defaults, i);
    // Names in code are interned. Other names, and unknown or duplicate ones, are left to the function.
    for (Py_ssize_t k = 0; kwnames != nullptr && k < PyTuple_GET_SIZE(kwnames); ++k) {
        PyObject **const names = &PyTuple_GET_ITEM(f->names, 0);
        PyObject **const found = std::find(names + given, names + count, PyTuple_GET_ITEM(kwnames, k));
        if (found == names + count)
            return false;
        values[found - names] = args[given + k];
    }
    return is_copy_argument(values[count - 2]);
}

// An argument that no other thread can change: a list or an array is copied; null with an error set.
PyObject *unchanging(PyObject *object) {
    if (PyList_CheckExact(object))
        return PyList_GetSlice(object, 0, PY_SSIZE_T_MAX);
    if (PyArray_CheckExact(object))
        return PyArray_NewCopy(reinterpret_cast<PyArrayObject *>(object), NPY_CORDER);
    return Py_NewRef(object);
}

// Makes the plan of a call and caches it by the arguments that the planner got. These are copies, because another
// thread may change lengths during planning. Null without an error if the call can no longer be cached.
nb::object make_plan(const Function *f, PyObject *const *values, std::size_t count) {
    PyArrayObject *array = reinterpret_cast<PyArrayObject *>(values[0]);
    nb::object kept[kMaxParameters];
    PyObject *arguments[kMaxParameters] = {values[0]};
    for (std::size_t i = 1; i < count; ++i) {
        kept[i] = nb::steal(arguments[i] = unchanging(values[i]));
        if (arguments[i] == nullptr)
            return {};
    }
    Key key;
    if (!make_key(arguments, count, key))
        return {};
    nb::object plan = nb::steal(
        asleep_at_exit([&] { return PyObject_Vectorcall(f->planner, arguments, count, nullptr); }));
    if (!plan.is_valid())
        return plan;
    if (!is_plan(plan.ptr())) {
        PyErr_SetString(PyExc_TypeError, "the planner of a Function must return a Plan");
        return {};
    }
    const Cuts &cuts = reinterpret_cast<Plan *>(plan.ptr())->cuts;
    if (!is_of(key, array, cuts))
        return {};
    if (cuts.count() > kMaxParts)
        return plan;
    try {
        f->table->store(key, array, plan.ptr());
    } catch (const std::bad_alloc &) {
        PyErr_NoMemory();
        return {};
    }
    return plan;
}

PyObject *function_call(PyObject *self, PyObject *const *args, std::size_t nargsf, PyObject *kwnames) {
    const Function *f = as_function(self);
    PyObject *values[kMaxParameters];
    if (read_parameters(f, args, PyVectorcall_NARGS(nargsf), kwnames, values)) {
        const std::size_t count = static_cast<std::size_t>(PyTuple_GET_SIZE(f->names)) - 2;
        Key key;
        if (make_key(values, count, key)) {
            nb::object plan = f->table->find(key);
            if (!plan.is_valid())
                plan = make_plan(f, values, count);
            if (!plan.is_valid() && PyErr_Occurred())
                return nullptr;
            if (plan.is_valid())
                return run_plan(plan.ptr(), values[0], values[count], values[count + 1]);
        }
    }
    return PyObject_Vectorcall(f->function, args, nargsf & ~PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames);
}

PyObject *function_new(PyTypeObject *type, PyObject *args, PyObject *) {
    PyObject *function, *planner, *names, *defaults;
    Py_ssize_t positional;
    if (!PyArg_ParseTuple(args, "OOO!O!n:Function", &function, &planner, &PyTuple_Type, &names, &PyTuple_Type,
                          &defaults, &positional))
        return nullptr;
    const Py_ssize_t count = PyTuple_GET_SIZE(names);
    if (count < 3 || count > kMaxParameters || positional < 1 || positional > count ||
        PyTuple_GET_SIZE(defaults) > count) {
        PyErr_SetString(PyExc_ValueError, "the parameters must be an array, the arguments of the cache key, copy and out");
        return nullptr;
    }
    // The last parameters have defaults.
    nb::object all = nb::steal(PyTuple_New(count));
    PyObject *self = all.is_valid() ? type->tp_alloc(type, 0) : nullptr;
    if (self == nullptr)
        return nullptr;
    const Py_ssize_t without = count - PyTuple_GET_SIZE(defaults);
    for (Py_ssize_t i = 0; i < count; ++i)
        PyTuple_SET_ITEM(all.ptr(), i, Py_NewRef(i < without ? Py_Ellipsis : PyTuple_GET_ITEM(defaults, i - without)));
    Function *f = as_function(self);
    f->call = function_call;
    f->function = Py_NewRef(function);
    f->planner = Py_NewRef(planner);
    f->names = Py_NewRef(names);
    f->defaults = all.release().ptr();
    f->positional = positional;
    f->table = new (std::nothrow) Table;
    f->dict = PyDict_New();
    if (f->dict != nullptr && f->table != nullptr)
        return self;
    Py_DECREF(self);
    return PyErr_NoMemory();
}

void function_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    Function *f = as_function(self);
    if (f->weakrefs != nullptr)
        PyObject_ClearWeakRefs(self);
    delete f->table;
    for (PyObject *held : {f->function, f->planner, f->names, f->defaults, f->dict})
        Py_XDECREF(held);
    type->tp_free(self);
    Py_DECREF(type);
}

// By name, like every function: copies and pickles are the function itself.
PyObject *function_reduce(PyObject *self, PyObject *) { return PyObject_GetAttrString(self, "__qualname__"); }

PyObject *function_repr(PyObject *self) {
    const nb::object module = nb::steal(PyObject_GetAttrString(self, "__module__"));
    const nb::object name = nb::steal(PyObject_GetAttrString(self, "__qualname__"));
    if (!module.is_valid() || !name.is_valid())
        return nullptr;
    return PyUnicode_FromFormat("<function %S.%S>", module.ptr(), name.ptr());
}

}  // namespace

bool add_function(PyObject *module) {
    static PyMethodDef methods[] = {
        {"__reduce__", function_reduce, METH_NOARGS, nullptr},
        {nullptr, nullptr, 0, nullptr},
    };
    static PyMemberDef members[] = {
        {"__vectorcalloffset__", T_PYSSIZET, offsetof(Function, call), READONLY, nullptr},
        {"__dictoffset__", T_PYSSIZET, offsetof(Function, dict), READONLY, nullptr},
        {"__weaklistoffset__", T_PYSSIZET, offsetof(Function, weakrefs), READONLY, nullptr},
        {nullptr, 0, 0, 0, nullptr},
    };
    static PyGetSetDef attributes[] = {
        {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
        {nullptr, nullptr, nullptr, nullptr, nullptr},
    };
    static PyType_Slot slots[] = {
        {Py_tp_new, reinterpret_cast<void *>(function_new)},
        {Py_tp_dealloc, reinterpret_cast<void *>(function_dealloc)},
        {Py_tp_call, reinterpret_cast<void *>(PyVectorcall_Call)},
        {Py_tp_repr, reinterpret_cast<void *>(function_repr)},
        {Py_tp_methods, methods},
        {Py_tp_members, members},
        {Py_tp_getset, attributes},
        {0, nullptr},
    };
    static PyType_Spec spec = {"splitops.native._core.Function", sizeof(Function), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, slots};
    g_function_type = reinterpret_cast<PyTypeObject *>(PyType_FromSpec(&spec));
    return g_function_type != nullptr && PyModule_AddType(module, g_function_type) == 0;
}

bool show_function_call(PyObject *function) { return show_call(g_function_type, function); }

}  // namespace splitops
