// Operations on buffers and their order: replicas and versions, and random programs of four
// clients, compared with a replay.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "tests/server/buffer/buffer_fixture.h"
#include "tests/support/rooms.h"
#include "tests/support/seed.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using testing::kBudget;
using testing::kMe;

class BufferOrderTest : public testing::BufferStoreTest {};

TEST_P(BufferOrderTest, VersionsTellReplicasApart) {
  if (devices() < 2) GTEST_SKIP() << "one device";
  const BufferStatus buffer = Make(Scalar::kF32, {100});
  const std::vector<float> ones(100, 1), twos(100, 2);
  ASSERT_OK_AND_ASSIGN(const BufferStatus all, Write(buffer.name, ones));
  ASSERT_OK_AND_ASSIGN(const BufferStatus one,
                       Write(buffer.name, twos, {.all = false, .replica = 1}));
  EXPECT_FALSE(one.coherent);
  EXPECT_EQ(one.replicas[0].version, all.replicas[0].version);
  EXPECT_GT(one.replicas[1].version, all.replicas[1].version);
  EXPECT_REFUSED(Read<float>({.name = buffer.name}), kFailedPrecondition, "INCOHERENT");
  EXPECT_REFUSED(Read<float>({.name = buffer.name, .which = BufferReadSpec::Which::kStacked}),
                 kFailedPrecondition, "INCOHERENT");
  EXPECT_REFUSED(store_->Apply({.input = buffer.name, .operations = {CopyOp{}}}, kMe),
                 kFailedPrecondition, "INCOHERENT");
  EXPECT_EQ(Read<float>({.name = buffer.name, .allow_incoherent = true}).value(), twos)
      << "the newest";
  ASSERT_OK_AND_ASSIGN(const auto stacked, Read<float>({.name = buffer.name,
                                                        .which = BufferReadSpec::Which::kStacked,
                                                        .allow_incoherent = true}));
  for (size_t i = 0; i < stacked.size(); ++i) EXPECT_EQ(stacked[i], i / 100 == 1 ? 2 : 1);
  EXPECT_REFUSED(store_->Sync(buffer.name, devices(), {}, "", kMe), kOutOfRange, "BAD_REPLICA");
  EXPECT_REFUSED(store_->Sync(buffer.name, 0, {devices()}, "", kMe), kOutOfRange, "BAD_REPLICA");
  ASSERT_OK_AND_ASSIGN(const BufferStatus synced, store_->Sync(buffer.name, 1, {}, "", kMe));
  EXPECT_TRUE(synced.coherent);
  for (const auto& replica : synced.replicas) EXPECT_EQ(replica.version, one.replicas[1].version);
  for (uint32_t r = 0; r < devices(); ++r) {
    EXPECT_EQ(
        Read<float>({.name = buffer.name, .which = BufferReadSpec::Which::kReplica, .replica = r})
            .value(),
        twos);
  }
}

