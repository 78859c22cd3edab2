// The calls of MosaicService on a store of buffers: memory, leases, devices, retries. What they
// compute is tested in tests/gpu/mosaic.

#include "server/mosaic/mosaics.h"

#include <cmath>
#include <thread>

#include "gmock/gmock.h"

#include "tests/server/buffer/buffer_fixture.h"

namespace octavo::engine::testing {
namespace {

using mosaic::FindZOverlapCall;
using mosaic::Mosaics;
using mosaic::RegisterTilesCall;
using mosaic::StitchTilesCall;
using octavo::testing::IsError;
using octavo::testing::IsOk;

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
  call.labels = {{"what", "mosaic"}};
  call.request_id = "again";
  call.request_digest = "body";
  ASSERT_OK_AND_ASSIGN(const mosaic::StitchedTiles made, mosaics_.Stitch(call, kMe));
  EXPECT_EQ(made.buffer.type.dims, (std::vector<int64_t>{1, 70, 70}));
  EXPECT_EQ(made.buffer.origin, tiles);
  EXPECT_EQ(made.buffer.labels.at("what"), "mosaic");
  EXPECT_EQ(made.buffer.replicas.size(), devices());
  EXPECT_EQ(Read<float>({.name = made.buffer.name}).value(), Random(70 * 70, 5));
  ASSERT_OK_AND_ASSIGN(const mosaic::StitchedTiles again, mosaics_.Stitch(call, kMe));
  EXPECT_EQ(again.buffer.name, made.buffer.name);
  call.request_digest = "another body";
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

INSTANTIATE_TEST_SUITE_P(Backends, MosaicsTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);

}  // namespace
}  // namespace octavo::engine::testing
