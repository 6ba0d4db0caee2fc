// Giving the interpreter up while bytes move, and what comes of threads that never get it back.
#pragma once

#include <Python.h>
#include <unistd.h>

namespace splitops {

// Calls what takes the interpreter back, such as a copy of NumPy's own; it must throw nothing itself.
//
// A daemon thread that wants the interpreter back after its end is stopped: before Python 3.14 by pthread_exit, which
// in glibc unwinds the stack as an exception does. Destructors would then give up references without the interpreter,
// or end the process; so the thread sleeps until the process is gone, as Python 3.14 has it sleep.
template <class Body>
auto asleep_at_exit(Body &&body) {
    try {
        return body();
    } catch (...) {
        for (;;)
            pause();
    }
}

// Other Python threads run during its lifetime.
class WithoutInterpreter {
  public:
    WithoutInterpreter() : thread_(PyEval_SaveThread()) {}
    WithoutInterpreter(const WithoutInterpreter &) = delete;
    WithoutInterpreter &operator=(const WithoutInterpreter &) = delete;
    ~WithoutInterpreter() { take_back(); }

    // Calls what needs the interpreter; it must throw nothing. (PyGILState_Ensure() would not do: it makes a new thread
    // where the interpreter is gone.)
    template <class Body>
    auto interrupted(Body &&body) {
        take_back();
        const auto result = body();
        thread_ = PyEval_SaveThread();
        return result;
    }

  private:
    void take_back() {
        asleep_at_exit([this] { PyEval_RestoreThread(thread_); });
    }

    PyThreadState *thread_;
};

}  // namespace splitops
