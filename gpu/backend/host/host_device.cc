#include "gpu/backend/host/host_device.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tbb/blocked_range.h"
#include "tbb/info.h"
#include "tbb/parallel_for.h"
#include "tbb/parallel_reduce.h"

#include "gpu/backend/host/host_operators.h"
#include "gpu/base/allocation_fault.h"
#include "gpu/base/clock.h"
#include "gpu/base/memory_limit.h"
#include "gpu/base/status.h"
#include "gpu/device/alignment.h"
#include "gpu/device/digest.h"
#include "gpu/device/exportable_memory.h"
#include "gpu/device/host/fft.h"
#include "gpu/device/host/host_stream.h"
#include "gpu/device/host/lent_file.h"
#include "gpu/device/host/memory_file.h"
#include "gpu/device/host_digest.h"
#include "gpu/device/importable_memory.h"
#include "gpu/device/operators.h"

namespace octavo::inline gpu::host {
namespace {

constexpr size_t kHugePage = 2 << 20;
constexpr int64_t kLongestDelayNs = 1'000'000'000;

class HostMemory final : public MemorySource {
 public:
  void Release(void* data, int64_t) override { std::free(data); }
};

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "model name")) return line.substr(line.find(':') + 2);
  }
  return "CPU";
}

std::string MachineId(int index) {
  std::ifstream file("/etc/machine-id");
  std::string id;
  file >> id;
  const std::string host = id.empty() ? "host-0" : absl::StrCat("host-", id.substr(0, 12));
  return index == 0 ? host : absl::StrCat(host, "-", index);
}

class HostDevice final : public Device, public ExportableMemory, public ImportableMemory {
 public:
  HostDevice(int index, int shares, bool leaves_cores)
      : shares_(shares),
        most_threads_(leaves_cores ? std::max(1, static_cast<int>(kMostOfCores *
                                                                  tbb::info::default_concurrency()))
                                   : 0),
        memory_(std::make_shared<HostMemory>()) {
    const std::string share = leaves_cores ? absl::StrCat(most_threads_, " of ") : "";
    info_ = {.index = index,
             .backend = "host",
             .model = absl::StrCat(CpuModel(), ", ", SimdTargetName(), ", ", share,
                                   std::thread::hardware_concurrency(), " cores"),
             .uuid = MachineId(index),
             .total_bytes = ReadMemoryLimit().total_bytes / shares};
  }

  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<DeviceMemory> Memory() override {
    OCTAVO_RETURN_IF_ERROR(health_->Check());
    return DeviceMemory{.total_bytes = info_.total_bytes,
                        .free_bytes = ReadMemoryLimit().available_bytes / shares_};
  }
  absl::Status Health() override { return health_->Check(); }
  absl::StatusOr<Stream> NewStream(StreamPriority) override {
    OCTAVO_RETURN_IF_ERROR(health_->Check());
    return Stream(std::make_unique<HostStream>(health_, most_threads_));
  }
  absl::StatusOr<Event> NewEvent() override {
    OCTAVO_RETURN_IF_ERROR(health_->Check());
    return Event(std::make_unique<HostEvent>(health_));
  }

  absl::StatusOr<DeviceBuffer> Allocate(int64_t bytes) override {
    OCTAVO_RETURN_IF_ERROR(health_->Check());
    OCTAVO_ASSIGN_OR_RETURN(void* data, Aligned(bytes));
    return DeviceBuffer(memory_, data, bytes);
  }
  absl::StatusOr<DeviceBuffer> AllocateExportable(int64_t bytes) override {
    OCTAVO_RETURN_IF_ERROR(health_->Check());
    return MemoryFiles::Allocate(files_, RoundUp(bytes, ClientMemory::kGranule));
  }
  absl::StatusOr<SharedMemory> Share(const DeviceBuffer& memory) override {
    return files_->Share(memory);
  }
  absl::StatusOr<DeviceBuffer> Import(const UniqueFd& descriptor, int64_t bytes) override {
    OCTAVO_RETURN_IF_ERROR(health_->Check());
    return MapLentFile(descriptor, bytes);
  }
  int64_t ImportGranule() const override { return 1; }
  absl::StatusOr<PinnedBuffer> AllocatePinned(int64_t bytes) override {
    OCTAVO_ASSIGN_OR_RETURN(void* data, Aligned(bytes));
    return PinnedBuffer(memory_, data, bytes);
  }

  absl::Status CopyToDevice(StreamRef stream, void* dst, const void* src, int64_t bytes) override {
    return Copy(stream, dst, src, bytes);
  }
  absl::Status CopyToHost(StreamRef stream, void* dst, const void* src, int64_t bytes) override {
    return Copy(stream, dst, src, bytes);
  }
  absl::Status CopyOnDevice(StreamRef stream, void* dst, const void* src, int64_t bytes) override {
    return Copy(stream, dst, src, bytes);
  }
  absl::Status CopyAcross(StreamRef stream, void* dst, const void* src, int64_t bytes) override {
    return Copy(stream, dst, src, bytes);
  }

  absl::Status CopyBoxToHost(StreamRef stream, void* dst, const void* src, const int64_t shape[3],
                             int64_t element_bytes, const Box3& box) override {
    OCTAVO_RETURN_IF_ERROR(health_->Check());
    const int64_t row = shape[2] * element_bytes, plane = shape[1] * row;
    return Enqueue(stream, [=] {
      const size_t count = static_cast<size_t>(box.count[2] * element_bytes);
      auto* out = static_cast<char*>(dst);
      const auto* in = static_cast<const char*>(src) + box.start[2] * element_bytes;
      for (int64_t y = 0; y < box.count[0]; ++y) {
        for (int64_t x = 0; x < box.count[1]; ++x, out += count) {
          std::memcpy(out, in + (box.start[0] + y) * plane + (box.start[1] + x) * row, count);
        }
      }
    });
  }

