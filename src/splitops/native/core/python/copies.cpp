#include "python/copies.h"

#include <nanobind/nanobind.h>

#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "python/array_maker.h"
#include "python/gil.h"
#include "memory/memory_pool.h"
#include "python/overlap.h"
#include "copy/run_kernels.h"
#include "copy/split_copy.h"
#include "copy/thread_pool.h"
#include "python/views.h"

namespace nb = nanobind;

namespace splitops {
namespace {

static_assert(sizeof(npy_intp) == sizeof(Extent), "the kernels read NumPy's shapes and strides directly");

constexpr std::size_t kAlignment = kLine;

// Outputs that fit the first-level cache are stored in the object that owns them: one allocation instead of two, not
// pooled.
constexpr std::size_t kInlineBytes = std::size_t{32} << 10;

// Buffers at most this far apart, such as arrays created one after the other, are checked to be disjoint together.
constexpr std::intptr_t kNear = 2 * kLine;

// From this number of contiguous parts on, if none is long enough to release the interpreter for, each is copied alone:
// planning them takes longer than copying.
constexpr std::size_t kManyPieces = 256;
constexpr Extent kLongPiece = kReleaseBytes;

// Extents are prefetched this number of buffers ahead, and the buffers themselves even earlier: a hundred thousand are
// not cached (`python -m dev.benchmarks many`).
constexpr std::size_t kAhead = 8;
constexpr std::size_t kFarAhead = 3 * kAhead;

// The owner of output memory: the base object of the parts in it. It exports its bytes as a writeable buffer, so that
// NumPy lets users clear and set the `writeable` flag of a part.
struct Block {
    PyObject_VAR_HEAD
    char *data;
    Py_ssize_t bytes;
    Slab slab;  // without data, the bytes follow this object
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
        PyErr_Format(PyExc_MemoryError, "not enough memory for the parts: %zu bytes are needed", bytes);
        return nullptr;
    }
    block->data = block->slab.data;
    return block;
}

// Whether an element consists of its bytes only. Elements that own memory or objects are copied by NumPy, as is every
// new-style dtype with unknown meaning.
bool is_plain(PyArrayObject *array) {
    PyArray_Descr *descr = PyArray_DESCR(array);
    return PyDataType_ISLEGACY(descr) && !PyDataType_REFCHK(descr) &&
           !PyDataType_FLAGCHK(descr, NPY_ITEM_HASOBJECT) && PyDataType_ELSIZE(descr) != 0;
}

// Whether two dtypes are equal: 1 or 0, or -1 with an error set. Dtypes of variable-width strings may differ in their
// missing value, which NumPy's equivalence ignores: a copy would write something else.
int same_dtype(PyArray_Descr *one, PyArray_Descr *other) {
    if (one == other)
        return 1;
    if (PyDataType_ISLEGACY(one) && PyDataType_ISLEGACY(other))
        return PyArray_EquivTypes(one, other) ? 1 : 0;
    return PyObject_RichCompareBool(reinterpret_cast<PyObject *>(one), reinterpret_cast<PyObject *>(other), Py_EQ);
}

// Bytes of one position along the axis. It cannot overflow: the array has at least as many bytes, unless it is empty.
Extent bytes_per_position(PyArrayObject *array, const Cuts &cuts) {
    if (PyArray_SIZE(array) == 0)
        return 0;
    Extent bytes = PyArray_ITEMSIZE(array);
    for (int i = 0; i < cuts.ndim; ++i)
        if (i != cuts.axis)
            bytes *= cuts.shape[i];
    return bytes;
}

// The targets of the parts of an array. Extents and strides are those of the plan, and copies: while the bytes move,
// another thread may give an array another shape, which frees the old ones.
class Targets {
  public:
    Targets(PyArrayObject *array, const Cuts &cuts)
        : source_{PyArray_BYTES(array), cuts.ndim, cuts.shape, strides_, PyArray_ITEMSIZE(array), cuts.axis},
          squeeze_(cuts.squeeze),
          unit_(bytes_per_position(array, cuts)),
          in_one_piece_(PyArray_IS_C_CONTIGUOUS(array) &&
                        std::all_of(cuts.shape, cuts.shape + cuts.axis, [](npy_intp extent) { return extent == 1; })) {
        std::copy_n(PyArray_STRIDES(array), cuts.ndim, strides_);
        targets_.reserve(cuts.count());
    }

