// Replicated buffers: every row of their error table, replicas and versions, writes that break off, order (a random program of four
// clients against a replay), memory that comes back. On the host three devices; on GPUs as many as there are.

#include "server/engine/buffer_store.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "gtest/gtest.h"

#include "server/engine/checksum.h"
#include "tests/support/backend_param.h"
#include "tests/support/fake_clock.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;

constexpr int64_t kBudget = int64_t{256} << 20;
const Caller kMe{.client = "me", .key = ""};

/// A device that says it is broken when told so.
class FragileDevice final : public Device {
 public:
  explicit FragileDevice(std::unique_ptr<Device> real) : real_(std::move(real)) {}
  std::atomic<bool> broken{false};
  std::atomic<int> allocations_left{1 << 30};
  const DeviceInfo& info() const override { return real_->info(); }
  absl::StatusOr<DeviceMemory> Memory() override { return real_->Memory(); }
  absl::Status Health() override { return broken ? absl::UnavailableError("broken by the test") : real_->Health(); }
  absl::StatusOr<Stream> NewStream(StreamPriority p) override { return real_->NewStream(p); }
  absl::StatusOr<Event> NewEvent() override { return real_->NewEvent(); }
  absl::StatusOr<DeviceBuffer> Allocate(int64_t bytes) override {
    if (--allocations_left < 0) return absl::ResourceExhaustedError("none left, says the test");
    return real_->Allocate(bytes);
  }
  absl::StatusOr<PinnedBuffer> AllocatePinned(int64_t bytes) override { return real_->AllocatePinned(bytes); }
  absl::Status CopyToDevice(StreamRef s, void* d, const void* p, int64_t n) override { return real_->CopyToDevice(s, d, p, n); }
  absl::Status CopyToHost(StreamRef s, void* d, const void* p, int64_t n) override { return real_->CopyToHost(s, d, p, n); }
  absl::Status CopyOnDevice(StreamRef s, void* d, const void* p, int64_t n) override { return real_->CopyOnDevice(s, d, p, n); }
  absl::Status CopyBoxToHost(StreamRef s, void* d, const void* p, const int64_t shape[3], int64_t bytes, const Box3& box) override {
    return real_->CopyBoxToHost(s, d, p, shape, bytes, box);
  }
  absl::Status Fill(StreamRef s, void* d, int64_t n, uint32_t pattern) override { return real_->Fill(s, d, n, pattern); }
  absl::Status Digest(StreamRef s, const void* p, int64_t n, uint64_t* out) override { return real_->Digest(s, p, n, out); }
  absl::Status DigestOfPart(StreamRef s, const void* p, int64_t n, const DigestPlace& place, uint64_t* out) override {
    return real_->DigestOfPart(s, p, n, place, out);
  }
  SpectralOps& spectral() override { return real_->spectral(); }
  ProjectOps& project() override { return real_->project(); }
  ResampleOps& resample() override { return real_->resample(); }
  RepeatOps& repeats() override { return real_->repeats(); }
  ArrayOps& arrays() override { return real_->arrays(); }
  TomographyOps& tomography() override { return real_->tomography(); }
  PrepareOps& prepare() override { return real_->prepare(); }
  SinogramOps& sinograms() override { return real_->sinograms(); }
  absl::Status CopyAcross(StreamRef s, void* d, const void* p, int64_t n) override { return real_->CopyAcross(s, d, p, n); }
  absl::Status Delay(StreamRef s, int64_t ns) override { return real_->Delay(s, ns); }
  void InjectFault(const std::string& reason) override { real_->InjectFault(reason); }

 private:
  const std::unique_ptr<Device> real_;
};

class BufferStoreTest : public ::testing::TestWithParam<std::string> {
 protected:
  BufferStoreTest() {
    for (int i = 0; i < 3; ++i) {
      auto opened = OpenDevices(GetParam()).value();
      for (auto& device : opened.devices) devices_.push_back(std::make_unique<FragileDevice>(std::move(device)));
      if (GetParam() != "host") break;
    }
    std::vector<Device*> devices;
    for (const auto& device : devices_) {
      devices.push_back(device.get());
      frames_.push_back(std::make_shared<FramePool>(device.get(), int64_t{128} << 20));
    }
    ledger_ = std::make_unique<Ledger>(std::vector<int64_t>(devices.size(), kBudget));
    volumes_ = std::make_unique<VolumeStore>(ledger_.get(), &clock_, [](const VolumeStatus&) {});
    store_ = std::make_unique<BufferStore>(BufferStore::Context{.devices = devices,
                                                                .ledger = ledger_.get(),
                                                                .volumes = volumes_.get(),
                                                                .leases = &leases_,
                                                                .clock = &clock_,
                                                                .workers = &workers_,
                                                                .frames = frames_,
                                                                .server_id = "testtest",
                                                                .draining = [this] { return draining_; },
                                                                .quota_bytes = int64_t{300} << 20});
  }
  ~BufferStoreTest() override {
    store_ = nullptr;
    for (int d = 0; d < ledger_->devices(); ++d) EXPECT_EQ(ledger_->UseOf(d).free(), kBudget) << "device " << d << " did not get its memory back";
  }

