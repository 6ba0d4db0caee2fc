// A small pool of threads for copies that are large enough to pay for waking one.
//
// Threads are created by the first such copy, sleep between copies (they never spin), and are created again in the
// child of a fork. The calling thread works, too, and never waits for a thread that has not begun.
#pragma once

#include <cstddef>

namespace splitops::thread_pool {

// Bytes per task: copying them takes longer than waking a thread. Copies of twice this size are shared.
constexpr std::ptrdiff_t kTaskBytes = std::ptrdiff_t{512} << 10;

void set_threads(int threads);  // at least 1, including the caller
int threads();

using Task = void (*)(void *context, std::size_t index);

// Calls task(context, i) for every i in [0, count), each once, on up to threads() threads.
void run(std::size_t count, Task task, void *context);

// The same for a callable with the index.
template <class F>
void for_each(std::size_t count, F &&body) {
    run(count, [](void *context, std::size_t index) { (*static_cast<F *>(context))(index); }, &body);
}

}  // namespace splitops::thread_pool
