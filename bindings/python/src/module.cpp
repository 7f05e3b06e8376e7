/* SPDX-License-Identifier: Apache-2.0
 *
 * module.cpp: what Python sees of it: trireme._C. Every call that may wait gives up the GIL.
 */
#include <torch/csrc/utils/pybind.h>

#include <pybind11/chrono.h>
#include <pybind11/stl.h>

#include "group.hpp"

namespace py = pybind11;

namespace trireme
{
namespace
{
using GroupPtr = c10::intrusive_ptr<Group>;

/* A place that was joined by the environment, until a default group takes it. */
std::shared_ptr<Place> joined;

/* Every group has links and a queue of its own, so that groups never wait for each other. */
GroupPtr create(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size, std::chrono::milliseconds timeout,
                bool is_world)
{
    double timeout_s = std::min(std::max(static_cast<double>(timeout.count()) / 1000, 0.001), 1e6);
    std::shared_ptr<Place> place = is_world && joined ? std::move(joined) : Place::join(store, rank, size, timeout_s);
    return c10::make_intrusive<Group>(std::make_shared<Members>(place), store, timeout_s);
}

/* Rank, ranks, ranks on this host. */
std::tuple<int, int, int> joinByStarter(double timeout_s)
{
    joined = Place::joinByStarter(timeout_s);
    tri_group *world = tri_comm_world(joined->comm());
    return {tri_group_rank(world), tri_group_count(world), tri_comm_local_count(joined->comm())};
}

/* A short text of rank 0, by the place that was joined. */
std::string tell(std::string text)
{
    text.resize(256);
    check(tri_broadcast(tri_comm_world(joined->comm()), &text[0], 256, TRI_U8, 0, nullptr));
    return text.c_str();
}

int localRank(const GroupPtr &group)
{
    return tri_comm_local_rank(group->members->place->comm());
}

int localCount(const GroupPtr &group)
{
    return tri_comm_local_count(group->members->place->comm());
}
} // namespace
} // namespace trireme

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)
{
    using namespace trireme;
    using release = py::call_guard<py::gil_scoped_release>;
    py::module_::import("torch.distributed"); /* the classes it is derived from */
    py::class_<Group, Base, GroupPtr>(m, "Group")
        .def("all_reduce_joined", &Group::allreduceJoined, release())
        .def("join", &Group::join, release())
        .def("local_rank", [](const GroupPtr &group) { return localRank(group); })
        .def("local_size", [](const GroupPtr &group) { return localCount(group); });
    m.def("create", &create, release());
    m.def("join_by_starter", &joinByStarter, release());
    m.def("tell", &tell, release());
    m.def(
        "leave_all",
        [] {
            joined.reset();
            Place::leaveAll();
        },
        release());
}
