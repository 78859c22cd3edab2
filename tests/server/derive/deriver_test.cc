// Repeated requests for derived volumes.

#include <atomic>

#include "server/base/request_ids.h"
#include "tests/server/engine/memory_fixture.h"
#include "tests/support/rooms.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;

class DeriverTest : public testing::MemoryTest {
 protected:
  absl::StatusOr<VolumeStatus> Derive(const DeriveSpec& spec) {
    std::promise<absl::StatusOr<VolumeStatus>> promise;
    OCTAVO_RETURN_IF_ERROR(engine_->volumes().Derive(
        spec, [&](absl::StatusOr<VolumeStatus> volume) { promise.set_value(std::move(volume)); }));
    return promise.get_future().get();
  }
  /// Derives one plane of a volume.
  static DeriveSpec Plane(const std::string& volume, const std::string& request_id) {
    return {.name = volume,
            .operations = {OpSpec{CropOp{.start = {}, .count = {1, 0, 0}}}},
            .request_id = request_id,
            .request_digest = "plane"};
  }
};

TEST_F(DeriverTest, ARetryGetsWhatTheFirstOneMade) {
  Finished(Submit(Spec(1)).name);
  const std::string source = Held().at(0).name;
  DeriveSpec spec = Plane(source, "one");
  ASSERT_OK_AND_ASSIGN(const VolumeStatus first, Derive(spec));
  ASSERT_OK_AND_ASSIGN(const VolumeStatus again, Derive(spec));
  EXPECT_EQ(again.name, first.name);
  spec.request_digest = "another";
  const auto other = Derive(spec);
  EXPECT_THAT(other, IsError(absl::StatusCode::kAlreadyExists, "another body"));
  EXPECT_EQ(InfoOf(other.status()).reason, Reason::kIdempotencyMismatch);
  // A failed request leaves no trace.
  spec = Plane("volumes/none", "two");
  EXPECT_EQ(InfoOf(Derive(spec).status()).reason, Reason::kNoVolume);
  EXPECT_THAT(Derive(Plane(source, "two")), IsOk());
}

TEST_F(DeriverTest, TheOldestRequestsAreForgotten) {
  Finished(Submit(Spec(1)).name);
  const std::string source = Held().at(0).name;
  constexpr size_t kRequests = RequestIds::kMost + 1;
  std::atomic<size_t> done{0};
  for (size_t i = 0; i < kRequests; ++i) {
    ASSERT_THAT(engine_->volumes().Derive(Plane(source, absl::StrCat(i)),
                                          [&](const absl::StatusOr<VolumeStatus>& made) {
                                            EXPECT_THAT(made, IsOk());
                                            if (made.ok())
                                              EXPECT_THAT(engine_->volumes().Discard(made->name),
                                                          IsOk());
                                            ++done;
                                          }),
                IsOk());
  }
  Until([&] { return done == kRequests; });
  DeriveSpec other = Plane(source, "0");
  other.request_digest = "another";
  EXPECT_THAT(Derive(other), IsOk());
  other.request_id = absl::StrCat(RequestIds::kMost);
  EXPECT_THAT(Derive(other), IsError(absl::StatusCode::kAlreadyExists, "another body"));
}

}  // namespace
}  // namespace octavo::engine