    Targets(const Targets &) = delete;
    Targets &operator=(const Targets &) = delete;

    // Adds the next part. `array` is its buffer if that is the caller's and not C-contiguous.
    void add(char *data, Extent offset, Extent size, PyArrayObject *array = nullptr) {
        const Extent *strides = array == nullptr ? nullptr : copied_strides(array);
        bytes_ += static_cast<std::size_t>(size * unit_);  // overlapping buffers may have any sum
        in_one_piece_ = in_one_piece_ && strides == nullptr;
        if (in_one_piece_ && !targets_.empty()) {
            // A part that follows its neighbour in both memories is copied with it.
            SplitTarget &last = targets_.back();
            if (last.offset + last.size == offset && last.data + last.size * unit_ == data) {
                last.size += size;
                longest_ = std::max(longest_, last.size);
                return;
            }
        }
        longest_ = std::max(longest_, size);
        SplitTarget &target = targets_.emplace_back();
        target.data = data;
        target.offset = offset;
        target.size = size;
        target.strides = strides;
    }

    Extent unit() const { return unit_; }

    void copy(bool fresh) const {
        if (bytes_ < static_cast<std::size_t>(kReleaseBytes)) {
            split(fresh);
        } else {
            const WithoutInterpreter waiting;
            split(fresh);
        }
    }

  private:
    const Extent *copied_strides(PyArrayObject *array) {
        const std::size_t n = static_cast<std::size_t>(PyArray_NDIM(array));
        Extent *copied = target_strides_.emplace_back(std::make_unique<Extent[]>(n)).get();
        std::copy_n(PyArray_STRIDES(array), n, copied);
        return copied;
    }

    void split(bool fresh) const {
        if (in_one_piece_ && targets_.size() >= kManyPieces && longest_ * unit_ <= kLongPiece)
            copy_pieces();
        else
            split_copy(source_, targets_.data(), targets_.size(), squeeze_, fresh);
    }

    // Copies without a plan, because planning takes longer than copying so few bytes from one range to another.
    void copy_pieces() const {
        const bool stream = bytes_ >= static_cast<std::size_t>(thresholds().stream);
        const std::size_t n = targets_.size();
        const std::size_t tasks =
            bytes_ < static_cast<std::size_t>(thresholds().parallel) ? 1 : std::min(n, bytes_ / thread_pool::kTaskBytes + 1);
        thread_pool::for_each(tasks, [&](std::size_t task) {
            const SplitTarget *end = targets_.data() + (task + 1) * n / tasks;
            for (const SplitTarget *target = targets_.data() + task * n / tasks; target != end; ++target)
                copy_bytes(target->data, source_.data + target->offset * unit_, target->size * unit_, stream);
            finish_streaming();
        });
    }

