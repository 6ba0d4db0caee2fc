#include "copy/thread_pool.h"

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

namespace splitops::thread_pool {
namespace {

struct Job {
    Task task;
    void *context;
    std::size_t count;
    std::atomic<std::size_t> next{0};

    void work() {
        for (std::size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;)
            task(context, i);
    }
};

struct State {
    std::mutex busy;  // held by the caller whose job runs; other callers work alone in that time
    std::mutex mutex;
    std::condition_variable wake, finished;
    Job *job = nullptr;
    std::size_t sequence = 0;  // of the last job, so that a worker accepts each job once
    int places = 0;            // number of workers that may still join the job
    int working = 0;
    int started = 0;
};

std::atomic<int> g_threads{1};

// Leaked on purpose, because sleeping workers refer to it until the process ends. After a fork, the child gets a new
// one, because the parent's workers do not exist there. It is created when the library is loaded: a fork during the
// creation would leave a child that waits for it forever.
State *g_state = [] {
    pthread_atfork(nullptr, nullptr, [] { g_state = new State; });
    return new State;
}();

void worker(State *s) {
    std::size_t seen = 0;
    std::unique_lock<std::mutex> lock(s->mutex);
    for (;;) {
        s->wake.wait(lock, [&] { return s->job != nullptr && s->sequence != seen && s->places > 0; });
        seen = s->sequence;
        Job *job = s->job;
        --s->places;
        ++s->working;
        lock.unlock();
        job->work();
        lock.lock();
        if (--s->working == 0)
            s->finished.notify_one();
    }
}

}  // namespace

void set_threads(int threads) { g_threads.store(threads, std::memory_order_relaxed); }

int threads() { return g_threads.load(std::memory_order_relaxed); }

void run(std::size_t count, Task task, void *context) {
    Job job{task, context, count};
    const int helpers = threads() - 1;
    if (helpers <= 0 || count < 2) {
        job.work();
        return;
    }
    State &s = *g_state;
    std::unique_lock<std::mutex> turn(s.busy, std::try_to_lock);
    if (!turn.owns_lock()) {
        job.work();
        return;
    }
    {
        std::lock_guard<std::mutex> lock(s.mutex);
        try {
            for (; s.started < helpers; ++s.started)
                std::thread(worker, &s).detach();
        } catch (const std::exception &) {
            // No more threads can be created: the existing ones and this one do the work.
        }
        s.job = &job;
        s.places = helpers;
        ++s.sequence;
    }
    if (helpers == 1)
        s.wake.notify_one();
    else
        s.wake.notify_all();
    job.work();
    std::unique_lock<std::mutex> lock(s.mutex);
    s.job = nullptr;  // a worker that wakes up now has no job
    s.finished.wait(lock, [&] { return s.working == 0; });
}

}  // namespace splitops::thread_pool
