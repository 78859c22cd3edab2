// The calls of MosaicService on a store of buffers: memory, leases, devices, retries. What they
// compute is tested in tests/gpu/mosaic.

#include "server/mosaic/mosaics.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <semaphore>
#include <thread>
#include <utility>

#include "gmock/gmock.h"

#include "tests/server/buffer/buffer_fixture.h"

namespace octavo::engine::testing {
namespace {

using mosaic::FindZOverlapCall;
using mosaic::Mosaics;
using mosaic::RegisterTilesCall;
using mosaic::StackSectionsCall;
using mosaic::StitchTilesCall;
using octavo::testing::IsError;
using octavo::testing::IsOk;

// What is waited for takes milliseconds where the processor is free; the machine may be busy with
// other programs.
constexpr std::chrono::seconds kPatience(20);

class MosaicsTest : public BufferStoreTest {
 protected:
  /// Four tiles of 40² cut from one picture; the stage is 2 voxels off at the last one.
  std::string Tiles(std::vector<uint32_t> places = {}) {
    const std::vector<float> picture = Random(70 * 70, 5);
    std::vector<float> tiles;
    for (const int64_t y : {0, 30}) {
      for (const int64_t x : {0, 30}) {
        for (int64_t i = 0; i < 40; ++i) {
          for (int64_t k = 0; k < 40; ++k)
            tiles.push_back(picture[static_cast<size_t>((y + i) * 70 + x + k)]);
        }
      }
    }
    const std::string name = Make(Scalar::kF32, {4, 40, 40}, 1, std::move(places), true).name;
    EXPECT_THAT(Write(name, tiles), IsOk());
    return name;
  }
  RegisterTilesCall Registering(const std::string& name) {
    RegisterTilesCall call{.tiles = {.name = name}};
    call.spec.layout.kind = TileLayoutSpec::Kind::kStack;
    call.spec.stage_um = {{{0, 0, 0}}, {{0, 0, 30}}, {{0, 30, 0}}, {{0, 28, 32}}};
    return call;
  }
  StitchTilesCall Stitching(const std::string& name) {
    StitchTilesCall call{.tiles = {.name = name}};
    call.spec.layout.kind = TileLayoutSpec::Kind::kStack;
    call.spec.position_um = {{{0, 0, 0}}, {{0, 0, 30}}, {{0, 30, 0}}, {{0, 30, 30}}};
    return call;
  }
  std::string Slab(uint32_t planes, uint32_t seed, std::vector<uint32_t> places = {}) {
    const std::string name = Make(Scalar::kF32, {planes, 8, 8}, 1, std::move(places), true).name;
    EXPECT_THAT(Write(name, Random(planes * 64, seed)), IsOk());
    return name;
  }
  int64_t Free() {
    EXPECT_THAT(store_->Drain(), IsOk());
    int64_t free = 0;
    for (int d = 0; d < ledger_->devices(); ++d) free += ledger_->UseOf(d).free();
    return free;
  }