TEST_P(BufferOrderTest, OperationsMakeNewBuffersOrFillOldOnes) {
  const BufferStatus buffer = Make(Scalar::kF32, {30, 40});
  const std::vector<float> values = Random(1200, 5);
  ASSERT_THAT(Write(buffer.name, values), IsOk());
  ASSERT_OK_AND_ASSIGN(const BufferStatus sums,
                       store_->Apply({.input = buffer.name,
                                      .operations = {ReduceOp{.axes = {1}}},
                                      .labels = {{"what", "sums"}}},
                                     kMe));
  EXPECT_EQ(sums.type, (ArrayType{.scalar = Scalar::kF32, .dims = {30}}));
  EXPECT_EQ(sums.origin, buffer.name);
  EXPECT_EQ(sums.replicas.size(), devices());
  EXPECT_TRUE(sums.coherent);
  for (uint32_t r = 0; r < devices(); ++r) {
    ASSERT_OK_AND_ASSIGN(
        const auto got,
        Read<float>({.name = sums.name, .which = BufferReadSpec::Which::kReplica, .replica = r}));
    for (size_t i = 0; i < 30; ++i) {
      double sum = 0;
      for (size_t j = 0; j < 40; ++j) sum += static_cast<double>(values[i * 40 + j]);
      EXPECT_NEAR(got[i], sum, 1e-5);
    }
  }
  // Into an existing buffer, also into the input itself, and with a second array.
  EXPECT_REFUSED(
      store_->Apply({.input = buffer.name, .operations = {CopyOp{}}, .output = sums.name}, kMe),
      kInvalidArgument, "SHAPE_MISMATCH");
  EXPECT_REFUSED(store_->Apply({.input = buffer.name,
                                .operations = {ScaleOp{.scalar = Scalar::kU8}},
                                .output = buffer.name},
                               kMe),
                 kInvalidArgument, "TYPE_MISMATCH");
  EXPECT_REFUSED(
      store_->Apply({.input = buffer.name, .operations = {CropOp{.start = {99, 0}}}}, kMe),
      kInvalidArgument, "BAD_FIELD");
  EXPECT_REFUSED(
      store_->Apply({.input = buffer.name, .operations = {CopyOp{}}, .output = "volumes/x"}, kMe),
      kFailedPrecondition, "SEALED");
  EXPECT_REFUSED(store_->Apply({.input = "buffers/none", .operations = {CopyOp{}}}, kMe), kNotFound,
                 "NO_BUFFER");
  const BufferStatus raw = Make(Scalar::kF32, {3}, 1, {}, true);
  EXPECT_REFUSED(store_->Apply({.input = raw.name, .operations = {CopyOp{}}}, kMe),
                 kFailedPrecondition, "UNINITIALIZED");
  ASSERT_THAT(
      store_->Apply({.input = buffer.name, .operations = {FlipOp{}}, .output = buffer.name}, kMe),
      IsOk());
  std::vector<float> flipped(values.rbegin(), values.rend());
  EXPECT_EQ(Read<float>({.name = buffer.name}).value(), flipped);
  ASSERT_THAT(store_->Apply({.input = buffer.name,
                             .operations = {CombineOp{.kind = Combination::kSubtract}},
                             .others = {buffer.name},
                             .output = buffer.name},
                            kMe),
              IsOk());
  EXPECT_EQ(Read<float>({.name = buffer.name}).value(), std::vector<float>(1200, 0));
  // The server does not run a retried request again.
  const BufferApplySpec once{.input = buffer.name,
                             .operations = {ScaleOp{.add = {1, 0}}},
                             .output = buffer.name,
                             .request_id = "once",
                             .request_digest = "x"};
  ASSERT_THAT(store_->Apply(once, kMe), IsOk());
  ASSERT_THAT(store_->Apply(once, kMe), IsOk());
  EXPECT_EQ(Read<float>({.name = buffer.name}).value(), std::vector<float>(1200, 1));
  if (devices() < 2) return;
  // The output also has replicas on other devices: the input's device computes it and forwards it
  // to them.
  const BufferStatus here = Make(Scalar::kF32, {10}, 1, {1}), everywhere = Make(Scalar::kF32, {10}),
                     there = Make(Scalar::kF32, {10}, 1, {0});
  ASSERT_THAT(
      store_->Apply(
          {.input = here.name, .operations = {FillOp{.value = {7, 0}}}, .output = everywhere.name},
          kMe),
      IsOk());
  ASSERT_OK_AND_ASSIGN(const auto stacked, Read<float>({.name = everywhere.name,
                                                        .which = BufferReadSpec::Which::kStacked}));
  EXPECT_EQ(stacked, std::vector<float>(10 * devices(), 7));
  EXPECT_REFUSED(
      store_->Apply({.input = here.name, .operations = {CopyOp{}}, .output = there.name}, kMe),
      kInvalidArgument, "BAD_PLACEMENT");
}

