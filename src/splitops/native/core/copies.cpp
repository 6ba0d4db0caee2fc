#include "copies.h"

#include <nanobind/nanobind.h>

#include <vector>

#include "memory_pool.h"
#include "split_copy.h"
#include "views.h"

namespace nb = nanobind;

namespace splitops {
namespace {

static_assert(sizeof(npy_intp) == sizeof(Extent), "NumPy's extents are handed to the kernels as they are");

constexpr std::size_t kAlignment = 64;

// Smaller outputs lie in the object that owns them: one allocation instead of two, and none of them pooled.
constexpr std::size_t kInlineBytes = std::size_t{32} << 10;

// The owner of output memory: the base object of the parts that lie in it. It exports its bytes as a
// writeable buffer, so that NumPy lets the user of a part turn its `writeable` flag off and on again.
struct Block {
    PyObject_VAR_HEAD
    char *data;
    Py_ssize_t bytes;
    Slab slab;  // no data: the bytes follow this object
};

PyTypeObject *g_block_type = nullptr;

void block_dealloc(PyObject *self) {
    Block *block = reinterpret_cast<Block *>(self);
    PyTypeObject *type = Py_TYPE(self);
    if (block->slab.data != nullptr)
        memory_pool::release(block->slab);
    PyObject_Free(self);
    Py_DECREF(type);
}

int block_getbuffer(PyObject *self, Py_buffer *view, int flags) {
    Block *block = reinterpret_cast<Block *>(self);
    return PyBuffer_FillInfo(view, self, block->data, block->bytes, 0, flags);
}

Block *new_block(std::size_t bytes) {
    const bool inlined = bytes < kInlineBytes;
    Block *block = PyObject_NewVar(Block, g_block_type, static_cast<Py_ssize_t>(inlined ? bytes + kAlignment : 0));
    if (block == nullptr)
        return nullptr;
    block->slab = Slab();
    block->bytes = static_cast<Py_ssize_t>(bytes);
    if (inlined) {
        const std::uintptr_t end = reinterpret_cast<std::uintptr_t>(block + 1);
        block->data = reinterpret_cast<char *>((end + kAlignment - 1) / kAlignment * kAlignment);
        return block;
    }
    try {
        block->slab = memory_pool::acquire(bytes);
    } catch (const std::bad_alloc &) {
        Py_DECREF(block);
        PyErr_NoMemory();
        return nullptr;
    }
    block->data = block->slab.data;
    return block;
}

// Whether an element is only its bytes. Elements that own memory or objects go through NumPy's own copy,
// and so does every new-style dtype whose meaning is not known here.
bool is_plain(PyArrayObject *array) {
    PyArray_Descr *descr = PyArray_DESCR(array);
    return PyDataType_ISLEGACY(descr) && !PyDataType_REFCHK(descr) &&
           !PyDataType_FLAGCHK(descr, NPY_ITEM_HASOBJECT) && PyDataType_ELSIZE(descr) != 0;
}

SplitSource source_of(PyArrayObject *array, const Cuts &cuts) {
    return {PyArray_BYTES(array), cuts.ndim, PyArray_DIMS(array), PyArray_STRIDES(array), PyArray_ITEMSIZE(array),
            cuts.axis};
}

// False with a MemoryError set.
bool run_copy(const SplitSource &source, const std::vector<SplitTarget> &targets, Extent bytes, bool squeeze,
              bool fresh) {
    try {
        if (bytes < kReleaseBytes) {
            split_copy(source, targets.data(), targets.size(), squeeze, fresh);
        } else {
            nb::gil_scoped_release release;
            split_copy(source, targets.data(), targets.size(), squeeze, fresh);
        }
        return true;
    } catch (const std::bad_alloc &) {
        PyErr_NoMemory();
        return false;
    }
}

PyObject *make_numpy_copies(PyArrayObject *array, const Cuts &cuts) {
    nb::object parts = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(cuts.count())));
    if (!parts.is_valid())
        return nullptr;
    for (std::size_t i = 0; i < cuts.count(); ++i) {
        PyArrayObject *view = make_view(array, cuts, i);
        if (view == nullptr)
            return nullptr;
        PyObject *copy = PyArray_NewCopy(view, NPY_CORDER);
        Py_DECREF(view);
        if (copy == nullptr)
            return nullptr;
        PyTuple_SET_ITEM(parts.ptr(), static_cast<Py_ssize_t>(i), copy);
    }
    return parts.release().ptr();
}

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Bytes of one position along the axis. It fits: the array has at least as many bytes, unless it is empty.
Extent bytes_per_position(PyArrayObject *array, const Cuts &cuts) {
    Extent bytes = PyArray_ITEMSIZE(array);
    for (int i = 0; i < cuts.ndim; ++i)
        if (i != cuts.axis)
            bytes *= cuts.shape[i];
    return bytes;
}

