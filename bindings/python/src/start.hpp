/* SPDX-License-Identifier: Apache-2.0
 *
 * start.hpp: how an operation of a group becomes an Operation of its place, without an allocation besides it.
 */
#pragma once

#include <type_traits>

#include <torch/csrc/utils/pybind.h>

#include "group.hpp"

namespace trireme
{

/* Torch before 2.8 does not tell a backend whether the caller goes on or waits. Its functions in Python have an
 * argument for that; with it, an operation that is waited for anyway needs no other thread. */
inline bool callerBlocks()
{
    if (!PyGILState_GetThisThreadState())
        return false;
    pybind11::gil_scoped_acquire gil;
    PyObject *locals = PyEval_GetLocals();
    if (!locals || !PyDict_Check(locals)) {
        PyErr_Clear();
        return false;
    }
    return PyDict_GetItemString(locals, "async_op") == Py_False;
}

template <class Options, class = void> struct TellsHow : std::false_type {
};
template <class Options>
struct TellsHow<Options, std::void_t<decltype(std::declval<Options>().asyncOp)>> : std::true_type {
};

template <class Options> bool blocks(const Options &opts)
{
    if constexpr (TellsHow<Options>::value)
        return !opts.asyncOp;
    else
        return callerBlocks();
}

template <class Call> class Calling : public Operation
{
  public:
    Calling(c10d::OpType type, Tensors outputs, std::shared_ptr<Members> members, double limit_s, Staging staging,
            Call call)
        : Operation(type, std::move(outputs)), members_(std::move(members)), limit_s_(limit_s),
          staging_(std::move(staging)), call_(std::move(call))
    {
    }

  protected:
    void run() override
    {
        members_->limit(limit_s_);
        check(call_());
        staging_.finish();
    }

  private:
    std::shared_ptr<Members> members_;
    double limit_s_;
    Staging staging_;
    Call call_;
};

template <class Call>
WorkPtr Group::start(c10d::OpType type, Tensors outputs, bool blocks, std::chrono::milliseconds timeout,
                     Staging staging, Call call)
{
    auto operation = c10::make_intrusive<Calling<Call>>(type, std::move(outputs), members, limitOf(timeout),
                                                        std::move(staging), std::move(call));
    sequence_++;
    if (blocks && !coalescing_)
        members->place->run(operation);
    else
        members->place->submit(operation);
    if (coalescing_)
        latest_ = operation;
    return operation;
}

} // namespace trireme
