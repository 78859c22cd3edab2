#include "server/base/worker_pool.h"

#include <future>
#include <new>

#include "gtest/gtest.h"

#include "tests/support/rooms.h"

namespace octavo::engine {
namespace {

TEST(WorkerPoolTest, ATaskThatThrowsEndsAlone) {
  WorkerPool pool("oct-test", 1);
  pool.Post([] { throw std::bad_alloc(); });
  std::promise<void> done;
  pool.Post([&] { done.set_value(); });
  done.get_future().wait();
}

}  // namespace
}  // namespace octavo::engine
