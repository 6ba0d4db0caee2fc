#include "call_cache.h"

#include <nanobind/nanobind.h>
#include <structmember.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <vector>

#include "copies.h"
#include "splitter.h"
#include "views.h"

namespace nb = nanobind;

namespace splitops {
namespace {

// A key is a short list of words: dtype address, rank, extents, then each argument with its type. It is
// exact: two calls have the same words only if their arguments have the same types and values.
constexpr std::size_t kMaxWords = 96;
constexpr std::size_t kMaxParts = 4096;  // longer plans are not kept, so that the memory is bounded
constexpr std::size_t kWays = 4;
constexpr std::size_t kSets = 64;

enum Tag : std::int64_t { kNone, kInt, kList, kTuple };

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

bool push_argument(Key &key, PyObject *object) {
    if (object == Py_None)
        return key.push(kNone);
    if (PyLong_CheckExact(object))
        return key.push(kInt) && push_int(key, object);
    if (PyTuple_CheckExact(object))
        return key.push(kTuple) && push_items(key, &PyTuple_GET_ITEM(object, 0), PyTuple_GET_SIZE(object));
    if (PyList_CheckExact(object)) {
        nb::ft_object_guard guard(object);  // no other thread may change the list meanwhile
        return key.push(kList) && push_items(key, reinterpret_cast<PyListObject *>(object)->ob_item,
                                             PyList_GET_SIZE(object));
    }
    return false;
}

// False when a value does not qualify: the caller then takes its slow path.
bool make_key(PyObject *const *args, std::size_t nargs, Key &key) {
    if (nargs == 0 || !PyArray_CheckExact(args[0]))
        return false;
    PyArrayObject *array = reinterpret_cast<PyArrayObject *>(args[0]);
    const int ndim = PyArray_NDIM(array);
    key.push(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(PyArray_DESCR(array))));
    key.push(ndim);
    for (int i = 0; i < ndim; ++i)
        key.push(PyArray_DIM(array, i));
    for (std::size_t i = 1; i < nargs; ++i)
        if (!push_argument(key, args[i]))
            return false;
    return true;
}

static_assert(kMaxWords > NPY_MAXDIMS + 2, "the words of any array fit");

struct Entry {
    std::uint64_t hash = 0;
    std::vector<std::int64_t> words;
    PyObject *dtype = nullptr;  // kept alive: the key holds its address
    PyObject *splitter = nullptr;

    bool matches(const Key &key) const {
        return splitter != nullptr && words.size() == key.count &&
               std::equal(words.begin(), words.end(), key.words);
    }