    SplitSource source_;
    bool squeeze_;
    Extent unit_;         // bytes per position along the axis
    bool in_one_piece_;   // each part is contiguous, in the source and in its target
    Extent longest_ = 0;  // of the targets, along the axis
    std::size_t bytes_ = 0;
    Extent strides_[NPY_MAXDIMS];
    std::vector<std::unique_ptr<Extent[]>> target_strides_;
    std::vector<SplitTarget> targets_;
};

PyObject *make_numpy_copies(PyArrayObject *array, const Cuts &cuts) {
    nb::object parts = nb::steal(cuts.new_container());
    if (!parts.is_valid())
        return nullptr;
    for (std::size_t i = 0; i < cuts.count(); ++i) {
        PyArrayObject *view = make_view(array, cuts, i);
        if (view == nullptr)
            return nullptr;
        PyObject *copy = asleep_at_exit([view] { return PyArray_NewCopy(view, NPY_CORDER); });
        Py_DECREF(view);
        if (copy == nullptr)
            return nullptr;
        PySequence_Fast_ITEMS(parts.ptr())[i] = copy;
    }
    return parts.release().ptr();
}

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Copies into the caller's arrays. All are checked before the first is written.
class Filling {
  public:
    // `proving`: whether `is_disjoint` will be called.
    Filling(PyArrayObject *array, const Cuts &cuts, bool proving)
        : array_(array), cuts_(cuts), targets_(array, cuts), stretches_(kNear), proving_(proving) {}

    // Whether the arrays of `out` match the parts; false with an error set.
    bool check(PyObject *out);

    // After the check: whether they certainly share no memory with the data, each other or themselves.
    bool is_disjoint();

    // Copies after the check. False with an error set.
    bool run();

    // The arrays of `out`, in the container of the parts.
    PyObject *buffers() { return cuts_.listed ? PySequence_List(buffers_.ptr()) : buffers_.release().ptr(); }

  private:
    bool check(std::size_t index, const npy_intp *shape, PyArrayObject *target);

