// The Python module: nanobind for functions, plain C types where calls must be as cheap as possible.
#define SPLITOPS_NUMPY_TABLE
#include "python/numpy_api.h"

#include <nanobind/nanobind.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#include "copy/split_copy.h"
#include "copy/thread_pool.h"
#include "files/binding.h"
#include "isa/instruction_sets.h"
#include "memory/memory_pool.h"
#include "python/copies.h"
#include "python/function.h"
#include "python/gil.h"
#include "python/plan.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using namespace splitops;

nb::object pool_counters() {
    const PoolCounters c = memory_pool::counters();
    return nb::make_tuple(c.limit, c.idle_bytes, c.idle_blocks, c.used_bytes, c.used_blocks, c.reuses, c.allocations);
}

nb::object instruction_set_names() {
    nb::list names;
    for (const InstructionSet &set : instruction_sets())
        names.append(nb::str(set.name));
    return nb::tuple(names);
}

void use_instruction_set_named(const char *name) {
    for (const InstructionSet &set : instruction_sets())
        if (std::strcmp(set.name, name) == 0)
            return use_instruction_set(set);
    throw nb::value_error("this processor does not support the instruction set");
}

// The types and the functions for calls exist once per process. Another interpreter would call them without its own
// lock, on objects of the first one.
void claim_for_this_interpreter() {
    static std::atomic<std::int64_t> owner{-1};
    const std::int64_t here = PyInterpreterState_GetID(PyInterpreterState_Get());
    std::int64_t found = -1;
    if (!owner.compare_exchange_strong(found, here) && found != here)
        throw nb::import_error("the compiled core is already loaded in another interpreter of this process");
}

}  // namespace

NB_MODULE(_core, m) {
    claim_for_this_interpreter();
    const nb::object base = nb::module_::import_("splitops.native._types").attr("SplitPlan");
    if (PyArray_ImportNumPyAPI() < 0 || !init_block_type() || !add_plan(m.ptr(), base.ptr()) || !add_function(m.ptr()))
        throw nb::python_error();
    m.def("set_calls", [](nb::handle plan, nb::handle function) {
        if (!set_general_call(plan.ptr()) || !show_function_call(function.ptr()))
            throw nb::python_error();
    });
    m.def("set_threads", thread_pool::set_threads, "threads"_a);
    m.def("threads", thread_pool::threads);
    m.def("set_pool_limit", memory_pool::set_limit, "bytes"_a);
    m.def("pool_counters", pool_counters);
    m.def("instruction_sets", instruction_set_names);
    m.def("use_instruction_set", use_instruction_set_named, "name"_a);
    m.def("thresholds", [] { return nb::make_tuple(thresholds().parallel, thresholds().stream); });
    m.def("set_thresholds", [](Extent parallel, Extent stream) { set_thresholds({parallel, stream}); }, "parallel"_a,
          "stream"_a);
    files::add_functions(m);
    m.def("release_pool", [] {
        const WithoutInterpreter waiting;
        memory_pool::free_idle();
    });
}