    bool matches(const Key &key, std::uint64_t h) const { return hash == h && matches(key); }
};

struct Table {
    nb::ft_mutex mutex;
    Entry entries[kSets][kWays];
    unsigned char next[kSets] = {};       // the way that the next new entry of the set takes
    const Entry *latest = &entries[0][0];  // of the last call: the next one is mostly the same
};

struct CallCache {
    PyObject_HEAD
    vectorcallfunc call;
    Table *table;
};

CallCache *as_cache(PyObject *self) { return reinterpret_cast<CallCache *>(self); }

// A new reference, or null without an error.
PyObject *find(CallCache *cache, const Key &key) {
    Table &table = *cache->table;
    nb::ft_lock_guard lock(table.mutex);
    if (table.latest->matches(key))
        return Py_NewRef(table.latest->splitter);
    const std::uint64_t hash = key.hash();
    for (const Entry &entry : table.entries[hash % kSets])
        if (entry.matches(key, hash)) {
            table.latest = &entry;
            return Py_NewRef(entry.splitter);
        }
    return nullptr;
}

// The Splitter of an earlier call, or null without an error.
nb::object recall(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    Key key;
    return nb::steal(make_key(args, static_cast<std::size_t>(nargs), key) ? find(as_cache(self), key) : nullptr);
}

const Splitter *as_splitter(const nb::object &object) { return reinterpret_cast<const Splitter *>(object.ptr()); }

PyArrayObject *as_array(PyObject *object) { return reinterpret_cast<PyArrayObject *>(object); }

PyObject *cache_call(PyObject *self, PyObject *const *args, std::size_t nargsf, PyObject *kwnames) {
    if (kwnames != nullptr && PyTuple_GET_SIZE(kwnames) != 0) {
        PyErr_SetString(PyExc_TypeError, "a CallCache takes no keyword arguments");
        return nullptr;
    }
    const nb::object splitter = recall(self, args, PyVectorcall_NARGS(nargsf));
    if (!splitter.is_valid())
        Py_RETURN_NONE;
    return split_views(splitter.ptr(), args[0]);
}

PyObject *cache_copies(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    const nb::object splitter = recall(self, args, nargs);
    if (!splitter.is_valid())
        Py_RETURN_NONE;
    return make_copies(as_array(args[0]), as_splitter(splitter)->cuts, false);
}

PyObject *cache_fill(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    if (nargs < 1) {
        PyErr_SetString(PyExc_TypeError, "fill takes buffers, an array and the arguments of the call");
        return nullptr;
    }
    const nb::object splitter = recall(self, args + 1, nargs - 1);
    if (!splitter.is_valid())
        Py_RETURN_NONE;
    return fill(as_array(args[1]), as_splitter(splitter)->cuts, args[0]);
}

PyObject *cache_store(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    if (nargs < 2 || !is_splitter(args[0])) {
        PyErr_SetString(PyExc_TypeError, "store takes a Splitter, an array and the arguments of the call");
        return nullptr;
    }
    Key key;
    if (!make_key(args + 1, static_cast<std::size_t>(nargs - 1), key))
        Py_RETURN_FALSE;
    const Cuts &cuts = reinterpret_cast<Splitter *>(args[0])->cuts;
    PyArrayObject *array = reinterpret_cast<PyArrayObject *>(args[1]);
    if (!cuts.matches(array)) {
        set_shape_error(cuts, array);
        return nullptr;
    }
    if (cuts.count() > kMaxParts)
        Py_RETURN_FALSE;
    Entry fresh;
    fresh.hash = key.hash();
    try {
        fresh.words.assign(key.words, key.words + key.count);
    } catch (const std::bad_alloc &) {
        return PyErr_NoMemory();
    }
    fresh.dtype = Py_NewRef(reinterpret_cast<PyObject *>(PyArray_DESCR(array)));
    fresh.splitter = Py_NewRef(args[0]);
    {
        Table &table = *as_cache(self)->table;
        nb::ft_lock_guard lock(table.mutex);
        const std::size_t set = fresh.hash % kSets;
        Entry *place = nullptr;
        for (Entry &entry : table.entries[set])
            if (entry.matches(key, fresh.hash))
                place = &entry;
        if (place == nullptr) {
            place = &table.entries[set][table.next[set]];
            table.next[set] = static_cast<unsigned char>((table.next[set] + 1) % kWays);
        }
        std::swap(*place, fresh);
        table.latest = place;
    }
    Py_XDECREF(fresh.dtype);  // the former entry; outside of the lock, since this may run other code
    Py_XDECREF(fresh.splitter);
    Py_RETURN_TRUE;
}

PyObject *cache_clear(PyObject *self, PyObject *) {
    Table *empty = new (std::nothrow) Table;
    if (empty == nullptr)
        return PyErr_NoMemory();
    Table &table = *as_cache(self)->table;
    {
        nb::ft_lock_guard lock(table.mutex);
        std::swap(table.entries, empty->entries);
    }
    for (auto &set : empty->entries)
        for (Entry &entry : set) {
            Py_XDECREF(entry.dtype);
            Py_XDECREF(entry.splitter);
        }
    delete empty;
    Py_RETURN_NONE;
}

Py_ssize_t cache_length(PyObject *self) {
    Table &table = *as_cache(self)->table;
    nb::ft_lock_guard lock(table.mutex);
    Py_ssize_t count = 0;
    for (const auto &set : table.entries)
        for (const Entry &entry : set)
            count += entry.splitter != nullptr;
    return count;
}

// A function whose remembered calls are done by its cache. The names of its parameters begin with the array and end
// with `copy` and `out`; those between are what calls are remembered by.
struct Recall {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *function, *cache, *names;
    PyObject *defaults;     // an Ellipsis, with which no call is remembered, for each that there is not
    Py_ssize_t positional;  // so many may be given by their place
};

constexpr Py_ssize_t kMaxParameters = 16;

PyTypeObject *g_cache_type = nullptr;
PyTypeObject *g_recall_type = nullptr;

Recall *as_recall(PyObject *self) { return reinterpret_cast<Recall *>(self); }

// The values of all parameters, borrowed; false where the call is none that could be remembered.
bool read_parameters(const Recall *r, PyObject *const *args, Py_ssize_t given, PyObject *kwnames, PyObject **values) {
    const Py_ssize_t count = PyTuple_GET_SIZE(r->names);
    if (given == 0 || given > r->positional || !PyArray_CheckExact(args[0]))
        return false;
    for (Py_ssize_t i = 0; i < count; ++i)
        values[i] = i < given ? args[i] : PyTuple_GET_ITEM(r->defaults, i);
    // Names in code are interned: others, and what is unknown or given twice, are left to the function.
    for (Py_ssize_t k = 0; kwnames != nullptr && k < PyTuple_GET_SIZE(kwnames); ++k) {
        PyObject **const names = &PyTuple_GET_ITEM(r->names, 0);
        PyObject **const found = std::find(names + given, names + count, PyTuple_GET_ITEM(kwnames, k));
        if (found == names + count)
            return false;
        values[found - names] = args[given + k];
    }
    return true;
}

PyObject *recall_new(PyTypeObject *type, PyObject *args, PyObject *) {
    PyObject *function, *cache, *names, *defaults;
    Py_ssize_t positional;
    if (!PyArg_ParseTuple(args, "OO!O!O!n:Recall", &function, g_cache_type, &cache, &PyTuple_Type, &names,
                          &PyTuple_Type, &defaults, &positional))
        return nullptr;
    const Py_ssize_t count = PyTuple_GET_SIZE(names);
    if (count < 3 || count > kMaxParameters || positional < 1 || positional > count ||
        PyTuple_GET_SIZE(defaults) > count) {
        PyErr_SetString(PyExc_ValueError, "the parameters are not an array, what is remembered, copy and out");
        return nullptr;
    }
    // The parameters at the end are the ones with defaults.
    nb::object all = nb::steal(PyTuple_New(count));
    PyObject *self = all.is_valid() ? type->tp_alloc(type, 0) : nullptr;
    if (self == nullptr)
        return nullptr;
    const Py_ssize_t without = count - PyTuple_GET_SIZE(defaults);
    for (Py_ssize_t i = 0; i < count; ++i)
        PyTuple_SET_ITEM(all.ptr(), i, Py_NewRef(i < without ? Py_Ellipsis : PyTuple_GET_ITEM(defaults, i - without)));
    Recall *r = as_recall(self);
    r->call = call_recall;
    r->function = Py_NewRef(function);
    r->cache = Py_NewRef(cache);
    r->names = Py_NewRef(names);
    r->defaults = all.release().ptr();
    r->positional = positional;
    return self;
}

void recall_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    Recall *r = as_recall(self);
    Py_XDECREF(r->function);
    Py_XDECREF(r->cache);
    Py_XDECREF(r->names);
    Py_XDECREF(r->defaults);
    type->tp_free(self);
    Py_DECREF(type);
}

