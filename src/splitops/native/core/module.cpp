// The Python module: nanobind for the functions, plain C types where a call must cost next to nothing.
#define SPLITOPS_NUMPY_TABLE
#include "numpy_api.h"

#include <nanobind/nanobind.h>

#include <cstring>

#include "call_cache.h"
#include "called.h"
#include "copies.h"
#include "cuts.h"
#include "files/binding.h"
#include "gil.h"
#include "instruction_sets.h"
#include "memory_pool.h"
#include "split_copy.h"
#include "splitter.h"
#include "thread_pool.h"
#include "views.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using namespace splitops;

// The array and its checked cuts, from the arguments that the functions below share.
struct Request {
    PyArrayObject *array;
    Cuts cuts;

    Request(nb::handle object, Py_ssize_t axis, nb::handle offsets, nb::handle sizes, bool squeeze)
        : array(exact_array(object.ptr())) {
        if (array == nullptr || !read_cuts(PyArray_NDIM(array), PyArray_DIMS(array), axis, offsets.ptr(),
                                           sizes.ptr(), squeeze, cuts))
            throw nb::python_error();
    }
};

nb::object checked(PyObject *result) {
    if (result == nullptr)
        throw nb::python_error();
    return nb::steal(result);
}

nb::object views(nb::handle array, Py_ssize_t axis, nb::handle offsets, nb::handle sizes, bool squeeze) {
    const Request request(array, axis, offsets, sizes, squeeze);
    return checked(make_views(request.array, request.cuts));
}

nb::object copies(nb::handle array, Py_ssize_t axis, nb::handle offsets, nb::handle sizes, bool squeeze,
                  bool separate) {
    const Request request(array, axis, offsets, sizes, squeeze);
    return checked(make_copies(request.array, request.cuts, separate));
}

void copies_into(nb::handle array, Py_ssize_t axis, nb::handle offsets, nb::handle sizes, bool squeeze,
                 nb::handle out) {
    const Request request(array, axis, offsets, sizes, squeeze);
    if (!copy_into(request.array, request.cuts, out.ptr()))
        throw nb::python_error();
}

nb::object filled(nb::handle array, Py_ssize_t axis, nb::handle offsets, nb::handle sizes, bool squeeze,
                  nb::handle out) {
    const Request request(array, axis, offsets, sizes, squeeze);
    return checked(fill(request.array, request.cuts, out.ptr()));
}

nb::object pool_counters() {
    const PoolCounters c = memory_pool::counters();
    return nb::make_tuple(c.limit, c.idle_bytes, c.idle_blocks, c.used_bytes, c.used_blocks, c.reuses, c.allocations);
}

nb::object instruction_set_names() {
    nb::list names;
    for (const InstructionSet *const *set = instruction_sets(); *set != nullptr; ++set)
        names.append(nb::str((*set)->name));
    return nb::tuple(names);
}

void use_instruction_set_named(const char *name) {
    for (const InstructionSet *const *set = instruction_sets(); *set != nullptr; ++set)
        if (std::strcmp((*set)->name, name) == 0)
            return use_instruction_set(**set);
    throw nb::value_error("this processor has no such instruction set");
}

}  // namespace

NB_MODULE(_core, m) {
    if (PyArray_ImportNumPyAPI() < 0 || !init_block_type() || !add_splitter(m.ptr()) || !add_call_cache(m.ptr()) ||
        !add_recall(m.ptr()) || !add_called(m.ptr()))
        throw nb::python_error();
    m.def("views", views, "array"_a, "axis"_a, "offsets"_a, "sizes"_a, "squeeze"_a);
    m.def("copies", copies, "array"_a, "axis"_a, "offsets"_a, "sizes"_a, "squeeze"_a, nb::kw_only(),
          "separate"_a = false);
    m.def("copies_into", copies_into, "array"_a, "axis"_a, "offsets"_a, "sizes"_a, "squeeze"_a, "out"_a);
    m.def("fill", filled, "array"_a, "axis"_a, "offsets"_a, "sizes"_a, "squeeze"_a, "out"_a.none());
    m.def("set_threads", thread_pool::set_threads, "threads"_a);
    m.def("threads", thread_pool::threads);
    m.def("set_pool_limit", memory_pool::set_limit, "bytes"_a);
    m.def("pool_counters", pool_counters);
    m.def("instruction_sets", instruction_set_names);
    m.def("use_instruction_set", use_instruction_set_named, "name"_a);
    m.def("thresholds", [] { return nb::make_tuple(thresholds().parallel, thresholds().stream); });
    m.def("set_thresholds", [](Extent parallel, Extent stream) { set_thresholds({parallel, stream}); }, "parallel"_a,
          "stream"_a);
    m.def("release_pool", [] {
        const WithoutInterpreter waiting;
        memory_pool::free_idle();
    });
    files::add_functions(m);
}