PyObject *set_too_large() {
    PyErr_SetString(PyExc_ValueError, "the parts together have more bytes than fit into 63 bits");
    return nullptr;
}

}  // namespace

bool init_block_type() {
    static PyType_Slot slots[] = {
        {Py_tp_dealloc, reinterpret_cast<void *>(block_dealloc)},
        {Py_bf_getbuffer, reinterpret_cast<void *>(block_getbuffer)},
        {Py_tp_doc, const_cast<char *>("The owner of the memory of copied parts.")},
        {0, nullptr},
    };
    static PyType_Spec spec = {"splitops.native._core.Block", sizeof(Block), 1,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
                               slots};
    g_block_type = reinterpret_cast<PyTypeObject *>(PyType_FromSpec(&spec));
    return g_block_type != nullptr;
}

PyObject *make_copies(PyArrayObject *array, const Cuts &cuts, bool separate) {
    if (!is_plain(array))
        return make_numpy_copies(array, cuts);
    const std::size_t n = cuts.count();
    const Extent unit = PyArray_SIZE(array) == 0 ? 0 : bytes_per_position(array, cuts);
    std::size_t slab_bytes = 0;
    Extent copied = 0;
    for (std::size_t i = 0; i < n; ++i) {
        Extent bytes;
        if (__builtin_mul_overflow(cuts.sizes[i], unit, &bytes) || __builtin_add_overflow(copied, bytes, &copied) ||
            __builtin_add_overflow(slab_bytes, aligned(static_cast<std::size_t>(bytes)), &slab_bytes) ||
            slab_bytes > static_cast<std::size_t>(PY_SSIZE_T_MAX))
            return set_too_large();
    }

    nb::object parts = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(n)));
    if (!parts.is_valid())
        return nullptr;
    nb::object shared;
    char *next = nullptr;
    bool fresh = false;
    if (!separate) {
        Block *block = new_block(slab_bytes);
        if (block == nullptr)
            return nullptr;
        shared = nb::steal(reinterpret_cast<PyObject *>(block));
        next = block->data;
        fresh = block->slab.fresh;
    }

    std::vector<SplitTarget> targets;
    targets.reserve(n);
    PyArray_Descr *descr = PyArray_DESCR(array);
    const int ndim = cuts.part_ndim();
    npy_intp shape[NPY_MAXDIMS];
    if (n > 0)
        cuts.part_shape(0, shape);
    for (std::size_t i = 0; i < n; ++i) {
        if (!cuts.squeeze)
            shape[cuts.axis] = cuts.sizes[i];
        const std::size_t bytes = static_cast<std::size_t>(cuts.sizes[i] * unit);
        PyObject *base;
        if (separate) {
            Block *block = new_block(bytes);
            if (block == nullptr)
                return nullptr;
            base = reinterpret_cast<PyObject *>(block);
            next = block->data;
            fresh = fresh || block->slab.fresh;
        } else {
            base = Py_NewRef(shared.ptr());
        }
        Py_INCREF(descr);
        PyObject *part = PyArray_NewFromDescr(&PyArray_Type, descr, ndim, shape, nullptr, next,
                                              NPY_ARRAY_CARRAY, nullptr);
        if (part == nullptr) {
            Py_DECREF(base);
            return nullptr;
        }
        PyTuple_SET_ITEM(parts.ptr(), static_cast<Py_ssize_t>(i), part);
        if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject *>(part), base) < 0)
            return nullptr;
        targets.push_back({next, cuts.offsets[i], cuts.sizes[i], nullptr});
        next += aligned(bytes);
    }
    if (!run_copy(source_of(array, cuts), targets, copied, cuts.squeeze, fresh))
        return nullptr;
    return parts.release().ptr();
}