PyObject *cache_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static const char *names[] = {nullptr};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, ":CallCache", const_cast<char **>(names)))
        return nullptr;
    PyObject *self = type->tp_alloc(type, 0);
    if (self == nullptr)
        return nullptr;
    as_cache(self)->call = cache_call;
    as_cache(self)->table = new (std::nothrow) Table;
    if (as_cache(self)->table == nullptr) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return self;
}

void cache_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    if (Table *table = as_cache(self)->table) {
        for (auto &set : table->entries)
            for (Entry &entry : set) {
                Py_XDECREF(entry.dtype);
                Py_XDECREF(entry.splitter);
            }
        delete table;
    }
    type->tp_free(self);
    Py_DECREF(type);
}

PyCFunction fastcall(PyObject *(*function)(PyObject *, PyObject *const *, Py_ssize_t)) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

}  // namespace

bool add_call_cache(PyObject *module) {
    static PyMethodDef methods[] = {
        {"copies", fastcall(cache_copies), METH_FASTCALL,
         "copies(array, /, *arguments)\n\nFresh parts, or None when the call is unknown."},
        {"fill", fastcall(cache_fill), METH_FASTCALL,
         "fill(out, array, /, *arguments)\n\nThe arrays of `out`, filled; None when the call is unknown, or as of a "
         "Splitter."},
        {"store", fastcall(cache_store), METH_FASTCALL,
         "store(splitter, array, /, *arguments)\n\nRemembers the Splitter; False when the arguments do not qualify."},
        {"clear", cache_clear, METH_NOARGS, "clear()\n\nForgets everything."},
        {nullptr, nullptr, 0, nullptr},
    };
    static PyMemberDef members[] = {
        {"__vectorcalloffset__", T_PYSSIZET, offsetof(CallCache, call), READONLY, nullptr},
        {nullptr, 0, 0, 0, nullptr},
    };
    static PyType_Slot slots[] = {
        {Py_tp_new, reinterpret_cast<void *>(cache_new)},
        {Py_tp_dealloc, reinterpret_cast<void *>(cache_dealloc)},
        {Py_tp_call, reinterpret_cast<void *>(PyVectorcall_Call)},
        {Py_sq_length, reinterpret_cast<void *>(cache_length)},
        {Py_tp_methods, methods},
        {Py_tp_members, members},
        {Py_tp_doc, const_cast<char *>("CallCache()\n\nA bounded memo of compiled splits; calling it with the "
                                       "arguments of an earlier call gives the parts as views, or None.")},
        {0, nullptr},
    };
    static PyType_Spec spec = {"splitops.native._core.CallCache", sizeof(CallCache), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE, slots};
    g_cache_type = reinterpret_cast<PyTypeObject *>(PyType_FromSpec(&spec));
    return g_cache_type != nullptr && PyModule_AddType(module, g_cache_type) == 0;
}