  uint32_t devices() const { return static_cast<uint32_t>(devices_.size()); }
  BufferStatus Make(Scalar scalar, std::vector<uint64_t> shape, uint64_t lanes = 1, std::vector<uint32_t> places = {}, bool uninitialized = false) {
    return store_
        ->Create({.scalar = scalar, .lanes = lanes, .shape = std::move(shape), .devices = std::move(places), .uninitialized = uninitialized}, kMe)
        .value();
  }
  template <class T>
  absl::StatusOr<BufferStatus> Write(const std::string& name, const std::vector<T>& values, BufferWriteSpec spec = {}) {
    spec.name = name;
    spec.total_bytes = values.size() * sizeof(T);
    auto writer = store_->OpenWrite(spec, kMe);
    if (!writer.ok()) return writer.status();
    const auto* data = reinterpret_cast<const char*>(values.data());
    for (size_t at = 0; at < spec.total_bytes; at += BufferStore::kMostChunk) {
      const absl::Status status = (*writer)->Chunk({{data + at, std::min<size_t>(BufferStore::kMostChunk, spec.total_bytes - at)}});
      if (!status.ok()) return status;
    }
    return (*writer)->Finish();
  }
  template <class T>
  absl::StatusOr<std::vector<T>> Read(BufferReadSpec spec, int64_t chunk = 1 << 20) {
    auto reader = store_->OpenRead(spec, kMe);
    if (!reader.ok()) return reader.status();
    std::vector<T> values(static_cast<size_t>((*reader)->total_bytes()) / sizeof(T));
    int64_t at = 0;
    for (;;) {
      auto piece = (*reader)->Next(chunk);
      if (!piece.ok()) return piece.status();
      if (piece->size == 0) break;
      std::memcpy(reinterpret_cast<char*>(values.data()) + at, piece->data, static_cast<size_t>(piece->size));
      at += piece->size;
    }
    EXPECT_EQ(at, (*reader)->total_bytes());
    return values;
  }
  static std::vector<float> Random(size_t n, uint32_t seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> values(-1, 1);
    std::vector<float> out(n);
    for (float& v : out) v = values(random);
    return out;
  }
  static std::string Reason(const absl::Status& status) { return InfoOf(status).reason; }

  octavo::testing::FakeClock clock_;
  std::vector<std::unique_ptr<FragileDevice>> devices_;
  std::vector<std::shared_ptr<FramePool>> frames_;
  LeaseTable leases_{&clock_};
  WorkerPool workers_{"test", 1};
  std::unique_ptr<Ledger> ledger_;
  std::unique_ptr<VolumeStore> volumes_;
  std::unique_ptr<BufferStore> store_;
  bool draining_ = false;
};

#define EXPECT_REFUSED(result, wanted_code, wanted_reason)                 \
  do {                                                                     \
    const absl::Status refused_ = octavo::testing::StatusOf(result);       \
    EXPECT_EQ(refused_.code(), absl::StatusCode::wanted_code) << refused_; \
    EXPECT_EQ(Reason(refused_), wanted_reason) << refused_;                \
  } while (false)

TEST_P(BufferStoreTest, WhatIsWrittenIsRead) {
  for (const std::vector<uint64_t>& shape : {std::vector<uint64_t>{50}, {50, 50}, {50, 50, 50}, {2, 50}}) {
    for (const uint64_t lanes : {1u, 2u}) {
      const BufferStatus made = Make(Scalar::kF32, shape, lanes);
      EXPECT_EQ(made.replicas.size(), devices());
      EXPECT_TRUE(made.coherent);
      const std::vector<float> values = Random(static_cast<size_t>(made.type.numbers()), 1);
      ASSERT_OK_AND_ASSIGN(const BufferStatus written, Write(made.name, values));
      EXPECT_TRUE(written.coherent);
      EXPECT_EQ(written.state, BufferState::kReady);
      EXPECT_GT(written.replicas[0].version, made.replicas[0].version);
      EXPECT_NE(written.etag, made.etag);
      for (uint32_t r = 0; r < devices(); ++r) {
        EXPECT_EQ(Read<float>({.name = made.name, .which = BufferReadSpec::Which::kReplica, .replica = r}).value(), values);
      }
      EXPECT_EQ(Read<float>({.name = made.name}).value(), values);
      ASSERT_OK_AND_ASSIGN(const auto stacked, Read<float>({.name = made.name, .which = BufferReadSpec::Which::kStacked}));
      ASSERT_EQ(stacked.size(), values.size() * devices());
      for (size_t i = 0; i < stacked.size(); ++i) ASSERT_EQ(stacked[i], values[i % values.size()]);
    }
  }
}

TEST_P(BufferStoreTest, EveryElementTypeHasItsSize) {
  for (int s = 1; s <= kMostScalar; ++s) {
    const auto scalar = static_cast<Scalar>(s);
    for (uint64_t lanes = 1; lanes <= (IsComplex(scalar) ? 1 : 4); ++lanes) {
      const BufferStatus made = Make(scalar, {3, 5}, lanes);
      const auto bytes = static_cast<size_t>(15 * SizeOf(scalar) * static_cast<int64_t>(lanes));
      EXPECT_EQ(made.type.bytes(), static_cast<int64_t>(bytes));
      EXPECT_EQ(Read<uint8_t>({.name = made.name}).value(), std::vector<uint8_t>(bytes, 0)) << "a new buffer is zero";
      std::vector<uint8_t> values(bytes);
      std::iota(values.begin(), values.end(), 1);
      ASSERT_THAT(Write(made.name, values, {.has_type = true, .scalar = scalar, .lanes = lanes, .shape = {3, 5}}), IsOk());
      EXPECT_EQ(Read<uint8_t>({.name = made.name}).value(), values);
      ASSERT_THAT(store_->Destroy(made.name, "", "", kMe), IsOk());
    }
  }
}

