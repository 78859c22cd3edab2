#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>

#include "gpu/base/mutex.h"
#include "gpu/base/status.h"
#include "gpu/spectral/spectral.h"
#include "tests/support/device/forwarding_device.h"

namespace octavo::testing {

struct UnrulyOptions {
  uint64_t seed = 1;
  int64_t longest_delay_ns = 0;  // before uploads, chain calls and downloads, at random
  int64_t upload_delay_ns = 0;   // before each upload, in addition
  int64_t failing_fill = -1;     // index of the fill that fails, from 0; < 0 = none
  int64_t failing_digest = -1;   // the same for digests of whole arrays
};

/// A device that forwards all calls to another one, with delays: it delays the streams before
/// uploads, chain calls and downloads. Its memory is filled with 0xA5 and has a guard of 4 KiB
/// behind its end; the device checks the guard when the memory is freed. The other device must
/// outlive it.
class UnrulyDevice final : public ForwardingDevice {
 public:
  UnrulyDevice(Device& inner, UnrulyOptions options)
      : ForwardingDevice(inner),
        options_(options),
        random_(options.seed),
        spectral_(*this),
        guarded_(std::make_shared<Guarded>(inner)) {}

  int64_t delays() const { return delays_; }
  int64_t guards_broken() const { return guarded_->broken; }

  absl::StatusOr<DeviceBuffer> Allocate(int64_t bytes) override {
    return guarded_->Allocate(bytes);
  }
  absl::StatusOr<PinnedBuffer> AllocatePinned(int64_t bytes) override {
    auto memory = inner_.AllocatePinned(bytes);
    if (memory.ok()) std::memset(memory->data(), 0xA5, static_cast<size_t>(bytes));
    return memory;
  }
  absl::Status CopyToDevice(StreamRef stream, void* dst, const void* src, int64_t bytes) override {
    if (options_.upload_delay_ns > 0)
      OCTAVO_RETURN_IF_ERROR(inner_.Delay(stream, options_.upload_delay_ns));
    OCTAVO_RETURN_IF_ERROR(HoldUp(stream));
    return inner_.CopyToDevice(stream, dst, src, bytes);
  }
  absl::Status CopyToHost(StreamRef stream, void* dst, const void* src, int64_t bytes) override {
    OCTAVO_RETURN_IF_ERROR(HoldUp(stream));
    return inner_.CopyToHost(stream, dst, src, bytes);
  }
  absl::Status CopyAcross(StreamRef stream, void* dst, const void* src, int64_t bytes) override {
    OCTAVO_RETURN_IF_ERROR(HoldUp(stream));
    return inner_.CopyAcross(stream, dst, src, bytes);
  }
  absl::Status CopyBoxToHost(StreamRef stream, void* dst, const void* src, const int64_t shape[3],
                             int64_t element_bytes, const Box3& box) override {
    OCTAVO_RETURN_IF_ERROR(HoldUp(stream));
    return inner_.CopyBoxToHost(stream, dst, src, shape, element_bytes, box);
  }
  absl::Status Fill(StreamRef stream, void* dst, int64_t bytes, uint32_t pattern) override {
    if (fills_++ == options_.failing_fill)
      return absl::UnavailableError("this fill fails, says the test");
    return inner_.Fill(stream, dst, bytes, pattern);
  }
  absl::Status Digest(StreamRef stream, DeviceSpan<const uint8_t> src,
                      DeviceSpan<uint64_t> out) override {
    if (digests_++ == options_.failing_digest)
      return absl::UnavailableError("this digest fails, says the test");
    OCTAVO_RETURN_IF_ERROR(HoldUp(stream));
    return inner_.Digest(stream, src, out);
  }
  absl::Status DigestOfPart(StreamRef stream, DeviceSpan<const uint8_t> src,
                            const DigestPlace& place, DeviceSpan<uint64_t> out) override {
    OCTAVO_RETURN_IF_ERROR(HoldUp(stream));
    return inner_.DigestOfPart(stream, src, place, out);
  }
  Operators* FindOperators(const OperatorFamily& family) override {
    if (&family == &SpectralOps::kFamily) return &spectral_;
    return inner_.FindOperators(family);
  }

