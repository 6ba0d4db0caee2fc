// Releases the interpreter while bytes move, and handles threads that never get it back.
#pragma once

#include <Python.h>
#include <unistd.h>

namespace splitops {

// Calls a function that acquires the interpreter, such as a copy of NumPy's own. It must not throw.
//
// A daemon thread that acquires the interpreter after its end is stopped. Before Python 3.14 this is done by
// pthread_exit, which in glibc unwinds the stack like an exception. Destructors would then release references without
// the interpreter, or abort the process. So the thread sleeps until the process ends, as in Python 3.14.
template <class Body>
auto asleep_at_exit(Body &&body) {
    try {
        return body();
    } catch (...) {
        for (;;)
            pause();
    }
}

// Lets other Python threads run during its lifetime.
class WithoutInterpreter {
  public:
    WithoutInterpreter() : thread_(PyEval_SaveThread()) {}
    WithoutInterpreter(const WithoutInterpreter &) = delete;
    WithoutInterpreter &operator=(const WithoutInterpreter &) = delete;
    ~WithoutInterpreter() { take_back(); }

    // Calls a function that needs the interpreter and must not throw. (PyGILState_Ensure() is not suitable: it creates
    // a new thread state if the interpreter has ended.)
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