TEST_P(BufferStoreTest, BadShapesTypesAndPlacesAreRefusedAndLeaveNothing) {
  const auto create = [&](Scalar scalar, uint64_t lanes, std::vector<uint64_t> shape, std::vector<uint32_t> places = {}) {
    return store_->Create({.scalar = scalar, .lanes = lanes, .shape = std::move(shape), .devices = std::move(places)}, kMe);
  };
  EXPECT_REFUSED(create(Scalar::kF32, 1, {}), kInvalidArgument, "BAD_SHAPE");
  EXPECT_REFUSED(create(Scalar::kF32, 1, {1, 2, 3, 4}), kInvalidArgument, "BAD_SHAPE");
  EXPECT_REFUSED(create(Scalar::kF32, 1, {4, 0}), kInvalidArgument, "BAD_SHAPE");
  EXPECT_REFUSED(create(Scalar{}, 1, {4}), kInvalidArgument, "BAD_TYPE");
  EXPECT_REFUSED(create(static_cast<Scalar>(99), 1, {4}), kInvalidArgument, "BAD_TYPE");
  EXPECT_REFUSED(create(Scalar::kF32, 5, {4}), kInvalidArgument, "BAD_TYPE");
  EXPECT_REFUSED(create(Scalar::kF32, ~uint64_t{0}, {4}), kInvalidArgument, "BAD_TYPE");
  EXPECT_REFUSED(create(Scalar::kC64, 2, {4}), kInvalidArgument, "BAD_TYPE");
  EXPECT_REFUSED(create(Scalar::kU8, 1, {(1 << 30) + 1}), kInvalidArgument, "TOO_MANY_ELEMENTS");
  EXPECT_REFUSED(create(Scalar::kU8, 1, {1ull << 63, 1ull << 63, 4}), kInvalidArgument, "TOO_MANY_ELEMENTS");
  EXPECT_REFUSED(create(Scalar::kU8, 1, {4}, {devices()}), kInvalidArgument, "BAD_PLACEMENT");
  EXPECT_REFUSED(create(Scalar::kU8, 1, {4}, {0, 0}), kInvalidArgument, "BAD_PLACEMENT");
  EXPECT_REFUSED(create(Scalar::kU8, 1, {1 << 30}, {0}), kResourceExhausted, "QUOTA");
  EXPECT_REFUSED(create(Scalar::kU8, 1, {260 << 20}, {0}), kResourceExhausted, "EXCEEDS_BUDGET");
  EXPECT_REFUSED(store_->Create({.scalar = Scalar::kU8, .shape = {4}, .ttl_seconds = 0.5}, kMe), kInvalidArgument, "BAD_FIELD");
  EXPECT_REFUSED(store_->Create({.scalar = Scalar::kU8, .shape = {4}, .is_private = true}, kMe), kInvalidArgument, "BAD_FIELD");
  EXPECT_TRUE(store_->List(kMe).empty());
}

TEST_P(BufferStoreTest, MemoryIsGrantedOnAllDevicesOrNone) {
  constexpr uint64_t kMost = 200 << 20;
  const BufferStatus first = Make(Scalar::kU8, {kMost}, 1, {devices() - 1});
  const int64_t before = ledger_->UseOf(0).free();
  // Another owner: the quota does not stand in the way; the last device does.
  const Caller you{.client = "you"};
  std::vector<uint32_t> all(devices());
  std::iota(all.begin(), all.end(), 0);
  const auto refused = store_->Create({.scalar = Scalar::kU8, .shape = {60u << 20}, .devices = all}, you);
  EXPECT_REFUSED(refused, kResourceExhausted, "DEVICE_FULL");
  std::string holders;
  for (const auto& [key, value] : InfoOf(refused.status()).numbers) holders += key == "holders" ? value : "";
  EXPECT_NE(holders.find(first.name), std::string::npos) << "names the largest holder";
  EXPECT_EQ(ledger_->UseOf(0).free(), before);
  EXPECT_REFUSED(store_->Create({.scalar = Scalar::kU8, .shape = {110 << 20}, .devices = {0}}, kMe), kResourceExhausted, "QUOTA");
  ASSERT_THAT(store_->Destroy(first.name, "", "", kMe), IsOk());
  ASSERT_THAT(store_->Drain(), IsOk());
  EXPECT_THAT(store_->Create({.scalar = Scalar::kU8, .shape = {60 << 20}, .devices = {0}}, you), IsOk());
}

TEST_P(BufferStoreTest, AnAllocationThatFailsGivesEverythingBack) {
  for (int allowed = 0; allowed < static_cast<int>(devices()); ++allowed) {
    for (auto& device : devices_) device->allocations_left = 1 << 30;
    devices_[static_cast<size_t>(allowed)]->allocations_left = 0;
    EXPECT_THAT(store_->Create({.scalar = Scalar::kF32, .shape = {1000}}, kMe), IsError(absl::StatusCode::kResourceExhausted, "none left"));
    ASSERT_THAT(store_->Drain(), IsOk());
    for (int d = 0; d < ledger_->devices(); ++d) EXPECT_EQ(ledger_->UseOf(d).free(), kBudget);
  }
  for (auto& device : devices_) device->allocations_left = 1 << 30;
  const BufferStatus buffer = Make(Scalar::kF32, {1000});
  // Scratch memory of an operation, and its output.
  for (int allowed = 0; allowed < 2; ++allowed) {
    devices_[0]->allocations_left = allowed;
    EXPECT_THAT(store_->Apply({.input = buffer.name, .operations = {FftOp{}, ScaleOp{.part = math::Part::kPower}}}, kMe),
                IsError(absl::StatusCode::kResourceExhausted, "none left"));
  }
  devices_[0]->allocations_left = 1 << 30;
  EXPECT_EQ(store_->List(kMe).size(), 1u);
}

