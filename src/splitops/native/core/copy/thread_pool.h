// A small pool of threads for copies that are large enough to pay for waking one.
//
// Threads start with the first such copy, sleep between copies (they never spin), and start anew in
// the child of a fork. The calling thread works too, and never waits for a thread that has not begun.
#pragma once

#include <cstddef>

namespace splitops::thread_pool {

// Bytes that take longer to copy than a thread takes to wake: a task has so many, and twice as many are shared.
constexpr std::ptrdiff_t kTaskBytes = std::ptrdiff_t{512} << 10;

void set_threads(int threads);  // >= 1, the caller included
int threads();

using Task = void (*)(void *context, std::size_t index);

// Calls task(context, i) for every i in [0, count), each once, on up to threads() threads.
void run(std::size_t count, Task task, void *context);

// The same for a callable that takes the index.
template <class F>
void for_each(std::size_t count, F &&body) {
    run(count, [](void *context, std::size_t index) { (*static_cast<F *>(context))(index); }, &body);
}

}  // namespace splitops::thread_pool
