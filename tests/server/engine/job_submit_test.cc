// Clients submit jobs while the storage of one job hangs.

#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <future>

#include "gpu/base/status.h"
#include "gpu/base/unique_fd.h"
#include "tests/server/engine/memory_fixture.h"
#include "tests/support/rooms.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;

class JobSubmitTest : public testing::MemoryTest {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(temp_ / "in/hangs.zarr");
    config_.replay_roots = {temp_ / "in"};
    MemoryTest::SetUp();
  }
  static JobSpec Spec(const std::string& path, const std::string& request_id = "") {
    JobSpec spec;
    spec.request_id = request_id;
    spec.work = TomographySpec{.input = ProjectionFileSpec{.path = path, .options = {}}};
    return spec;
  }
};

TEST_F(JobSubmitTest, OneThatHangsDoesNotHoldUpOthers) {
  // The file has a lease: any program that opens it waits until the lease is given back, or for
  // most of a minute.
  std::signal(SIGIO, SIG_IGN);
  const std::string path = temp_ / "in/hangs.zarr/.zarray";
  std::ofstream(path) << "{";
  const UniqueFd lease(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (::fcntl(lease.get(), F_SETLEASE, F_WRLCK) != 0) GTEST_SKIP() << "no leases here";
  auto hangs = std::async(std::launch::async, [&] {
    return engine_->jobs().Submit(Spec("hangs.zarr", "one"), nullptr).status();
  });
  Until([&] { return ::fcntl(lease.get(), F_GETLEASE) != F_WRLCK; });
  EXPECT_THAT(engine_->jobs().Submit(Spec("missing.zarr"), nullptr),
              IsError(absl::StatusCode::kNotFound, "missing.zarr"));
  EXPECT_THAT(engine_->jobs().Submit(Spec("missing.zarr", "two"), nullptr),
              IsError(absl::StatusCode::kNotFound, "missing.zarr"));
  const auto retry = engine_->jobs().Submit(Spec("hangs.zarr", "one"), nullptr);
  EXPECT_THAT(retry, IsError(absl::StatusCode::kUnavailable, "has not answered the first call"));
  EXPECT_EQ(InfoOf(retry.status()).reason, Reason::kInProgress);
  EXPECT_EQ(hangs.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  ASSERT_EQ(::fcntl(lease.get(), F_SETLEASE, F_UNLCK), 0);
  EXPECT_THAT(hangs.get(), IsError(absl::StatusCode::kDataLoss, ".zarray"));
  EXPECT_THAT(engine_->jobs().Submit(Spec("hangs.zarr", "one"), nullptr),
              IsError(absl::StatusCode::kDataLoss, ".zarray"))
      << "the id is free again";
}

}  // namespace
}  // namespace octavo::engine