TEST_P(BufferStoreTest, WritesAreCheckedAgainstTheBuffer) {
  const BufferStatus buffer = Make(Scalar::kF32, {10, 20}, 2);  // 8 bytes an element, 1600 in all
  const std::vector<float> values(400, 1);
  const auto open = [&](BufferWriteSpec spec) {
    spec.name = buffer.name;
    if (spec.total_bytes == 0) spec.total_bytes = 1600;
    return store_->OpenWrite(spec, kMe).status();
  };
  EXPECT_REFUSED(open({.all = false, .replica = devices()}), kOutOfRange, "BAD_REPLICA");
  EXPECT_REFUSED(open({.byte_offset = 8}), kOutOfRange, "BAD_RANGE");
  EXPECT_REFUSED(open({.byte_offset = ~uint64_t{7}, .total_bytes = 16}), kOutOfRange, "BAD_RANGE");
  EXPECT_REFUSED(store_->OpenWrite({.name = buffer.name}, kMe), kOutOfRange, "BAD_RANGE");
  EXPECT_REFUSED(open({.byte_offset = 4, .total_bytes = 8}), kInvalidArgument, "MISALIGNED");
  EXPECT_REFUSED(open({.byte_offset = 8, .total_bytes = 12}), kInvalidArgument, "MISALIGNED");
  EXPECT_REFUSED(open({.has_type = true, .scalar = Scalar::kI32, .lanes = 2}), kInvalidArgument, "TYPE_MISMATCH");
  EXPECT_REFUSED(open({.has_type = true, .scalar = Scalar::kF32, .lanes = 1}), kInvalidArgument, "TYPE_MISMATCH");
  EXPECT_REFUSED(open({.shape = {20, 10}}), kInvalidArgument, "SHAPE_MISMATCH");
  EXPECT_REFUSED(open({.shape = {10}}), kInvalidArgument, "SHAPE_MISMATCH");
  EXPECT_REFUSED(open({.if_version = 77}), kAborted, "VERSION");
  EXPECT_REFUSED(open({.lease_token = "no such token"}), kFailedPrecondition, "LEASE_LOST");
  EXPECT_REFUSED(store_->OpenWrite({.name = "buffers/none", .total_bytes = 8}, kMe), kNotFound, "NO_BUFFER");
  EXPECT_REFUSED(store_->OpenWrite({.name = "volumes/some", .total_bytes = 8}, kMe), kFailedPrecondition, "SEALED");
  // The stream itself.
  {
    auto writer = store_->OpenWrite({.name = buffer.name, .total_bytes = 16}, kMe).value();
    EXPECT_REFUSED(writer->Chunk({{reinterpret_cast<const char*>(values.data()), 24}}), kInvalidArgument, "PROTOCOL");
  }
  {
    auto writer = store_->OpenWrite({.name = buffer.name, .total_bytes = 1600}, kMe).value();
    const std::vector<char> huge(BufferStore::kMostChunk + 1);
    EXPECT_REFUSED(writer->Chunk({{huge.data(), huge.size()}}), kInvalidArgument, "PROTOCOL");
    ASSERT_THAT(writer->Chunk({{reinterpret_cast<const char*>(values.data()), 100}}), IsOk());
    EXPECT_REFUSED(writer->Finish(), kInvalidArgument, "SHORT_STREAM");
  }
  EXPECT_REFUSED(Write(buffer.name, values, {.has_crc = true, .crc32c = 1}), kDataLoss, "CHECKSUM");
  const BufferStatus now = store_->Get(buffer.name, kMe).value();
  EXPECT_EQ(now.state, BufferState::kReady);
  EXPECT_EQ(now.replicas[0].version, buffer.replicas[0].version);
  EXPECT_EQ(Read<float>({.name = buffer.name}).value(), std::vector<float>(400, 0)) << "none of them changed anything";
  EXPECT_THAT(Write(buffer.name, values, {.has_crc = true, .crc32c = Crc32c(values.data(), 1600, 0), .if_version = 1}), IsOk());
}

TEST_P(BufferStoreTest, ReadsAreCheckedAgainstTheBuffer) {
  const BufferStatus buffer = Make(Scalar::kF32, {4, 5, 6});
  EXPECT_REFUSED(Read<float>({.name = buffer.name, .which = BufferReadSpec::Which::kReplica, .replica = devices()}), kOutOfRange, "BAD_REPLICA");
  EXPECT_REFUSED(Read<float>({.name = buffer.name, .start = {4, 0, 0}}), kOutOfRange, "BAD_RANGE");
  EXPECT_REFUSED(Read<float>({.name = buffer.name, .start = {1, 0, 0}, .count = {4, 1, 1}}), kOutOfRange, "BAD_RANGE");
  EXPECT_REFUSED(Read<float>({.name = buffer.name, .count = {~uint64_t{0}, 1, 1}}), kOutOfRange, "BAD_RANGE");
  EXPECT_REFUSED(Read<float>({.name = buffer.name, .count = {0, 1, 1}}), kOutOfRange, "BAD_RANGE");
  EXPECT_REFUSED(Read<float>({.name = buffer.name, .start = {1}}), kOutOfRange, "BAD_RANGE");
  EXPECT_REFUSED(Read<float>({.name = buffer.name, .if_version = 9}), kAborted, "VERSION");
  EXPECT_REFUSED(Read<float>({.name = "volumes/none"}), kNotFound, "NO_VOLUME");
  const BufferStatus raw = Make(Scalar::kF32, {7}, 1, {}, true);
  EXPECT_EQ(raw.state, BufferState::kUninitialized);
  EXPECT_FALSE(raw.coherent);
  EXPECT_REFUSED(Read<float>({.name = raw.name}), kFailedPrecondition, "UNINITIALIZED");
  EXPECT_EQ(Read<float>({.name = raw.name, .allow_uninitialized = true}).value(), std::vector<float>(7, 0));
}

TEST_P(BufferStoreTest, BoxesAndRanges) {
  const BufferStatus buffer = Make(Scalar::kI32, {4, 5, 6});
  std::vector<int32_t> values(120);
  std::iota(values.begin(), values.end(), 0);
  ASSERT_THAT(Write(buffer.name, values), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto box, Read<int32_t>({.name = buffer.name, .start = {1, 2, 3}, .count = {2, 3, 2}}));
  size_t i = 0;
  for (int y = 1; y < 3; ++y) {
    for (int x = 2; x < 5; ++x) {
      for (int z = 3; z < 5; ++z) EXPECT_EQ(box[i++], (y * 5 + x) * 6 + z);
    }
  }
  ASSERT_THAT(Write(buffer.name, std::vector<int32_t>{-1, -2}, {.byte_offset = 40}), IsOk());
  values[10] = -1;
  values[11] = -2;
  EXPECT_EQ(Read<int32_t>({.name = buffer.name}).value(), values);
}