  Mosaics mosaics_{store_.get()};
};

TEST_P(MosaicsTest, RegisteringAndStitchingOneAfterTheOther) {
  const std::string tiles = Tiles();
  const int64_t before = Free();
  ASSERT_OK_AND_ASSIGN(const TilePositions got, mosaics_.Register(Registering(tiles), kMe));
  ASSERT_EQ(got.tiles.size(), 4u);
  ASSERT_EQ(got.joints.size(), 4u) << "corners are no joints";
  const Vector3 &first = got.tiles[0].position_um, &last = got.tiles[3].position_um;
  EXPECT_NEAR(last[1] - first[1], 30, 0.05);
  EXPECT_NEAR(last[2] - first[2], 30, 0.05);
  for (const TileJoint& joint : got.joints) {
    EXPECT_GT(joint.confidence, 0.95);
    EXPECT_EQ(joint.state, JointState::kUsed);
  }
  EXPECT_EQ(Free(), before) << "a measurement keeps no memory";
  EXPECT_EQ(store_->List(kMe).size(), 1u) << "nor a buffer";

  StitchTilesCall call = Stitching(tiles);
  call.made = {.labels = {{"what", "mosaic"}}, .request_id = "again", .request_digest = "body"};
  ASSERT_OK_AND_ASSIGN(const mosaic::StitchedTiles made, mosaics_.Stitch(call, kMe));
  EXPECT_EQ(made.buffer.type.dims, (std::vector<int64_t>{1, 70, 70}));
  EXPECT_EQ(made.buffer.origin, tiles);
  EXPECT_EQ(made.buffer.labels.at("what"), "mosaic");
  EXPECT_EQ(made.buffer.replicas.size(), devices());
  EXPECT_EQ(Read<float>({.name = made.buffer.name}).value(), Random(70 * 70, 5));
  ASSERT_OK_AND_ASSIGN(const mosaic::StitchedTiles again, mosaics_.Stitch(call, kMe));
  EXPECT_EQ(again.buffer.name, made.buffer.name);
  call.made.request_digest = "another body";
  EXPECT_REFUSED(mosaics_.Stitch(call, kMe), kAlreadyExists, "IDEMPOTENCY_MISMATCH");
}

TEST_P(MosaicsTest, LeasesAndNames) {
  const std::string tiles = Tiles(), above = Slab(8, 1), below = Slab(8, 1);
  const auto lease =
      leases_.TryAcquire({.resource = tiles, .mode = LeaseMode::kExclusive, .seconds = 0});
  ASSERT_THAT(lease, IsOk());
  RegisterTilesCall call = Registering(tiles);
  EXPECT_REFUSED(mosaics_.Register(call, kMe), kAborted, "LEASED");
  EXPECT_REFUSED(mosaics_.Stitch(Stitching(tiles), kMe), kAborted, "LEASED");
  call.tiles.lease_token = lease->token;
  EXPECT_THAT(mosaics_.Register(call, kMe), IsOk());
  EXPECT_REFUSED(mosaics_.Register(Registering("buffers/none"), kMe), kNotFound, "NO_BUFFER");
  EXPECT_REFUSED(
      mosaics_.FindZOverlap({.fixed = {.name = above}, .moving = {.name = "buffers/none"}}, kMe),
      kNotFound, "NO_BUFFER");
  // The same slab twice has all planes in common, and one lease.
  FindZOverlapCall overlap{.fixed = {.name = above}, .moving = {.name = above}};
  overlap.spec = {.slicing_interval_um = 1, .search_range_um = 2, .spacing_z_um = 1};
  ASSERT_OK_AND_ASSIGN(ZOverlapResult got, mosaics_.FindZOverlap(overlap, kMe));
  EXPECT_EQ(got.overlap, 8);
  EXPECT_NEAR(got.correlation, 1, 1e-6);
  overlap.moving.name = below;
  ASSERT_OK_AND_ASSIGN(got, mosaics_.FindZOverlap(overlap, kMe));
  EXPECT_EQ(got.overlap, 8);
  // Nothing to try needs no device.
  overlap.spec.slicing_interval_um = 100;
  ASSERT_OK_AND_ASSIGN(got, mosaics_.FindZOverlap(overlap, kMe));
  EXPECT_TRUE(got.fallback);
  const std::string empty = Make(Scalar::kF32, {4, 40, 40}, 1, {}, true).name;
  EXPECT_REFUSED(mosaics_.Register(Registering(empty), kMe), kFailedPrecondition, "UNINITIALIZED");
}

TEST_P(MosaicsTest, WhereTheArraysAre) {
  if (devices() < 2) GTEST_SKIP() << "needs two devices";
  const std::string above = Slab(8, 1, {0}), below = Slab(8, 1, {1}), both = Slab(8, 1);
  FindZOverlapCall call{.fixed = {.name = above}, .moving = {.name = below}};
  call.spec = {.slicing_interval_um = 1, .search_range_um = 2, .spacing_z_um = 1};
  EXPECT_REFUSED(mosaics_.FindZOverlap(call, kMe), kInvalidArgument, "BAD_PLACEMENT");
  call.fixed.name = both;
  EXPECT_THAT(mosaics_.FindZOverlap(call, kMe), IsOk());
}

TEST_P(MosaicsTest, NoRoomAndABrokenDevice) {
  const std::string tiles = Tiles({0});
  const int64_t before = Free();
  // Each allocation in turn fails; then the call succeeds, and nothing was kept.
  int failures = 0;
  for (int allowed = 0;; ++allowed) {
    devices_[0]->allocations_left = allowed;
    const auto got = mosaics_.Register(Registering(tiles), kMe);
    if (got.ok()) break;
    ++failures;
    ASSERT_EQ(got.status().code(), absl::StatusCode::kResourceExhausted) << got.status();
    EXPECT_EQ(Free(), before);
  }
  EXPECT_GE(failures, 2);
  devices_[0]->allocations_left = 1 << 30;
  StitchTilesCall far = Stitching(tiles);
  far.spec.position_um[3] = {{0, 30000, 30000}};
  EXPECT_REFUSED(mosaics_.Stitch(far, kMe), kResourceExhausted, "QUOTA");
  far.spec.position_um[3] = {{0, 40000, 40000}};
  EXPECT_REFUSED(mosaics_.Stitch(far, kMe), kInvalidArgument, "TOO_MANY_ELEMENTS");
  store_->BeginDrain();
  EXPECT_REFUSED(mosaics_.Register(Registering(tiles), kMe), kUnavailable, "DRAINING");
  EXPECT_EQ(Free(), before);
}

TEST_P(MosaicsTest, MeasurementsAreAtomicWithWrites) {
  // A writer that changes whole buffers never lets a measurement see half of each.
  const std::string slab = Make(Scalar::kF32, {16, 64, 64}, 1, {}, false).name;
  const std::vector<float> one = Random(16 * 64 * 64, 1), two = Random(16 * 64 * 64, 2);
  ASSERT_THAT(Write(slab, one), IsOk());
  FindZOverlapCall call{.fixed = {.name = slab}, .moving = {.name = slab}};
  call.spec = {.slicing_interval_um = 8, .search_range_um = 8, .spacing_z_um = 1};
  std::vector<std::vector<double>> allowed;
  for (const auto* values : {&one, &two}) {
    ASSERT_THAT(Write(slab, *values), IsOk());
    ASSERT_OK_AND_ASSIGN(const ZOverlapResult got, mosaics_.FindZOverlap(call, kMe));
    allowed.push_back(got.correlations);
  }
  ASSERT_NE(allowed[0], allowed[1]);
  std::jthread writer([&](const std::stop_token& stop) {
    for (int i = 0; !stop.stop_requested(); ++i) (void)Write(slab, i % 2 == 0 ? one : two);
  });
  for (int i = 0; i < 40; ++i) {
    const auto got = mosaics_.FindZOverlap(call, kMe);
    if (!got.ok()) continue;  // the writer has the lease
    EXPECT_TRUE(got->correlations == allowed[0] || got->correlations == allowed[1]);
  }
}

TEST_P(MosaicsTest, StackingAndResampling) {
  const std::string first = Slab(8, 1), second = Slab(8, 2);
  StackSectionsCall call{.sections = {{.name = first}, {.name = second}, {.name = first}}};
  call.spec.position_um = {{{0, 0, 0}}, {{0, 2, 1}}, {{0, 0, 0}}};
  call.spec.spacing_um = {{1, 1, 1}};
  call.spec.overlap = {3, 0};
  call.made = {.labels = {{"what", "stack"}}, .request_id = "stack", .request_digest = "body"};
  const int64_t before = Free();
  ASSERT_OK_AND_ASSIGN(const mosaic::StackedSections made, mosaics_.Stack(call, kMe));
  EXPECT_EQ(made.buffer.type.dims, (std::vector<int64_t>{21, 10, 9}));
  EXPECT_EQ(made.buffer.origin, first);
  EXPECT_EQ(made.buffer.labels.at("what"), "stack");
  EXPECT_EQ(made.buffer.replicas.size(), devices());
  ASSERT_EQ(made.report.sections.size(), 3u);
  EXPECT_EQ(made.report.sections[1].first_plane, 5);
  EXPECT_EQ(made.report.total_z, 21);
  // The replicas are the same, and so is the answer to a retry.
  const auto values = Read<float>({.name = made.buffer.name});
  ASSERT_THAT(values, IsOk());
  EXPECT_EQ(values->at((20 * 10 + 7) * 9 + 7), Random(8 * 64, 1)[8 * 64 - 1]);
  for (uint32_t r = 1; r < devices(); ++r)
    EXPECT_THAT(*Read<float>({.name = made.buffer.name,
                              .which = model::BufferReadSpec::Which::kReplica,
                              .replica = r}),
                ::testing::Pointwise(::testing::NanSensitiveFloatEq(), *values));
  ASSERT_OK_AND_ASSIGN(const mosaic::StackedSections again, mosaics_.Stack(call, kMe));
  EXPECT_EQ(again.buffer.name, made.buffer.name);
  EXPECT_EQ(again.report.sections.size(), 3u);
  EXPECT_EQ(Free(), before - static_cast<int64_t>(devices()) * 21 * 90 * 4);

  mosaic::ResampleTilesCall resample{.tiles = {.name = first}};
  resample.spec.layout.kind = TileLayoutSpec::Kind::kStack;
  resample.spec.target_um = {{0, 2, 4}};
  ASSERT_OK_AND_ASSIGN(const mosaic::ResampledBuffer small, mosaics_.Resample(resample, kMe));
  EXPECT_EQ(small.buffer.type.dims, (std::vector<int64_t>{8, 4, 2}));
  EXPECT_EQ(small.tiles.tile_x, 2);
  EXPECT_EQ(small.tiles.spacing_um[2], 4);
  call.sections[1].name = "buffers/none";
  call.made.request_id = "";
  EXPECT_REFUSED(mosaics_.Stack(call, kMe), kNotFound, "NO_BUFFER");
}

TEST_P(MosaicsTest, ACallThatNobodyWaitsForEndsAtOnceAndKeepsNothing) {
  const std::string tiles = Make(Scalar::kF32, {2, 900, 900}, 1, {0}, true).name;
  ASSERT_THAT(Write(tiles, Random(2 * 900 * 900, 4)), IsOk());
  RegisterTilesCall call{.tiles = {.name = tiles}};
  call.spec.layout.kind = TileLayoutSpec::Kind::kStack;
  call.spec.stage_um.resize(2);
  StitchTilesCall stitch{.tiles = call.tiles};
  stitch.spec.layout = call.spec.layout;
  stitch.spec.position_um = {{{0, 0, 0}}, {{0, 700, 900}}};
  StackSectionsCall stack{.sections = {call.tiles, call.tiles}};
  stack.spec.position_um.resize(2);
  stack.spec.spacing_um = {{1, 1, 1}};
  stack.spec.overlap = {1};
  stack.spec.refine_limit_um = 30;
  FindZOverlapCall overlap{.fixed = call.tiles, .moving = call.tiles};
  overlap.spec = {.slicing_interval_um = 1, .search_range_um = 5, .spacing_z_um = 1};
  const int64_t before = Free();
  for (const int last : {0, 1, 2, 5}) {
    // The question that is answered with no. A GPU may be done before: it is asked at the end, too.
    int asked = 0;
    const buffer::MayGoOn may = [&]() -> absl::Status {
      return asked++ < last ? absl::OkStatus() : absl::CancelledError("nobody waits");
    };
    std::vector<absl::Status> answers;
    const auto begun = std::chrono::steady_clock::now();
    answers.push_back(mosaics_.Register(call, kMe, may).status());
    asked = 0;
    answers.push_back(mosaics_.Stack(stack, kMe, may).status());
    EXPECT_LT(std::chrono::steady_clock::now() - begun, kPatience)
        << "one pair takes far longer on a host";
    if (last < 2) {
      asked = 0;
      answers.push_back(mosaics_.Stitch(stitch, kMe, may).status());
      asked = 0;
      answers.push_back(mosaics_.FindZOverlap(overlap, kMe, may).status());
    }
    for (const absl::Status& answer : answers) {
      // With five questions a GPU has made the stack.
      if (last == 5 && answer.ok()) continue;
      EXPECT_EQ(answer.code(), absl::StatusCode::kCancelled) << last << " " << answer;
    }
    if (last < 5) EXPECT_EQ(Free(), before);
    EXPECT_THAT(Write(tiles, Random(2 * 900 * 900, 4)), IsOk()) << "its lease has ended";
  }
}

/// A call that takes long in a thread.
template <class F>
class InThread {
 public:
  explicit InThread(F f)
      : thread_([this, f = std::move(f)] {
          answer_ = f();
          done_ = true;
        }) {}
  bool done() const { return done_; }
  absl::Status Answer() {
    thread_.join();
    return answer_;
  }