  absl::Status Fill(StreamRef stream, void* dst, int64_t bytes, uint32_t pattern) override {
    OCTAVO_RETURN_IF_ERROR(health_->Check());
    return Enqueue(stream, [=] {
      auto* out = static_cast<char*>(dst);
      int64_t i = 0;
      for (; i + 4 <= bytes; i += 4) std::memcpy(out + i, &pattern, 4);
      std::memcpy(out + i, &pattern, static_cast<size_t>(bytes - i));
    });
  }

  absl::Status Digest(StreamRef stream, DeviceSpan<const uint8_t> src,
                      DeviceSpan<uint64_t> out) override {
    return DigestOfPart(stream, src, {}, out);
  }
  absl::Status DigestOfPart(StreamRef stream, DeviceSpan<const uint8_t> src,
                            const DigestPlace& place, DeviceSpan<uint64_t> out) override {
    OCTAVO_RETURN_IF_ERROR(health_->Check());
    OCTAVO_RETURN_IF_ERROR(CheckPlace(place));
    if (out.count() < 1) return TooShort(out.count(), 1);
    return Enqueue(stream, [=] {
      // A multiple of 8, so that the digests of the parts add up.
      const int64_t part = place.run_bytes == 0 ? int64_t{1} << 20 : place.run_bytes;
      const int64_t bytes = src.bytes();
      *out.data() = tbb::parallel_reduce(
          tbb::blocked_range<int64_t>(0, (bytes + part - 1) / part), uint64_t{0},
          [&](const tbb::blocked_range<int64_t>& range, uint64_t sum) {
            for (int64_t p = range.begin(); p != range.end(); ++p) {
              const int64_t at =
                  place.first_byte + (place.run_bytes == 0 ? p * part : p * place.stride_bytes);
              sum += HostDigest(src.data() + p * part, std::min(part, bytes - p * part), at);
            }
            return sum;
          },
          std::plus<uint64_t>());
    });
  }

  absl::Status Delay(StreamRef stream, int64_t ns) override {
    OCTAVO_RETURN_IF_ERROR(health_->Check());
    return Enqueue(stream, [ns] {
      std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(ns, kLongestDelayNs)));
    });
  }
  void InjectFault(const std::string& reason) override {
    health_->Lose(WithInfo(absl::UnavailableError(reason),
                           {.reason = Reason::kDeviceLost, .field = "", .numbers = {}}));
  }

  absl::Status Stamp(StreamRef stream, HostSpan<int64_t> out) override {
    OCTAVO_RETURN_IF_ERROR(health_->Check());
    if (out.count() < 1) return TooShort(out.count(), 1);
    return Enqueue(stream, [out] { *out.data() = SystemClock().Now().monotonic_ns; });
  }
  absl::StatusOr<ClockReading> ReadClock() override {
    const int64_t now = SystemClock().Now().monotonic_ns;
    return ClockReading{.device_ns = now, .host_ns = now};
  }

  Operators* FindOperators(const OperatorFamily& family) override {
    return operators_.Find(family);
  }
  /// The caller calls it once, before it hands out the device.
  absl::Status MakeOperators() {
    OCTAVO_ASSIGN_OR_RETURN(operators_, MakeHostOperators(*this));
    return absl::OkStatus();
  }

 private:
  static absl::StatusOr<void*> Aligned(int64_t bytes) {
    if (bytes < 0) return absl::InvalidArgumentError(absl::StrCat("asked for ", bytes, " bytes"));
    const size_t alignment = bytes >= static_cast<int64_t>(kHugePage) ? kHugePage : 4096;
    const size_t size =
        (static_cast<size_t>(std::max<int64_t>(bytes, 1)) + alignment - 1) / alignment * alignment;
    void* data = AllocationFault::Hits() ? nullptr : std::aligned_alloc(alignment, size);
    if (data == nullptr) {
      return WithInfo(
          absl::ResourceExhaustedError(absl::StrCat("the host has no ", bytes, " bytes left")),
          {.reason = Reason::kOutOfMemory,
           .field = "",
           .numbers = {{"wanted", absl::StrCat(bytes)}}});
    }
    if (alignment == kHugePage) (void)madvise(data, size, MADV_HUGEPAGE);
    return data;
  }

  absl::Status Copy(StreamRef stream, void* dst, const void* src, int64_t bytes) {
    OCTAVO_RETURN_IF_ERROR(health_->Check());
    return Enqueue(stream, [dst, src, bytes] {
      constexpr int64_t kPart = 4 << 20;
      tbb::parallel_for(int64_t{0}, (bytes + kPart - 1) / kPart, [&](int64_t part) {
        std::memcpy(static_cast<char*>(dst) + part * kPart,
                    static_cast<const char*>(src) + part * kPart,
                    static_cast<size_t>(std::min(kPart, bytes - part * kPart)));
      });
    });
  }

  DeviceInfo info_;
  const int shares_;
  const int most_threads_;  // of a stream; 0 = all
  const std::shared_ptr<HostHealth> health_ = std::make_shared<HostHealth>();
  const std::shared_ptr<MemorySource> memory_;
  const std::shared_ptr<MemoryFiles> files_ = std::make_shared<MemoryFiles>();
  OperatorSet operators_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> MakeHostDevice(int index, int shares, bool leaves_cores) {
  auto device = std::make_unique<HostDevice>(index, shares, leaves_cores);
  OCTAVO_RETURN_IF_ERROR(device->MakeOperators());
  return device;
}

}  // namespace octavo::inline gpu::host