TEST_P(BufferOrderTest, ReductionsOfManyElements) {
  const size_t count = 300'000;
  const std::vector<float> values = Random(count, 6);
  const BufferStatus buffer = Make(Scalar::kF32, {count / 2}, 2);
  ASSERT_THAT(Write(buffer.name, values), IsOk());
  const std::string sums =
      store_->Apply({.input = buffer.name, .operations = {ReduceOp{}}}, kMe)->name;
  ASSERT_OK_AND_ASSIGN(const auto got, Read<float>({.name = sums}));
  ASSERT_EQ(got.size(), 2u) << "a sum a lane";
  for (size_t lane = 0; lane < 2; ++lane) {
    double sum = 0;
    for (size_t i = lane; i < count; i += 2) sum += static_cast<double>(values[i]);
    EXPECT_NEAR(got[lane], sum, 1e-3);
  }
}

TEST_P(BufferOrderTest, WaitTellsWhenTheWorkIsThrough) {
  const BufferStatus buffer = Make(Scalar::kF32, {1 << 20});
  for (int i = 0; i < 20; ++i)
    ASSERT_THAT(
        store_->Apply(
            {.input = buffer.name, .operations = {ScaleOp{.add = {1, 0}}}, .output = buffer.name},
            kMe),
        IsOk());
  Mutex mutex;
  CondVar cv;
  std::vector<absl::StatusOr<BufferStatus>> told;
  ASSERT_THAT(store_->Wait(buffer.name, kMe,
                           [&](absl::StatusOr<BufferStatus> status) {
                             MutexLock lock(mutex);
                             told.push_back(std::move(status));
                             cv.NotifyAll();
                           }),
              IsOk());
  {
    MutexLock lock(mutex);
    while (told.empty()) cv.Wait(lock);
    ASSERT_THAT(told[0], IsOk());
    EXPECT_EQ(told[0]->sequence, 20u);
  }
  EXPECT_EQ(Read<float>({.name = buffer.name, .count = {3}}).value(), std::vector<float>(3, 20));
  EXPECT_REFUSED(
      store_->Wait("buffers/none", kMe, [](absl::StatusOr<BufferStatus>) { ADD_FAILURE(); }),
      kNotFound, "NO_BUFFER");
}