bool copy_into(PyArrayObject *array, const Cuts &cuts, PyObject *out) {
    if (!PyTuple_Check(out) && !PyList_Check(out)) {
        PyErr_Format(PyExc_TypeError, "out must be a tuple or list of np.ndarray, not %.80s", Py_TYPE(out)->tp_name);
        return false;
    }
    // References of our own: another thread may change a list while the bytes are copied.
    nb::object buffers = nb::steal(PySequence_Tuple(out));
    if (!buffers.is_valid())
        return false;
    const std::size_t n = cuts.count();
    if (static_cast<std::size_t>(PyTuple_GET_SIZE(buffers.ptr())) != n) {
        PyErr_Format(PyExc_ValueError, "out has %zd arrays, but there are %zu parts", PyTuple_GET_SIZE(buffers.ptr()),
                     n);
        return false;
    }
    std::vector<SplitTarget> targets;
    targets.reserve(n);
    PyArray_Descr *descr = PyArray_DESCR(array);
    const int ndim = cuts.part_ndim();
    npy_intp shape[NPY_MAXDIMS];
    if (n > 0)
        cuts.part_shape(0, shape);
    for (std::size_t i = 0; i < n; ++i) {
        PyArrayObject *target = exact_array(PyTuple_GET_ITEM(buffers.ptr(), static_cast<Py_ssize_t>(i)));
        if (target == nullptr)
            return false;
        if (!cuts.squeeze)
            shape[cuts.axis] = cuts.sizes[i];
        if (PyArray_NDIM(target) != ndim || !PyArray_CompareLists(PyArray_DIMS(target), shape, ndim)) {
            nb::object expected = nb::steal(PyArray_IntTupleFromIntp(ndim, shape));
            nb::object got = nb::steal(PyArray_IntTupleFromIntp(PyArray_NDIM(target), PyArray_DIMS(target)));
            if (expected.is_valid() && got.is_valid())
                PyErr_Format(PyExc_ValueError, "out[%zu] must have shape %R, not %R", i, expected.ptr(), got.ptr());
            return false;
        }
        if (PyArray_DESCR(target) != descr && !PyArray_EquivTypes(PyArray_DESCR(target), descr)) {
            PyErr_Format(PyExc_ValueError, "out[%zu] must have dtype %S, not %S", i, descr, PyArray_DESCR(target));
            return false;
        }
        if (!PyArray_ISWRITEABLE(target)) {
            PyErr_Format(PyExc_ValueError, "out[%zu] is read-only", i);
            return false;
        }
        targets.push_back({PyArray_BYTES(target), cuts.offsets[i], cuts.sizes[i], PyArray_STRIDES(target)});
    }

    if (!is_plain(array)) {
        for (std::size_t i = 0; i < n; ++i) {
            nb::object view = nb::steal(reinterpret_cast<PyObject *>(make_view(array, cuts, i)));
            PyObject *target = PyTuple_GET_ITEM(buffers.ptr(), static_cast<Py_ssize_t>(i));
            if (!view.is_valid() || PyArray_CopyInto(reinterpret_cast<PyArrayObject *>(target),
                                                     reinterpret_cast<PyArrayObject *>(view.ptr())) < 0)
                return false;
        }
        return true;
    }
    // Each part is at most the array, so a size that saturates only decides to release the interpreter.
    const Extent unit = PyArray_SIZE(array) == 0 ? 0 : bytes_per_position(array, cuts);
    Extent copied = 0;
    for (std::size_t i = 0; i < n && copied < kReleaseBytes; ++i)
        copied += cuts.sizes[i] * unit;
    return run_copy(source_of(array, cuts), targets, copied, cuts.squeeze, false);
}

}  // namespace splitops