TEST_P(BufferStoreTest, VersionsTellReplicasApart) {
  if (devices() < 2) GTEST_SKIP() << "one device";
  const BufferStatus buffer = Make(Scalar::kF32, {100});
  const std::vector<float> ones(100, 1), twos(100, 2);
  ASSERT_OK_AND_ASSIGN(const BufferStatus all, Write(buffer.name, ones));
  ASSERT_OK_AND_ASSIGN(const BufferStatus one, Write(buffer.name, twos, {.all = false, .replica = 1}));
  EXPECT_FALSE(one.coherent);
  EXPECT_EQ(one.replicas[0].version, all.replicas[0].version);
  EXPECT_GT(one.replicas[1].version, all.replicas[1].version);
  EXPECT_REFUSED(Read<float>({.name = buffer.name}), kFailedPrecondition, "INCOHERENT");
  EXPECT_REFUSED(Read<float>({.name = buffer.name, .which = BufferReadSpec::Which::kStacked}), kFailedPrecondition, "INCOHERENT");
  EXPECT_REFUSED(store_->Apply({.input = buffer.name, .operations = {CopyOp{}}}, kMe), kFailedPrecondition, "INCOHERENT");
  EXPECT_EQ(Read<float>({.name = buffer.name, .allow_incoherent = true}).value(), twos) << "the newest";
  ASSERT_OK_AND_ASSIGN(const auto stacked, Read<float>({.name = buffer.name, .which = BufferReadSpec::Which::kStacked, .allow_incoherent = true}));
  for (size_t i = 0; i < stacked.size(); ++i) EXPECT_EQ(stacked[i], i / 100 == 1 ? 2 : 1);
  EXPECT_REFUSED(store_->Sync(buffer.name, devices(), {}, "", kMe), kOutOfRange, "BAD_REPLICA");
  EXPECT_REFUSED(store_->Sync(buffer.name, 0, {devices()}, "", kMe), kOutOfRange, "BAD_REPLICA");
  ASSERT_OK_AND_ASSIGN(const BufferStatus synced, store_->Sync(buffer.name, 1, {}, "", kMe));
  EXPECT_TRUE(synced.coherent);
  for (const auto& replica : synced.replicas) EXPECT_EQ(replica.version, one.replicas[1].version);
  for (uint32_t r = 0; r < devices(); ++r) {
    EXPECT_EQ(Read<float>({.name = buffer.name, .which = BufferReadSpec::Which::kReplica, .replica = r}).value(), twos);
  }
}

TEST_P(BufferStoreTest, ABroadcastIsTheSameOnEveryDevice) {
  // More than is staged whole: blocks are uploaded once and go from device to device.
  const size_t count = (20 << 20) / 4 + 12345;
  const BufferStatus buffer = Make(Scalar::kF32, {count});
  const std::vector<float> values = Random(count, 3);
  ASSERT_THAT(Write(buffer.name, values), IsOk());
  for (uint32_t r = 0; r < devices(); ++r) {
    ASSERT_TRUE(Read<float>({.name = buffer.name, .which = BufferReadSpec::Which::kReplica, .replica = r}).value() == values) << r;
  }
  const auto totals = store_->Count();
  EXPECT_EQ(totals.uploaded_bytes, static_cast<int64_t>(4 * count));
  EXPECT_EQ(totals.forwarded_bytes, static_cast<int64_t>(4 * count) * (devices() - 1));
}

TEST_P(BufferStoreTest, AWriteThatBreaksOffIsSeenAsSuch) {
  // T14: at each message. Short ones are all or nothing, long ones leave the old or PARTIAL, never a mixture that reads.
  for (const size_t mebibytes : {3, 18}) {
    const size_t count = (mebibytes << 20) / 4;
    const BufferStatus buffer = Make(Scalar::kF32, {count});
    const std::vector<float> old(count, 1), fresh(count, 2);
    for (size_t chunks = 0; chunks <= mebibytes; chunks += mebibytes > 16 ? 3 : 1) {
      ASSERT_THAT(Write(buffer.name, old), IsOk());
      const BufferStatus before = store_->Get(buffer.name, kMe).value();
      {
        auto writer = store_->OpenWrite({.name = buffer.name, .total_bytes = 4 * count}, kMe).value();
        for (size_t i = 0; i < chunks; ++i) {
          ASSERT_THAT(writer->Chunk({{reinterpret_cast<const char*>(fresh.data()) + (i << 20), 1 << 20}}), IsOk());
        }
        EXPECT_REFUSED(Read<float>({.name = buffer.name}), kAborted, "LEASED");
      }  // the client is gone
      const BufferStatus after = store_->Get(buffer.name, kMe).value();
      EXPECT_EQ(after.replicas[0].version, before.replicas[0].version);
      if (after.state == BufferState::kReady) {
        ASSERT_TRUE(Read<float>({.name = buffer.name}).value() == old) << chunks;
      } else {
        EXPECT_EQ(after.state, BufferState::kPartial);
        EXPECT_GT(mebibytes, 16u) << "short writes are all or nothing";
        EXPECT_REFUSED(Read<float>({.name = buffer.name}), kFailedPrecondition, "PARTIAL");
        EXPECT_REFUSED(store_->Apply({.input = buffer.name, .operations = {CopyOp{}}}, kMe), kFailedPrecondition, "PARTIAL");
        // A part does not make it whole.
        ASSERT_THAT(Write(buffer.name, std::vector<float>{5}), IsOk());
        EXPECT_REFUSED(Read<float>({.name = buffer.name}), kFailedPrecondition, "PARTIAL");
      }
    }
    ASSERT_THAT(Write(buffer.name, fresh), IsOk());
    ASSERT_TRUE(Read<float>({.name = buffer.name}).value() == fresh);
    ASSERT_THAT(store_->Destroy(buffer.name, "", "", kMe), IsOk());
  }
  if (devices() < 2) return;
  // One replica is whole: it makes the other so.
  const size_t count = 5 << 20;
  const BufferStatus buffer = Make(Scalar::kF32, {count}, 1, {0, 1});
  const std::vector<float> half(1 << 18, 2);
  {
    auto writer = store_->OpenWrite({.name = buffer.name, .all = false, .replica = 1, .total_bytes = 4 * count}, kMe).value();
    for (int i = 0; i < 8; ++i) ASSERT_THAT(writer->Chunk({{reinterpret_cast<const char*>(half.data()), 1 << 20}}), IsOk());
  }
  EXPECT_EQ(store_->Get(buffer.name, kMe)->state, BufferState::kPartial);
  EXPECT_REFUSED(store_->Sync(buffer.name, 1, {}, "", kMe), kFailedPrecondition, "PARTIAL");
  EXPECT_TRUE(store_->Sync(buffer.name, 0, {}, "", kMe)->coherent);
  ASSERT_TRUE(Read<float>({.name = buffer.name, .which = BufferReadSpec::Which::kReplica, .replica = 1}).value() == std::vector<float>(count, 0));
}