TEST_P(BufferOrderTest, WhatRunsKeepsItsMemory) {
  // The test destroys a buffer while work is in progress: the work continues, and the memory is
  // freed after it.
  for (int i = 0; i < 30; ++i) {
    const BufferStatus buffer = Make(Scalar::kF32, {100'000});
    const std::string out =
        store_
            ->Apply({.input = buffer.name,
                     .operations = {ScaleOp{.add = {5, 0}}, FlipOp{}, ScaleOp{.multiply = {2, 0}}}},
                    kMe)
            ->name;
    ASSERT_THAT(store_->Destroy(buffer.name, "", "", kMe), IsOk());
    const BufferStatus next =
        Make(Scalar::kF32, {100'000});  // may get the same memory, but only after that work
    ASSERT_THAT(Write(next.name, std::vector<float>(100'000, -1)), IsOk());
    ASSERT_TRUE(Read<float>({.name = out}).value() == std::vector<float>(100'000, 10));
    ASSERT_THAT(store_->Destroy(next.name, "", "", kMe), IsOk());
    ASSERT_THAT(store_->Destroy(out, "", "", kMe), IsOk());
  }
}

// An operation looks up its arrays before its turn comes. Meanwhile one of them may have moved away
// from memory that another process keeps mapped.
TEST_P(BufferOrderTest, AnArrayThatMovedIsReadAndWrittenWhereItIsNow) {
  const auto [in, moved_in] = MakeMovable({1000});
  ASSERT_THAT(Write(in, std::vector<float>(1000, 1)), IsOk());
  devices_[0]->on_allocation = [&, in = in, what = moved_in] {
    ASSERT_THAT(store_->Relocate(what), IsOk());
    ASSERT_THAT(Write(in, std::vector<float>(1000, 2)), IsOk());
  };
  ASSERT_OK_AND_ASSIGN(const BufferStatus made,
                       store_->Apply({.input = in, .operations = {ScaleOp{.add = {5, 0}}}}, kMe));
  EXPECT_TRUE(Read<float>({.name = made.name}).value() == std::vector<float>(1000, 7));
  const auto [out, moved_out] = MakeMovable({1000});
  ASSERT_THAT(Write(out, std::vector<float>(1000, 3)), IsOk());
  devices_[0]->on_allocation = [&, what = moved_out] {
    ASSERT_THAT(store_->Relocate(what), IsOk());
  };  // for the operation's scratch memory
  ASSERT_THAT(
      store_->Apply(
          {.input = in, .operations = {FlipOp{}, ScaleOp{.add = {5, 0}}, FlipOp{}}, .output = out},
          kMe),
      IsOk());
  EXPECT_EQ(devices_[0]->on_allocation, nullptr) << "it had to be called";
  EXPECT_TRUE(Read<float>({.name = out}).value() == std::vector<float>(1000, 7));
}

TEST_P(BufferOrderTest, RandomProgramsOfFourClientsEqualTheirReplay) {
  // T1: buffers of 500 to 2500 numbers. Programs are chains with constants, the input may also be
  // the output, and no client waits.
  for (uint32_t round = 0; round < 8; ++round) {
    const uint32_t seed = octavo::testing::FreshSeed();
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const size_t count = 500 + random() % 2001, buffers = 10 + random() % 15,
                 programs = 10 + random() % 41, dispatches = 50 + random() % 200;
    std::vector<std::string> names;
    std::vector<std::vector<float>> model;
    for (size_t i = 0; i < buffers; ++i) {
      names.push_back(Make(Scalar::kF32, {count}).name);
      model.push_back(Random(count, seed + static_cast<uint32_t>(i)));
      ASSERT_THAT(Write(names.back(), model.back()), IsOk());
    }
    std::vector<std::vector<float>> constants(programs);
    for (auto& program : constants) {
      for (size_t n = 1 + random() % 5; n > 0; --n)
        program.push_back(static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 100);
    }
    struct Dispatch {
      uint64_t sequence;
      size_t in, out, program;
    };
    std::vector<std::vector<Dispatch>> done(4);
    std::vector<std::thread> clients;
    for (uint32_t c = 0; c < 4; ++c) {
      clients.emplace_back([&, c] {
        std::mt19937 own(seed + 1000 + c);
        for (size_t i = 0; i < dispatches / 4; ++i) {
          Dispatch d{.sequence = 0,
                     .in = own() % buffers,
                     .out = own() % buffers,
                     .program = own() % programs};
          BufferApplySpec spec{.input = names[d.in], .output = names[d.out]};
          for (const float k : constants[d.program])
            spec.operations.push_back(ScaleOp{.add = {static_cast<double>(k), 0}});
          const auto applied = store_->Apply(spec, kMe);
          if (!applied.ok()) {
            ADD_FAILURE() << applied.status();
            return;
          }
          d.sequence = applied->sequence;
          done[c].push_back(d);
        }
      });
    }
    for (auto& client : clients) client.join();
    std::vector<Dispatch> all;
    for (const auto& list : done) all.insert(all.end(), list.begin(), list.end());
    std::sort(all.begin(), all.end(),
              [](const Dispatch& a, const Dispatch& b) { return a.sequence < b.sequence; });
    for (const Dispatch& d : all) {
      std::vector<float> values = model[d.in];
      for (const float k : constants[d.program]) {
        for (float& v : values) v += k;
      }
      model[d.out] = std::move(values);
    }
    for (size_t i = 0; i < buffers; ++i) {
      for (uint32_t r = 0; r < devices(); ++r) {
        ASSERT_OK_AND_ASSIGN(const auto got, Read<float>({.name = names[i],
                                                          .which = BufferReadSpec::Which::kReplica,
                                                          .replica = r}));
        for (size_t j = 0; j < count; ++j)
          ASSERT_NEAR(got[j], model[i][j], 1e-3)
              << "buffer " << i << " replica " << r << " at " << j;
      }
      ASSERT_THAT(store_->Destroy(names[i], "", "", kMe), IsOk());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, BufferOrderTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);

}  // namespace
}  // namespace octavo::engine
