#include "files/binding.h"

#include <nanobind/ndarray.h>

#include <exception>

#include "python/gil.h"
#include "files/crc32.h"
#include "files/extent_copy.h"
#include "files/safetensors.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace splitops::files {
namespace {

using Table = nb::ndarray<const std::int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Buffer = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Reads the rows of a table as structures of 64-bit integers.
template <class Row>
std::vector<Row> rows_of(const Table &table) {
    static_assert(sizeof(Row) % sizeof(Offset) == 0);
    if (table.shape(1) * sizeof(Offset) != sizeof(Row))
        throw nb::value_error("a table has the wrong number of columns");
    const Row *first = reinterpret_cast<const Row *>(table.data());
    return {first, first + table.shape(0)};
}

std::vector<int> descriptors(nb::sequence files) {
    std::vector<int> result;
    for (nb::handle file : files)
        result.push_back(nb::cast<int>(file));
    return result;
}

nb::tuple copy_extents_of(Table passes, Table sources, Table targets, Table moves, nb::sequence source_files,
                          nb::object target_files, int threads, nb::object tick) {
    Work work{rows_of<Pass>(passes), rows_of<Lane>(sources), rows_of<Lane>(targets), rows_of<Move>(moves),
              descriptors(source_files), {}, !target_files.is_none()};
    if (work.writing)
        work.target_files = descriptors(nb::cast<nb::sequence>(target_files));
    if (const char *problem = problem_of(work))
        throw nb::value_error(problem);
    std::exception_ptr raised;
    Outcome outcome;
    {
        WithoutInterpreter waiting;
        const std::function<bool(Offset)> call = [&](Offset bytes) {
            return waiting.interrupted([&] {
                PyObject *done = asleep_at_exit(
                    [&] { return PyObject_CallFunction(tick.ptr(), "L", static_cast<long long>(bytes)); });
                if (done == nullptr)
                    raised = std::make_exception_ptr(nb::python_error());
                Py_XDECREF(done);
                return done != nullptr;
            });
        };
        outcome = copy_extents(work, threads, call);
    }
    if (raised)
        std::rethrow_exception(raised);
    nb::list checksums;
    for (const std::uint32_t checksum : outcome.checksums)
        checksums.append(checksum);
    nb::object failure = nb::none();
    if (outcome.failure) {
        const Failure &f = *outcome.failure;
        failure = nb::make_tuple(f.writing, f.file, f.offset, f.error);
    }
    return nb::make_tuple(checksums, failure);
}

std::uint32_t checksum(Buffer data, std::uint32_t before, bool table) {
    const WithoutInterpreter waiting;
    const char *bytes = reinterpret_cast<const char *>(data.data());
    return table ? crc32_by_table(before, bytes, data.shape(0)) : crc32(before, bytes, data.shape(0));
}

int sync(nb::sequence files) {
    const std::vector<int> descriptors_of = descriptors(files);
    const WithoutInterpreter waiting;
    return sync_files(descriptors_of);
}

}  // namespace

void add_functions(nb::module_ &m) {
    m.def("copy_extents", copy_extents_of, "passes"_a, "sources"_a, "targets"_a, "moves"_a, "source_files"_a,
          "target_files"_a.none(), "threads"_a, "tick"_a);
    m.def("crc32", checksum, "data"_a, "before"_a = 0, nb::kw_only(), "table"_a = false);
    m.def("sync_files", sync, "files"_a);
    add_safetensors(m);
}

}  // namespace splitops::files