TEST_P(BufferStoreTest, LongReadsHoldTheBufferUntilTheyAreThroughOrTooSlow) {
  const size_t count = (20 << 20) / 4;
  const BufferStatus buffer = Make(Scalar::kF32, {count / 1024, 1024});
  const std::vector<float> values = Random(count, 4);
  ASSERT_THAT(Write(buffer.name, values), IsOk());
  ASSERT_TRUE(Read<float>({.name = buffer.name}, 64 << 10).value() == values);
  ASSERT_TRUE(Read<float>({.name = buffer.name}, 1000).value() == values) << "parts of rows";
  auto reader = store_->OpenRead({.name = buffer.name}, kMe).value();
  ASSERT_THAT(reader->Next(1 << 20), IsOk());
  EXPECT_EQ(store_->Get(buffer.name, kMe)->shared_leases, 1);
  EXPECT_REFUSED(Write(buffer.name, values), kAborted, "LEASED");
  EXPECT_REFUSED(store_->Destroy(buffer.name, "", "", kMe), kAborted, "LEASED");
  EXPECT_REFUSED(store_->Apply({.input = buffer.name, .operations = {FlipOp{}}, .output = buffer.name}, kMe), kAborted, "LEASED");
  EXPECT_TRUE(Read<float>({.name = buffer.name}).value() == values) << "readers share";
  clock_.Advance(31);
  store_->Housekeep();
  EXPECT_REFUSED(reader->Next(1 << 20), kAborted, "SLOW_READER");
  EXPECT_THAT(Write(buffer.name, values), IsOk());
}

TEST_P(BufferStoreTest, LeasesOfClients) {
  const BufferStatus buffer = Make(Scalar::kF32, {10});
  const std::vector<float> values(10, 3);
  const Lease exclusive = leases_.TryAcquire({.resource = buffer.name, .mode = LeaseMode::kExclusive, .holder = "you", .seconds = 10}).value();
  EXPECT_EQ(store_->Get(buffer.name, kMe)->exclusive_leases, 1);
  EXPECT_REFUSED(Write(buffer.name, values), kAborted, "LEASED");
  EXPECT_REFUSED(Read<float>({.name = buffer.name}), kAborted, "LEASED");
  EXPECT_REFUSED(store_->Sync(buffer.name, 0, {}, "", kMe), kAborted, "LEASED");
  EXPECT_REFUSED(store_->Apply({.input = buffer.name, .operations = {CopyOp{}}}, kMe), kAborted, "LEASED");
  EXPECT_THAT(Write(buffer.name, values, {.lease_token = exclusive.token, .lease_fence = exclusive.fence}), IsOk());
  EXPECT_REFUSED(Write(buffer.name, values, {.lease_token = exclusive.token, .lease_fence = exclusive.fence + 1}), kFailedPrecondition, "LEASE_LOST");
  EXPECT_EQ(Read<float>({.name = buffer.name, .lease_token = exclusive.token}).value(), values);
  EXPECT_THAT(store_->Apply(
                  {.input = buffer.name, .operations = {ScaleOp{.add = {1, 0}}}, .output = buffer.name, .output_lease_token = exclusive.token}, kMe),
              IsOk());
  clock_.Advance(11);  // it expires
  EXPECT_REFUSED(Write(buffer.name, values, {.lease_token = exclusive.token}), kFailedPrecondition, "LEASE_LOST");
  EXPECT_EQ(Read<float>({.name = buffer.name}).value(), std::vector<float>(10, 4));
  const Lease shared = leases_.TryAcquire({.resource = buffer.name, .mode = LeaseMode::kShared, .seconds = 10}).value();
  EXPECT_REFUSED(Write(buffer.name, values, {.lease_token = shared.token}), kFailedPrecondition, "LEASE_MODE");
  EXPECT_THAT(Read<float>({.name = buffer.name}), IsOk());
}

TEST_P(BufferStoreTest, NamesOwnersRequestsAndTombstones) {
  const BufferSpec spec{.scalar = Scalar::kU8, .shape = {4}, .request_id = "one", .request_digest = "a"};
  const BufferStatus first = store_->Create(spec, kMe).value();
  EXPECT_EQ(store_->Create(spec, kMe)->name, first.name) << "a retry";
  BufferSpec other = spec;
  other.request_digest = "b";
  EXPECT_REFUSED(store_->Create(other, kMe), kAlreadyExists, "IDEMPOTENCY_MISMATCH");
  EXPECT_EQ(store_->List(kMe).size(), 1u);

  const Caller owner{.client = "owner", .key = "the key of the owner"};
  const BufferStatus mine = store_->Create({.scalar = Scalar::kU8, .shape = {4}, .is_private = true}, owner).value();
  EXPECT_REFUSED(store_->Get(mine.name, kMe), kPermissionDenied, "NOT_OWNER");
  EXPECT_REFUSED(Write(mine.name, std::vector<uint8_t>(4)), kPermissionDenied, "NOT_OWNER");
  EXPECT_REFUSED(Read<uint8_t>({.name = mine.name}), kPermissionDenied, "NOT_OWNER");
  EXPECT_REFUSED(store_->Destroy(mine.name, "", "", kMe), kPermissionDenied, "NOT_OWNER");
  EXPECT_REFUSED(store_->Apply({.input = mine.name, .operations = {CopyOp{}}}, kMe), kPermissionDenied, "NOT_OWNER");
  EXPECT_EQ(store_->List(kMe).size(), 1u);
  EXPECT_EQ(store_->List(owner).size(), 2u);

  ASSERT_OK_AND_ASSIGN(const BufferStatus changed,
                       store_->Change({.name = first.name, .etag = first.etag, .set_labels = true, .labels = {{"a", "b"}}}, kMe));
  EXPECT_EQ(changed.labels.at("a"), "b");
  EXPECT_REFUSED(store_->Change({.name = first.name, .etag = first.etag, .set_labels = true}, kMe), kAborted, "VERSION");
  EXPECT_REFUSED(store_->Destroy(first.name, first.etag, "", kMe), kAborted, "VERSION");
  EXPECT_THAT(store_->Destroy(first.name, changed.etag, "", kMe), IsOk());
  EXPECT_REFUSED(store_->Get(first.name, kMe), kNotFound, "NO_BUFFER");
  EXPECT_THAT(store_->Get(first.name, kMe), IsError(absl::StatusCode::kNotFound, "destroyed by a client"));
  clock_.Advance(601);
  store_->Housekeep();
  EXPECT_THAT(store_->Get(first.name, kMe), IsError(absl::StatusCode::kNotFound, "no buffer"));
  draining_ = true;
  EXPECT_REFUSED(store_->Create({.scalar = Scalar::kU8, .shape = {4}}, kMe), kUnavailable, "DRAINING");
  EXPECT_REFUSED(store_->Apply({.input = mine.name, .operations = {CopyOp{}}}, owner), kUnavailable, "DRAINING");
}