bool add_recall(PyObject *module) {
    static PyMemberDef members[] = {
        {"__vectorcalloffset__", T_PYSSIZET, offsetof(Recall, call), READONLY, nullptr},
        {nullptr, 0, 0, 0, nullptr},
    };
    static PyType_Slot slots[] = {
        {Py_tp_new, reinterpret_cast<void *>(recall_new)},
        {Py_tp_dealloc, reinterpret_cast<void *>(recall_dealloc)},
        {Py_tp_call, reinterpret_cast<void *>(PyVectorcall_Call)},
        {Py_tp_members, members},
        {Py_tp_doc, const_cast<char *>("Recall(function, cache, names, defaults, positional)\n\n"
                                       "Calls the function, unless the cache remembers the call.")},
        {0, nullptr},
    };
    static PyType_Spec spec = {"splitops.native._core.Recall", sizeof(Recall), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE, slots};
    g_recall_type = reinterpret_cast<PyTypeObject *>(PyType_FromSpec(&spec));
    return g_recall_type != nullptr && PyModule_AddType(module, g_recall_type) == 0;
}

bool is_recall(PyObject *object) { return Py_IS_TYPE(object, g_recall_type); }

PyObject *call_recall(PyObject *self, PyObject *const *args, std::size_t nargsf, PyObject *kwnames) {
    const Recall *r = as_recall(self);
    PyObject *values[kMaxParameters];
    if (read_parameters(r, args, PyVectorcall_NARGS(nargsf), kwnames, values)) {
        const Py_ssize_t count = PyTuple_GET_SIZE(r->names) - 2;
        PyObject *copy = values[count], *out = values[count + 1];
        const bool known_copy = copy == Py_None || copy == Py_True || copy == Py_False;
        if (known_copy && (out == Py_None || copy != Py_False)) {
            const nb::object splitter = recall(r->cache, values, count);
            if (splitter.is_valid()) {
                PyArrayObject *array = as_array(values[0]);
                PyObject *parts = out != Py_None     ? fill(array, as_splitter(splitter)->cuts, out)
                                  : copy == Py_True ? make_copies(array, as_splitter(splitter)->cuts, false)
                                                    : make_views(array, as_splitter(splitter)->cuts);
                if (parts != Py_None)
                    return parts;
                Py_DECREF(parts);
            }
        }
    }
    return PyObject_Vectorcall(r->function, args, nargsf & ~PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames);
}

}  // namespace splitops
