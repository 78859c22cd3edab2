#pragma once

// A store of buffers without an engine: three devices on the host, or all GPUs of the machine.

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "gpu/backend/open_devices.h"
#include "gpu/base/status.h"
#include "gpu/device/importable_memory.h"
#include "server/buffer/buffer_store.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/device/forwarding_device.h"
#include "tests/support/fake_clock.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine::testing {

inline constexpr int64_t kBudget = int64_t{256} << 20;
inline const Caller kMe{.client = "me", .key = ""};

/// A device that fails on command.
class FragileDevice final : public octavo::testing::ForwardingDevice, public ImportableMemory {
 public:
  explicit FragileDevice(std::unique_ptr<Device> real)
      : ForwardingDevice(*real), real_(std::move(real)) {}
  std::atomic<bool> broken{false};
  std::atomic<int> allocations_left{1 << 30};
  std::function<void()> on_allocation;  // the next allocation calls it, once
  std::vector<StreamRef> streams;       // that were made, by one thread at a time
  Device& real() { return *real_; }
  absl::StatusOr<Stream> NewStream(StreamPriority priority) override {
    auto stream = inner_.NewStream(priority);
    if (stream.ok()) streams.push_back(stream->ref());
    return stream;
  }
  absl::StatusOr<DeviceBuffer> Import(const UniqueFd& descriptor, int64_t bytes) override {
    return ImportableOf(*real_)->Import(descriptor, bytes);
  }
  int64_t ImportGranule() const override { return ImportableOf(*real_)->ImportGranule(); }
  absl::Status Health() override {
    return broken ? absl::UnavailableError("broken by the test") : inner_.Health();
  }
  absl::StatusOr<DeviceBuffer> Allocate(int64_t bytes) override {
    if (--allocations_left < 0) return absl::ResourceExhaustedError("none left, says the test");
    if (const auto call = std::exchange(on_allocation, nullptr)) call();
    return inner_.Allocate(bytes);
  }

 private:
  const std::unique_ptr<Device> real_;
};

class BufferStoreTest : public ::testing::TestWithParam<std::string> {
 protected:
  BufferStoreTest() {
    for (int i = 0; i < 3; ++i) {
      auto opened = OpenDevices(GetParam()).value();
      for (auto& device : opened.devices)
        devices_.push_back(std::make_unique<FragileDevice>(std::move(device)));
      if (GetParam() != "host") break;
    }
    std::vector<Device*> devices;
    for (const auto& device : devices_) {
      devices.push_back(device.get());
      frames_.push_back(std::make_shared<FramePool>(device.get(), int64_t{128} << 20));
    }
    ledger_ = std::make_unique<Ledger>(std::vector<int64_t>(devices.size(), kBudget));
    volumes_ = std::make_unique<VolumeStore>(ledger_.get(), &clock_);
    exports_ = std::make_unique<ExportStore>(ExportStore::Context{.devices = devices,
                                                                  .ledger = ledger_.get(),
                                                                  .volumes = volumes_.get(),
                                                                  .clock = &clock_,
                                                                  .server_id = "testtest"});
    context_ = {.devices = devices,
                .ledger = ledger_.get(),
                .volumes = volumes_.get(),
                .leases = &leases_,
                .clock = &clock_,
                .exports = exports_.get(),
                .frames = frames_,
                .server_id = "testtest",
                .quota_bytes = int64_t{300} << 20,
                .handoff = nullptr,
                .sessions = nullptr,
                .import_limits = {}};
    store_ = std::make_unique<BufferStore>(context_);
  }
  ~BufferStoreTest() override {
    store_ = nullptr;
    for (int d = 0; d < ledger_->devices(); ++d)
      EXPECT_EQ(ledger_->UseOf(d).free(), kBudget)
          << "device " << d << " did not get its memory back";
  }

  uint32_t devices() const { return static_cast<uint32_t>(devices_.size()); }
  BufferStatus Make(Scalar scalar, std::vector<uint64_t> shape, uint64_t lanes = 1,
                    std::vector<uint32_t> places = {}, bool uninitialized = false) {
    return store_
        ->Create({.scalar = scalar,
                  .lanes = lanes,
                  .shape = std::move(shape),
                  .devices = std::move(places),
                  .uninitialized = uninitialized},
                 kMe)
        .value();
  }
  template <class T>
  absl::StatusOr<BufferStatus> Write(const std::string& name, const std::vector<T>& values,
                                     BufferWriteSpec spec = {}) {
    spec.name = name;
    spec.total_bytes = values.size() * sizeof(T);
    auto writer = store_->OpenWrite(spec, kMe);
    if (!writer.ok()) return writer.status();
    const auto* data = reinterpret_cast<const char*>(values.data());
    for (size_t at = 0; at < spec.total_bytes; at += BufferWriter::kMostChunk) {
      const absl::Status status = (*writer)->Chunk(
          {{data + at, std::min<size_t>(BufferWriter::kMostChunk, spec.total_bytes - at)}});
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
      std::memcpy(reinterpret_cast<char*>(values.data()) + at, piece->data,
                  static_cast<size_t>(piece->size));
      at += piece->size;
    }
    EXPECT_EQ(at, (*reader)->total_bytes());
    return values;
  }
  /// Makes a buffer on one device, and the arguments of Relocate for it.
  std::pair<std::string, ExportStore::Overdue> MakeMovable(std::vector<uint64_t> shape) {
    const Ledger::ChargeId before =
        ledger_
            ->Reserve(0, "test", "", {{.kind = model::NeedKind::kResult, .bytes = 1, .count = 1}},
                      nullptr)
            .value()[0];
    const std::string name = Make(Scalar::kF32, std::move(shape), 1, {0}).name;
    ledger_->Release(before);
    return {name,
            {.of = name, .replica = 0, .charge = before + 1}};  // charges are numbered in order
  }
  static std::vector<float> Random(size_t n, uint32_t seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> values(-1, 1);
    std::vector<float> out(n);
    for (float& v : out) v = values(random);
    return out;
  }
  static std::string Reason(const absl::Status& status) {
    return std::string(Name(ReasonOrCode(status)));
  }

  octavo::testing::FakeClock clock_;
  std::vector<std::unique_ptr<FragileDevice>> devices_;
  std::vector<std::shared_ptr<FramePool>> frames_;
  LeaseTable leases_{&clock_};
  std::unique_ptr<Ledger> ledger_;
  std::unique_ptr<VolumeStore> volumes_;
  std::unique_ptr<ExportStore> exports_;
  BufferStore::Context context_;
  std::unique_ptr<BufferStore> store_;
};

#define EXPECT_REFUSED(result, wanted_code, wanted_reason)                 \
  do {                                                                     \
    const absl::Status refused_ = octavo::testing::StatusOf(result);       \
    EXPECT_EQ(refused_.code(), absl::StatusCode::wanted_code) << refused_; \
    EXPECT_EQ(Reason(refused_), wanted_reason) << refused_;                \
  } while (false)

}  // namespace octavo::engine::testing