    PyArrayObject *array_;
    const Cuts &cuts_;
    nb::object buffers_;  // own references, because another thread may change a list while the bytes are copied
    Targets targets_;
    Stretches stretches_;
    bool proving_;  // so far, no buffer overlaps itself
};

PyArrayObject *const *arrays_of(const nb::object &tuple) {
    return reinterpret_cast<PyArrayObject *const *>(PySequence_Fast_ITEMS(tuple.ptr()));
}

bool Filling::check(std::size_t index, const npy_intp *shape, PyArrayObject *target) {
    const int ndim = cuts_.part_ndim();
    PyArray_Descr *descr = PyArray_DESCR(array_);
    if (PyArray_NDIM(target) != ndim || !same_extents(shape, PyArray_DIMS(target), ndim)) {
        nb::object expected = nb::steal(PyArray_IntTupleFromIntp(ndim, shape));
        nb::object got = nb::steal(PyArray_IntTupleFromIntp(PyArray_NDIM(target), PyArray_DIMS(target)));
        if (expected.is_valid() && got.is_valid())
            PyErr_Format(PyExc_ValueError, "out[%zu] must have shape %R, not %R", index, expected.ptr(), got.ptr());
        return false;
    }
    if (const int alike = same_dtype(PyArray_DESCR(target), descr); alike != 1) {
        if (alike == 0)
            PyErr_Format(PyExc_ValueError, "out[%zu] must have dtype %S, not %S", index, descr,
                         PyArray_DESCR(target));
        return false;
    }
    if (!PyArray_ISWRITEABLE(target)) {
        PyErr_Format(PyExc_ValueError, "out[%zu] is read-only", index);
        return false;
    }
    return true;
}

// Prefetches both cache lines that a small object may be in.
inline void fetch_object(PyObject *object) {
    __builtin_prefetch(object, 1);
    __builtin_prefetch(reinterpret_cast<char *>(object) + sizeof(PyArrayObject_fields) - 1, 1);
}

// The items of a tuple or list as a tuple, whose references no other thread can remove.
nb::object as_tuple(PyObject *sequence) {
    if (PyList_CheckExact(sequence)) {
        nb::ft_object_guard guard(sequence);
        const Py_ssize_t n = PyList_GET_SIZE(sequence);
        nb::object tuple = nb::steal(PyTuple_New(n));
        if (!tuple.is_valid())
            return tuple;
        PyObject *const *items = reinterpret_cast<PyListObject *>(sequence)->ob_item;
        const Py_ssize_t far = static_cast<Py_ssize_t>(kFarAhead);
        if (PyList_GET_SIZE(sequence) == n) {  // creating a tuple may collect garbage, which runs other code
            for (Py_ssize_t i = 0; i < n; ++i) {
                if (i + far < n)
                    fetch_object(items[i + far]);
                PyTuple_SET_ITEM(tuple.ptr(), i, Py_NewRef(items[i]));
            }
            return tuple;
        }
    }
    return nb::steal(PySequence_Tuple(sequence));
}

bool Filling::check(PyObject *out) {
    if (!PyTuple_Check(out) && !PyList_Check(out)) {
        PyErr_Format(PyExc_TypeError, "out must be a tuple or list of np.ndarray, not %.80s", Py_TYPE(out)->tp_name);
        return false;
    }
    buffers_ = as_tuple(out);
    if (!buffers_.is_valid())
        return false;
    const std::size_t n = cuts_.count();
    if (static_cast<std::size_t>(PyTuple_GET_SIZE(buffers_.ptr())) != n) {
        PyErr_Format(PyExc_ValueError, "out has %zd arrays, but there are %zu parts", PyTuple_GET_SIZE(buffers_.ptr()),
                     n);
        return false;
    }
    PyObject *const *items = PySequence_Fast_ITEMS(buffers_.ptr());
    npy_intp shape[NPY_MAXDIMS];
    if (n > 0)
        cuts_.part_shape(0, shape);
    for (std::size_t i = 0; i < n; ++i) {
        if (i + kFarAhead < n)
            fetch_object(items[i + kFarAhead]);
        if (i + kAhead < n && PyArray_CheckExact(items[i + kAhead]))
            __builtin_prefetch(PyArray_DIMS(reinterpret_cast<PyArrayObject *>(items[i + kAhead])));
        PyArrayObject *target = exact_array(items[i]);
        if (target == nullptr)
            return false;
        if (!cuts_.squeeze)
            shape[cuts_.axis] = cuts_.sizes[i];
        if (!check(i, shape, target))
            return false;
        targets_.add(PyArray_BYTES(target), cuts_.offsets[i], cuts_.sizes[i],
                     PyArray_IS_C_CONTIGUOUS(target) ? nullptr : target);
        const Extent bytes = cuts_.sizes[i] * targets_.unit();
        if (proving_ && bytes != 0) {
            const std::intptr_t low = reinterpret_cast<std::intptr_t>(PyArray_BYTES(target));
            if (PyArray_IS_C_CONTIGUOUS(target))
                stretches_.add({low, low + bytes});
            else
                proving_ = stretches_.add(target);
        }
    }
    return true;
}

bool Filling::is_disjoint() {
    if (!proving_)
        return false;
    if (PyArray_SIZE(array_) != 0)
        stretches_.add(bounds_of(array_));
    return stretches_.are_disjoint() || are_disjoint(array_, arrays_of(buffers_), cuts_.count());
}

bool Filling::run() {
    if (is_plain(array_)) {
        targets_.copy(false);
        return true;
    }
    for (std::size_t i = 0; i < cuts_.count(); ++i) {
        nb::object view = nb::steal(reinterpret_cast<PyObject *>(make_view(array_, cuts_, i)));
        if (!view.is_valid())
            return false;
        PyArrayObject *source = reinterpret_cast<PyArrayObject *>(view.ptr()), *target = arrays_of(buffers_)[i];
        if (asleep_at_exit([=] { return PyArray_CopyInto(target, source); }) < 0)
            return false;
    }
    return true;
}

PyObject *set_too_large() {
    PyErr_SetString(PyExc_MemoryError, "the total size of the parts does not fit into 63 bits");
    return nullptr;
}

PyObject *make_plain_copies(PyArrayObject *array, const Cuts &cuts, bool separate) {
    const std::size_t n = cuts.count();
    Targets targets(array, cuts);
    const Extent unit = targets.unit();
    std::size_t slab_bytes = 0;
    Extent copied = 0;
    for (std::size_t i = 0; i < n; ++i) {
        Extent bytes;
        if (__builtin_mul_overflow(cuts.sizes[i], unit, &bytes) || __builtin_add_overflow(copied, bytes, &copied) ||
            __builtin_add_overflow(slab_bytes, aligned(static_cast<std::size_t>(bytes)), &slab_bytes) ||
            slab_bytes > static_cast<std::size_t>(PY_SSIZE_T_MAX))
            return set_too_large();
    }

    nb::object parts = nb::steal(cuts.new_container());
    if (!parts.is_valid())
        return nullptr;
    PyObject **items = PySequence_Fast_ITEMS(parts.ptr());
    nb::object block;
    char *next = nullptr;
    bool fresh = false;
    ArrayMaker make(PyArray_DESCR(array), cuts.part_ndim(), cuts.squeeze ? -1 : cuts.axis, false, NPY_ARRAY_CARRAY,
                    true);
    if (n > 0)
        cuts.part_shape(0, make.shape);
    for (std::size_t i = 0; i < n; ++i) {
        const std::size_t bytes = static_cast<std::size_t>(cuts.sizes[i] * unit);
        if (separate || i == 0) {
            Block *owner = new_block(separate ? bytes : slab_bytes);
            if (owner == nullptr)
                return nullptr;
            next = owner->data;
            fresh = fresh || owner->slab.fresh;
            block = nb::steal(reinterpret_cast<PyObject *>(owner));
        }
        PyObject *part = make(next, cuts.sizes[i], block.ptr());
        if (part == nullptr)
            return nullptr;
        items[i] = part;
        targets.add(next, cuts.offsets[i], cuts.sizes[i]);
        next += aligned(bytes);
    }
    targets.copy(fresh);
    return parts.release().ptr();
}

// Runs a function that may run out of memory; false or null then, with a MemoryError set.
template <class Body>
auto in_memory(Body &&body) -> decltype(body()) {
    try {
        return body();
    } catch (const std::bad_alloc &) {
        PyErr_NoMemory();
        return {};
    }
}

}  // namespace