TEST_P(BufferStoreTest, TimeToLiveEndsAfterAWarning) {
  std::vector<std::pair<BufferEventKind, std::string>> told;
  Mutex mutex;
  const auto watch = store_->Watch(kMe, [&](BufferEventKind kind, const BufferStatus& status, const std::string&) {
    MutexLock lock(mutex);
    told.emplace_back(kind, status.name);
  });
  const BufferStatus buffer = store_->Create({.scalar = Scalar::kF32, .shape = {4}, .ttl_seconds = 100}, kMe).value();
  clock_.Advance(30);
  ASSERT_THAT(Write(buffer.name, std::vector<float>(4)), IsOk());  // that begins it anew
  clock_.Advance(60);
  store_->Housekeep();
  EXPECT_NEAR(store_->Get(buffer.name, kMe)->expires_seconds, 40, 1e-6);
  clock_.Advance(41);
  store_->Housekeep();
  EXPECT_THAT(store_->Get(buffer.name, kMe), IsError(absl::StatusCode::kNotFound, "time to live"));
  MutexLock lock(mutex);
  ASSERT_EQ(told.size(), 4u);
  EXPECT_EQ(told[0].first, BufferEventKind::kCreated);
  EXPECT_EQ(told[1].first, BufferEventKind::kChanged);
  EXPECT_EQ(told[2].first, BufferEventKind::kExpiring);
  EXPECT_EQ(told[3].first, BufferEventKind::kGone);
}

TEST_P(BufferStoreTest, ADeviceThatFailsTakesItsReplicasAlong) {
  const BufferStatus buffer = Make(Scalar::kF32, {10});
  devices_.back()->broken = true;
  const BufferStatus now = store_->Get(buffer.name, kMe).value();
  EXPECT_EQ(now.state, BufferState::kLost);
  const uint32_t last = devices() - 1;
  EXPECT_REFUSED(Read<float>({.name = buffer.name, .which = BufferReadSpec::Which::kReplica, .replica = last}), kDataLoss, "LOST");
  EXPECT_REFUSED(Write(buffer.name, std::vector<float>(10)), kDataLoss, "LOST");
  EXPECT_REFUSED(store_->Create({.scalar = Scalar::kF32, .shape = {10}}, kMe), kUnavailable, "DEVICE_DOWN");
  if (devices() > 1) EXPECT_THAT(Read<float>({.name = buffer.name, .which = BufferReadSpec::Which::kReplica, .replica = 0}), IsOk());
  devices_.back()->broken = false;
}

TEST_P(BufferStoreTest, OperationsMakeNewBuffersOrFillOldOnes) {
  const BufferStatus buffer = Make(Scalar::kF32, {30, 40});
  const std::vector<float> values = Random(1200, 5);
  ASSERT_THAT(Write(buffer.name, values), IsOk());
  ASSERT_OK_AND_ASSIGN(const BufferStatus sums,
                       store_->Apply({.input = buffer.name, .operations = {ReduceOp{.axes = {1}}}, .labels = {{"what", "sums"}}}, kMe));
  EXPECT_EQ(sums.type, (ArrayType{.scalar = Scalar::kF32, .dims = {30}}));
  EXPECT_EQ(sums.origin, buffer.name);
  EXPECT_EQ(sums.replicas.size(), devices());
  EXPECT_TRUE(sums.coherent);
  for (uint32_t r = 0; r < devices(); ++r) {
    ASSERT_OK_AND_ASSIGN(const auto got, Read<float>({.name = sums.name, .which = BufferReadSpec::Which::kReplica, .replica = r}));
    for (size_t i = 0; i < 30; ++i) {
      double sum = 0;
      for (size_t j = 0; j < 40; ++j) sum += static_cast<double>(values[i * 40 + j]);
      EXPECT_NEAR(got[i], sum, 1e-5);
    }
  }
  // Into an existing one, also itself, and with a second array.
  EXPECT_REFUSED(store_->Apply({.input = buffer.name, .operations = {CopyOp{}}, .output = sums.name}, kMe), kInvalidArgument, "SHAPE_MISMATCH");
  EXPECT_REFUSED(store_->Apply({.input = buffer.name, .operations = {ScaleOp{.scalar = Scalar::kU8}}, .output = buffer.name}, kMe), kInvalidArgument,
                 "TYPE_MISMATCH");
  EXPECT_REFUSED(store_->Apply({.input = buffer.name, .operations = {CropOp{.start = {99, 0}}}}, kMe), kInvalidArgument, "BAD_FIELD");
  EXPECT_REFUSED(store_->Apply({.input = buffer.name, .operations = {CopyOp{}}, .output = "volumes/x"}, kMe), kFailedPrecondition, "SEALED");
  EXPECT_REFUSED(store_->Apply({.input = "buffers/none", .operations = {CopyOp{}}}, kMe), kNotFound, "NO_BUFFER");
  const BufferStatus raw = Make(Scalar::kF32, {3}, 1, {}, true);
  EXPECT_REFUSED(store_->Apply({.input = raw.name, .operations = {CopyOp{}}}, kMe), kFailedPrecondition, "UNINITIALIZED");
  ASSERT_THAT(store_->Apply({.input = buffer.name, .operations = {FlipOp{}}, .output = buffer.name}, kMe), IsOk());
  std::vector<float> flipped(values.rbegin(), values.rend());
  EXPECT_EQ(Read<float>({.name = buffer.name}).value(), flipped);
  ASSERT_THAT(
      store_->Apply({.input = buffer.name, .operations = {CombineOp{.kind = Combination::kSubtract}}, .others = {buffer.name}, .output = buffer.name},
                    kMe),
      IsOk());
  EXPECT_EQ(Read<float>({.name = buffer.name}).value(), std::vector<float>(1200, 0));
  // A retry is not run again.
  const BufferApplySpec once{
      .input = buffer.name, .operations = {ScaleOp{.add = {1, 0}}}, .output = buffer.name, .request_id = "once", .request_digest = "x"};
  ASSERT_THAT(store_->Apply(once, kMe), IsOk());
  ASSERT_THAT(store_->Apply(once, kMe), IsOk());
  EXPECT_EQ(Read<float>({.name = buffer.name}).value(), std::vector<float>(1200, 1));
  if (devices() < 2) return;
  // The output is elsewhere too: computed where the input is, forwarded to the rest.
  const BufferStatus here = Make(Scalar::kF32, {10}, 1, {1}), everywhere = Make(Scalar::kF32, {10}), there = Make(Scalar::kF32, {10}, 1, {0});
  ASSERT_THAT(store_->Apply({.input = here.name, .operations = {FillOp{.value = {7, 0}}}, .output = everywhere.name}, kMe), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto stacked, Read<float>({.name = everywhere.name, .which = BufferReadSpec::Which::kStacked}));
  EXPECT_EQ(stacked, std::vector<float>(10 * devices(), 7));
  EXPECT_REFUSED(store_->Apply({.input = here.name, .operations = {CopyOp{}}, .output = there.name}, kMe), kInvalidArgument, "BAD_PLACEMENT");
}

