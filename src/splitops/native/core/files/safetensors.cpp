#include "files/safetensors.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace nb = nanobind;
using namespace nb::literals;

namespace splitops::files {
namespace {

using Size = std::int64_t;

constexpr int kDigits = 18;  // of a number, so that it does not overflow
constexpr std::size_t kMaxRank = 64;  // as in NumPy; a longer list is not stored

struct Entry {
    std::string_view name;
    std::size_t type;
    std::size_t shape, rank;  // in the sizes of the header
    Size begin, end;
};

struct Header {
    std::vector<Entry> entries;
    std::vector<Size> sizes;
    std::optional<std::string_view> metadata;
};

// Parses JSON without escapes. Fails on anything else, for which another parser finds the reason.
class Scanner {
  public:
    explicit Scanner(std::string_view text) : at_(text.data()), end_(at_ + text.size()) {}

    const char *place() const { return at_; }

    bool take(char wanted) {
        skip_space();
        if (at_ == end_ || *at_ != wanted)
            return false;
        ++at_;
        return true;
    }

    bool at_end() {
        skip_space();
        return at_ == end_;
    }

    bool text(std::string_view &found) {
        if (!take('"'))
            return false;
        const char *begin = at_;
        for (; at_ != end_ && *at_ != '"'; ++at_)
            if (*at_ == '\\' || static_cast<unsigned char>(*at_) < 0x20)
                return false;
        if (at_ == end_)
            return false;
        found = {begin, static_cast<std::size_t>(at_++ - begin)};
        return true;
    }

    // Appends the sizes in a list.
    bool sizes(std::vector<Size> &found) {
        if (!take('['))
            return false;
        if (take(']'))
            return true;
        const std::size_t most = found.size() + kMaxRank;
        do {
            Size size;
            if (found.size() == most || !number(size))
                return false;
            found.push_back(size);
        } while (take(','));
        return take(']');
    }

    // Skips an object of any depth, which another parser will read.
    bool skip_object() {
        if (!take('{'))
            return false;
        for (std::size_t depth = 1; depth > 0; ++at_) {
            if (at_ == end_)
                return false;
            if (*at_ == '{')
                ++depth;
            else if (*at_ == '}')
                --depth;
            else if (*at_ == '"' && !skip_string())
                return false;
        }
        return true;
    }

  private:
    void skip_space() {
        while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t'))
            ++at_;
    }

    // Advances to the quotation mark that ends a string.
    bool skip_string() {
        for (++at_; at_ != end_ && *at_ != '"'; ++at_)
            if (*at_ == '\\' && ++at_ == end_)
                return false;
        return at_ != end_;
    }

    bool number(Size &found) {
        skip_space();
        const char *begin = at_;
        found = 0;
        for (; at_ != end_ && *at_ >= '0' && *at_ <= '9' && at_ - begin < kDigits; ++at_)
            found = found * 10 + (*at_ - '0');
        const auto digits = at_ - begin;
        return digits > 0 && (digits == 1 || *begin != '0');  // no leading zero
    }