bool init_block_type() {
    static PyType_Slot slots[] = {
        {Py_tp_dealloc, reinterpret_cast<void *>(block_dealloc)},
        {Py_bf_getbuffer, reinterpret_cast<void *>(block_getbuffer)},
        {Py_tp_doc, const_cast<char *>("Owns the memory of copied parts.")},
        {0, nullptr},
    };
    static PyType_Spec spec = {"splitops.native._core.Block", sizeof(Block), 1,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
                               slots};
    g_block_type = reinterpret_cast<PyTypeObject *>(PyType_FromSpec(&spec));
    return g_block_type != nullptr;
}

PyObject *make_copies(PyArrayObject *array, const Cuts &cuts, bool separate) {
    return is_plain(array) ? in_memory([&] { return make_plain_copies(array, cuts, separate); })
                           : make_numpy_copies(array, cuts);
}

bool copy_into(PyArrayObject *array, const Cuts &cuts, PyObject *out) {
    return in_memory([&] {
        Filling filling(array, cuts, false);
        return filling.check(out) && filling.run();
    });
}

PyObject *fill(PyArrayObject *array, const Cuts &cuts, PyObject *out) {
    if (!PyTuple_CheckExact(out) && !PyList_CheckExact(out))  // it may return other items the next time
        Py_RETURN_NONE;
    return in_memory([&]() -> PyObject * {
        Filling filling(array, cuts, true);
        if (!filling.check(out)) {
            if (!PyErr_ExceptionMatches(PyExc_ValueError) && !PyErr_ExceptionMatches(PyExc_TypeError))
                return nullptr;
            PyErr_Clear();
            Py_RETURN_NONE;
        }
        if (!filling.is_disjoint())
            Py_RETURN_NONE;
        return filling.run() ? filling.buffers() : nullptr;
    });
}

}  // namespace splitops