TEST_P(BufferStoreTest, ReductionsOfManyElements) {
  const size_t count = 300'000;
  const std::vector<float> values = Random(count, 6);
  const BufferStatus buffer = Make(Scalar::kF32, {count / 2}, 2);
  ASSERT_THAT(Write(buffer.name, values), IsOk());
  const std::string sums = store_->Apply({.input = buffer.name, .operations = {ReduceOp{}}}, kMe)->name;
  ASSERT_OK_AND_ASSIGN(const auto got, Read<float>({.name = sums}));
  ASSERT_EQ(got.size(), 2u) << "a sum a lane";
  for (size_t lane = 0; lane < 2; ++lane) {
    double sum = 0;
    for (size_t i = lane; i < count; i += 2) sum += static_cast<double>(values[i]);
    EXPECT_NEAR(got[lane], sum, 1e-3);
  }
}

TEST_P(BufferStoreTest, WaitTellsWhenTheWorkIsThrough) {
  const BufferStatus buffer = Make(Scalar::kF32, {1 << 20});
  for (int i = 0; i < 20; ++i)
    ASSERT_THAT(store_->Apply({.input = buffer.name, .operations = {ScaleOp{.add = {1, 0}}}, .output = buffer.name}, kMe), IsOk());
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
  EXPECT_REFUSED(store_->Wait("buffers/none", kMe, [](absl::StatusOr<BufferStatus>) { ADD_FAILURE(); }), kNotFound, "NO_BUFFER");
}

TEST_P(BufferStoreTest, WhatRunsKeepsItsMemory) {
  // Destroyed while work is under way: the work goes on, the memory comes back after it.
  for (int i = 0; i < 30; ++i) {
    const BufferStatus buffer = Make(Scalar::kF32, {100'000});
    const std::string out =
        store_->Apply({.input = buffer.name, .operations = {ScaleOp{.add = {5, 0}}, FlipOp{}, ScaleOp{.multiply = {2, 0}}}}, kMe)->name;
    ASSERT_THAT(store_->Destroy(buffer.name, "", "", kMe), IsOk());
    const BufferStatus next = Make(Scalar::kF32, {100'000});  // may get the same memory, but not before
    ASSERT_THAT(Write(next.name, std::vector<float>(100'000, -1)), IsOk());
    ASSERT_TRUE(Read<float>({.name = out}).value() == std::vector<float>(100'000, 10));
    ASSERT_THAT(store_->Destroy(next.name, "", "", kMe), IsOk());
    ASSERT_THAT(store_->Destroy(out, "", "", kMe), IsOk());
  }
}

TEST_P(BufferStoreTest, RandomProgramsOfFourClientsEqualTheirReplay) {
  // T1: buffers of 500 to 2500 numbers; programs are chains of constants; the input may be the output; nobody waits for anything.
  for (uint32_t round = 0; round < 8; ++round) {
    const uint32_t seed = testing::FreshSeed();
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const size_t count = 500 + random() % 2001, buffers = 10 + random() % 15, programs = 10 + random() % 41, dispatches = 50 + random() % 200;
    std::vector<std::string> names;
    std::vector<std::vector<float>> model;
    for (size_t i = 0; i < buffers; ++i) {
      names.push_back(Make(Scalar::kF32, {count}).name);
      model.push_back(Random(count, seed + static_cast<uint32_t>(i)));
      ASSERT_THAT(Write(names.back(), model.back()), IsOk());
    }
    std::vector<std::vector<float>> constants(programs);
    for (auto& program : constants) {
      for (size_t n = 1 + random() % 5; n > 0; --n) program.push_back(static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 100);
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
          Dispatch d{.sequence = 0, .in = own() % buffers, .out = own() % buffers, .program = own() % programs};
          BufferApplySpec spec{.input = names[d.in], .output = names[d.out]};
          for (const float k : constants[d.program]) spec.operations.push_back(ScaleOp{.add = {static_cast<double>(k), 0}});
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
    std::sort(all.begin(), all.end(), [](const Dispatch& a, const Dispatch& b) { return a.sequence < b.sequence; });
    for (const Dispatch& d : all) {
      std::vector<float> values = model[d.in];
      for (const float k : constants[d.program]) {
        for (float& v : values) v += k;
      }
      model[d.out] = std::move(values);
    }
    for (size_t i = 0; i < buffers; ++i) {
      for (uint32_t r = 0; r < devices(); ++r) {
        ASSERT_OK_AND_ASSIGN(const auto got, Read<float>({.name = names[i], .which = BufferReadSpec::Which::kReplica, .replica = r}));
        for (size_t j = 0; j < count; ++j) ASSERT_NEAR(got[j], model[i][j], 1e-3) << "buffer " << i << " replica " << r << " at " << j;
      }
      ASSERT_THAT(store_->Destroy(names[i], "", "", kMe), IsOk());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, BufferStoreTest, ::testing::ValuesIn(octavo::testing::AvailableBackends()), octavo::testing::BackendName);

}  // namespace
}  // namespace octavo::engine
