#include "server/volume/coarse_reader.h"

#include <future>
#include <memory>

#include "gtest/gtest.h"

#include "tests/support/device/backend_param.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

// On the host one piece may stand for the whole volume: it has to end when nobody waits for it. The
// volume of this test has no voxels to read, so that only a reader that looks first gives an
// answer.
TEST(CoarseReaderTest, AnAbandonedReadEndsBeforeItReads) {
  Device& device = octavo::testing::SharedDevice("host");
  const auto stream = device.NewStream(StreamPriority::kLow);
  ASSERT_THAT(stream.status(), octavo::testing::IsOk());
  const auto pool = std::make_shared<FramePool>(&device, 64 << 20);
  Ledger ledger({1 << 20});
  WorkerPool workers("oct-test", 1);
  VolumeHold hold;
  hold.kind = HoldKind::kRead;
  hold.status.dtype = DType::kU8;
  for (int64_t& extent : hold.status.shape) extent = 64;
  const auto reader =
      MakeCoarseReader(hold, {.factor = 64, .box = {.start = {0, 0, 0}, .count = {64, 64, 64}}},
                       &device, stream->ref(), pool, &ledger, &workers);
  ASSERT_THAT(reader.status(), octavo::testing::IsOk());
  (*reader)->Abandon();
  std::promise<absl::Status> ended;
  (*reader)->Next(
      1 << 20, [&](const absl::StatusOr<model::Bytes>& piece) { ended.set_value(piece.status()); });
  EXPECT_EQ(ended.get_future().get().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace octavo::engine