 private:
  absl::Status answer_;
  std::atomic<bool> done_{false};
  std::jthread thread_;
};

// Work looks whether it may go on before it takes its inputs, again once it has them, and then
// while it runs and at its end.
buffer::MayGoOn AtLook(int which, std::function<void()> then) {
  return [which, then = std::move(then), looks = 0]() mutable {
    if (++looks == which) then();
    return absl::OkStatus();
  };
}

TEST_P(MosaicsTest, OthersAreNotDelayedAndADrainEndsIt) {
  if (devices_[0]->info().backend != "host") GTEST_SKIP() << "a GPU is done at once";
  const std::string tiles = Make(Scalar::kF32, {2, 1600, 1600}, 1, {0}, true).name;
  ASSERT_THAT(Write(tiles, Random(2 * 1600 * 1600, 4)), IsOk());
  const std::string small = Slab(8, 3, {0});
  RegisterTilesCall call{.tiles = {.name = tiles}};
  call.spec.layout.kind = TileLayoutSpec::Kind::kStack;
  call.spec.stage_um.resize(2);
  std::binary_semaphore at_work{0};
  InThread working(
      [&] { return mosaics_.Register(call, kMe, AtLook(2, [&] { at_work.release(); })).status(); });
  ASSERT_TRUE(at_work.try_acquire_for(kPatience));
  // More of them than there are streams.
  for (int i = 0; i < 12; ++i) {
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_THAT(Read<float>({.name = small}), IsOk());
    EXPECT_THAT(Write(small, Random(8 * 64, static_cast<uint32_t>(i))), IsOk());
    EXPECT_THAT(Read<float>({.name = tiles, .count = {1, 4, 4}}), IsOk());
    EXPECT_LT(std::chrono::steady_clock::now() - begun, kPatience);
  }
  EXPECT_REFUSED(Write(tiles, Random(2 * 1600 * 1600, 5)), kAborted, "LEASED");
  ASSERT_FALSE(working.done());
  const auto begun = std::chrono::steady_clock::now();
  store_->BeginDrain();
  EXPECT_REFUSED(working.Answer(), kUnavailable, "DRAINING");
  EXPECT_LT(std::chrono::steady_clock::now() - begun, kPatience);
}

TEST_P(MosaicsTest, AWriteOfTheCallerInBetweenIsNoticed) {
  const std::string tiles = Make(Scalar::kF32, {2, 1600, 1600}, 1, {0}, true).name;
  const std::vector<float> values = Random(2 * 1600 * 1600, 4);
  ASSERT_THAT(Write(tiles, values), IsOk());
  const auto lease =
      leases_.TryAcquire({.resource = tiles, .mode = LeaseMode::kExclusive, .seconds = 0});
  ASSERT_THAT(lease, IsOk());
  RegisterTilesCall call{.tiles = {.name = tiles, .lease_token = lease->token}};
  call.spec.layout.kind = TileLayoutSpec::Kind::kStack;
  call.spec.stage_um.resize(2);
#ifdef __SANITIZE_THREAD__
  constexpr int kLast = 2;  // later the write races with the reading, whose result is thrown away
#else
  constexpr int kLast = 3;
#endif
  for (int look = 2; look <= kLast; ++look) {
    SCOPED_TRACE(look);
    std::binary_semaphore at_work{0}, written{0};
    InThread working([&] {
      return mosaics_
          .Register(call, kMe,
                    AtLook(look,
                           [&] {
                             at_work.release();
                             written.acquire();
                           }))
          .status();
    });
    const bool is_at_work = at_work.try_acquire_for(kPatience);
    EXPECT_TRUE(is_at_work);
    EXPECT_THAT(Write(tiles, values, {.lease_token = lease->token}), IsOk());
    written.release();
    EXPECT_REFUSED(working.Answer(), kAborted, "VERSION");
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, MosaicsTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);

}  // namespace
}  // namespace octavo::engine::testing