 private:
  /// Memory with a guard behind it.
  class Guarded final : public MemorySource, public std::enable_shared_from_this<Guarded> {
   public:
    static constexpr int64_t kGuard = 4096;
    explicit Guarded(Device& device)
        : device_(device), stream_(device.NewStream(StreamPriority::kNormal).value()) {}
    absl::StatusOr<DeviceBuffer> Allocate(int64_t bytes) {
      auto buffer = device_.Allocate(bytes + kGuard);
      if (!buffer.ok()) return buffer.status();
      OCTAVO_RETURN_IF_ERROR(
          device_.Fill(stream_.ref(), buffer->data(), bytes + kGuard, 0xA5A5A5A5u));
      OCTAVO_RETURN_IF_ERROR(stream_.ref().Synchronize());
      void* const data = buffer->data();
      MutexLock lock(mutex_);
      buffers_[data] = *std::move(buffer);
      return DeviceBuffer(shared_from_this(), data, bytes);
    }
    void Release(void* data, int64_t bytes) override {
      DeviceBuffer buffer;
      {
        MutexLock lock(mutex_);
        buffer = std::move(buffers_[data]);
        buffers_.erase(data);
      }
      MutexLock lock(reading_);
      uint8_t guard[kGuard];
      if (!device_.CopyToHost(stream_.ref(), guard, static_cast<uint8_t*>(data) + bytes, kGuard)
               .ok() ||
          !stream_.ref().Synchronize().ok())
        return;
      for (const uint8_t byte : guard) {
        if (byte == 0xA5) continue;
        ++broken;
        return;
      }
    }
    std::atomic<int64_t> broken{0};

   private:
    Device& device_;
    const Stream stream_;
    Mutex mutex_, reading_;
    std::map<void*, DeviceBuffer> buffers_ ABSL_GUARDED_BY(mutex_);
  };

  class Plan final : public SpectralPlan {
   public:
    Plan(UnrulyDevice& device, std::unique_ptr<SpectralPlan> inner)
        : device_(device), inner_(std::move(inner)) {}
    absl::Status SumRecords(StreamRef stream, const void* raw, std::span<const SumPiece> pieces,
                            const SumRing& ring) override {
      OCTAVO_RETURN_IF_ERROR(device_.HoldUp(stream));
      return inner_->SumRecords(stream, raw, pieces, ring);
    }
    absl::Status MakeBackgrounds(StreamRef stream, std::span<const MeanOfSums> means,
                                 const SumRing& ring) override {
      OCTAVO_RETURN_IF_ERROR(device_.HoldUp(stream));
      return inner_->MakeBackgrounds(stream, means, ring);
    }
    absl::Status CountNonFinite(StreamRef stream, DeviceSpan<const float> raw,
                                DeviceSpan<uint64_t> count) override {
      OCTAVO_RETURN_IF_ERROR(device_.HoldUp(stream));
      return inner_->CountNonFinite(stream, raw, count);
    }
    absl::Status Process(StreamRef stream, const void* raw, const RecordRuns& runs,
                         const RecordPlacement& placement, const SpectralTarget& target,
                         const RepeatSums& sums) override {
      OCTAVO_RETURN_IF_ERROR(device_.HoldUp(stream));
      return inner_->Process(stream, raw, runs, placement, target, sums);
    }
    bool pairs() const override { return inner_->pairs(); }
    int64_t device_bytes() const override { return inner_->device_bytes(); }
    std::string description() const override { return inner_->description(); }

   private:
    UnrulyDevice& device_;
    const std::unique_ptr<SpectralPlan> inner_;
  };
  class Spectral final : public SpectralOps {
   public:
    explicit Spectral(UnrulyDevice& device) : device_(device) {}
    absl::StatusOr<std::unique_ptr<SpectralPlan>> CreatePlan(
        const SpectralConfig& config) override {
      auto plan = Inner().CreatePlan(config);
      if (!plan.ok()) return plan.status();
      return std::make_unique<Plan>(device_, *std::move(plan));
    }
    int64_t PlanBytes(const SpectralConfig& config) override { return Inner().PlanBytes(config); }

   private:
    SpectralOps& Inner() { return *octavo::FindOperators<SpectralOps>(device_.inner_).value(); }
    UnrulyDevice& device_;
  };

  absl::Status HoldUp(StreamRef stream) {
    if (options_.longest_delay_ns == 0) return absl::OkStatus();
    int64_t ns = 0;
    {
      MutexLock lock(mutex_);
      if (random_() % 2 == 0) return absl::OkStatus();
      ns = static_cast<int64_t>(random_() % static_cast<uint64_t>(options_.longest_delay_ns));
    }
    ++delays_;
    return inner_.Delay(stream, ns);
  }

  const UnrulyOptions options_;
  Mutex mutex_;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int64_t> delays_{0}, fills_{0}, digests_{0};
  Spectral spectral_;
  const std::shared_ptr<Guarded> guarded_;
};

}  // namespace octavo::testing