    const char *at_, *end_;
};

struct Type {
    std::string_view code;
    Size bits;
    PyObject *name;
};

std::vector<Type> types_of(nb::dict bits) {
    std::vector<Type> types;
    for (auto [code, width] : bits) {
        Py_ssize_t size = 0;
        const char *text = PyUnicode_AsUTF8AndSize(code.ptr(), &size);
        if (text == nullptr)
            throw nb::python_error();
        types.push_back({{text, static_cast<std::size_t>(size)}, nb::cast<Size>(width), code.ptr()});
    }
    return types;
}

// Whether a shape needs exactly this number of bytes.
bool fills(const Size *shape, std::size_t rank, Size bits, Size bytes) {
    for (std::size_t i = 0; i < rank; ++i)
        if (__builtin_mul_overflow(bits, shape[i], &bits))
            return false;
    return bits % 8 == 0 && bits / 8 == bytes;
}

bool read_entry(Scanner &scanner, const std::vector<Type> &types, Entry &entry, std::vector<Size> &sizes) {
    bool typed = false, shaped = false, placed = false;
    if (!scanner.take('{'))
        return false;
    do {
        std::string_view key, code;
        if (!scanner.text(key) || !scanner.take(':'))
            return false;
        // Anything unreadable ends the entry, so that a duplicate key is not read instead.
        if (key == "dtype" && !typed && scanner.text(code)) {
            const auto same = [&](const Type &type) { return type.code == code; };
            entry.type = static_cast<std::size_t>(std::find_if(types.begin(), types.end(), same) - types.begin());
            typed = true;
            if (entry.type == types.size())
                return false;
        } else if (key == "shape" && !shaped) {
            entry.shape = sizes.size();
            shaped = scanner.sizes(sizes);
            entry.rank = sizes.size() - entry.shape;
            if (!shaped)
                return false;
        } else if (key == "data_offsets" && !placed) {
            const std::size_t first = sizes.size();
            placed = scanner.sizes(sizes) && sizes.size() == first + 2;
            if (!placed)
                return false;
            entry.begin = sizes[first];
            entry.end = sizes[first + 1];
            sizes.resize(first);
        } else {
            return false;
        }
    } while (scanner.take(','));
    return scanner.take('}') && typed && shaped && placed &&
           fills(sizes.data() + entry.shape, entry.rank, types[entry.type].bits, entry.end - entry.begin);
}

bool read(Scanner scanner, const std::vector<Type> &types, Header &header) {
    if (!scanner.take('{'))
        return false;
    if (!scanner.take('}')) {
        do {
            std::string_view name;
            if (!scanner.text(name) || !scanner.take(':'))
                return false;
            if (name == "__metadata__") {
                const char *begin = scanner.place();
                if (header.metadata || !scanner.skip_object())
                    return false;
                header.metadata = {begin, static_cast<std::size_t>(scanner.place() - begin)};
                continue;
            }
            Entry &entry = header.entries.emplace_back();
            entry.name = name;
            if (!read_entry(scanner, types, entry, header.sizes))
                return false;
        } while (scanner.take(','));
        if (!scanner.take('}'))
            return false;
    }
    return scanner.at_end();
}

// Sorts entries by offset. Returns whether they follow each other without gaps.
bool sort(std::vector<Entry> &entries) {
    const auto before = [](const Entry &a, const Entry &b) {
        return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    };
    if (!std::is_sorted(entries.begin(), entries.end(), before))
        std::stable_sort(entries.begin(), entries.end(), before);
    Size end = 0;
    for (const Entry &entry : entries) {
        if (entry.begin != end)
            return false;
        end = entry.end;
    }
    return true;
}

nb::object tuple_of(const Size *sizes, std::size_t rank) {
    nb::list list;
    for (std::size_t i = 0; i < rank; ++i)
        list.append(nb::int_(sizes[i]));
    return nb::tuple(list);
}

nb::object read_header(nb::bytes text, nb::dict bits, Size start) {
    const std::vector<Type> types = types_of(bits);
    Header header;
    if (!read(Scanner({text.c_str(), text.size()}), types, header) || !sort(header.entries))
        return nb::none();
    nb::list names, codes, shapes, offsets, sizes;
    const Entry *last = nullptr;
    nb::object shape;
    for (const Entry &entry : header.entries) {
        nb::object name = nb::steal(
            PyUnicode_DecodeUTF8(entry.name.data(), static_cast<Py_ssize_t>(entry.name.size()), nullptr));
        if (!name.is_valid()) {
            PyErr_Clear();
            return nb::none();
        }
        const Size *own = header.sizes.data() + entry.shape;
        if (last == nullptr || !std::equal(own, own + entry.rank, header.sizes.data() + last->shape,
                                           header.sizes.data() + last->shape + last->rank))
            shape = tuple_of(own, entry.rank);
        last = &entry;
        names.append(name);
        codes.append(nb::handle(types[entry.type].name));
        shapes.append(shape);
        offsets.append(nb::int_(start + entry.begin));
        sizes.append(nb::int_(entry.end - entry.begin));
    }
    nb::object metadata = nb::none();
    if (header.metadata)
        metadata = nb::bytes(header.metadata->data(), header.metadata->size());
    return nb::make_tuple(names, shapes, codes, offsets, sizes, metadata);
}

}  // namespace

void add_safetensors(nb::module_ &m) { m.def("read_header", read_header, "text"_a, "bits"_a, "start"_a); }

}  // namespace splitops::files
