#include "gpu/backend/cuda/cuda_device.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/backend/cuda/cuda_operators.h"
#include "gpu/base/allocation_fault.h"
#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "gpu/base/status.h"
#include "gpu/device/alignment.h"
#include "gpu/device/cuda/cuda_context.h"
#include "gpu/device/cuda/cuda_status.h"
#include "gpu/device/cuda/cuda_stream.h"
#include "gpu/device/cuda/digest_part.h"
#include "gpu/device/cuda/kernels.h"
#include "gpu/device/cuda/shared_memory.h"
#include "gpu/device/exportable_memory.h"
#include "gpu/device/importable_memory.h"
#include "gpu/device/io_memory.h"
#include "gpu/device/operators.h"
#include "gpu/device/pinned_registration.h"

namespace octavo::inline gpu::cuda {
namespace {

/// Device memory from a pool of this device. Release is stream-ordered, so it never waits for a
/// running kernel, as cudaFree would (measured: 202 ms behind a long kernel). The pool keeps
/// released memory.
class PoolMemory final : public MemorySource {
 public:
  PoolMemory(int ordinal, cudaMemPool_t pool, cudaStream_t stream)
      : ordinal_(ordinal), pool_(pool), stream_(stream) {}
  ~PoolMemory() override {
    const DeviceGuard guard(ordinal_);
    (void)cudaStreamSynchronize(stream_);
    (void)cudaStreamDestroy(stream_);
    (void)cudaMemPoolDestroy(pool_);
  }
  void Release(void* data, int64_t) override {
    const DeviceGuard guard(ordinal_);
    (void)cudaFreeAsync(data, stream_);
  }
  cudaMemPool_t pool() const { return pool_; }
  cudaStream_t stream() const { return stream_; }

 private:
  const int ordinal_;
  const cudaMemPool_t pool_;
  const cudaStream_t stream_;
};

class PinnedMemory final : public MemorySource {
 public:
  void Release(void* data, int64_t) override { (void)cudaFreeHost(data); }
};

/// Device memory outside of all pools.
class IoMemory final : public MemorySource {
 public:
  explicit IoMemory(int ordinal) : ordinal_(ordinal) {}
  void Release(void* data, int64_t) override {
    const DeviceGuard guard(ordinal_);
    (void)cudaFree(data);
  }

 private:
  const int ordinal_;
};

/// Memory that the caller owns, page-locked as long as a buffer refers to it.
class PinnedRegistration final : public MemorySource {
 public:
  explicit PinnedRegistration(int ordinal) : ordinal_(ordinal) {}
  void Release(void* data, int64_t) override {
    const DeviceGuard guard(ordinal_);
    (void)cudaHostUnregister(data);
  }

 private:
  const int ordinal_;
};

class CudaDevice final : public Device,
                         public ExportableMemory,
                         public ImportableMemory,
                         public PageLocker,
                         public IoMemorySource,
                         public CudaContextSource {
 public:
  CudaDevice(DeviceInfo info, int ordinal, std::shared_ptr<PoolMemory> memory)
      : info_(std::move(info)),
        ordinal_(ordinal),
        health_(std::make_shared<DeviceHealth>()),
        memory_(std::move(memory)),
        pinned_(std::make_shared<PinnedMemory>()),
        registered_(std::make_shared<PinnedRegistration>(ordinal)),
        io_(std::make_shared<IoMemory>(ordinal)) {}

  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<DeviceMemory> Memory() override {
    const DeviceGuard guard(ordinal_);
    size_t free = 0, total = 0;
    OCTAVO_CUDA(health_.get(), cudaMemGetInfo(&free, &total));
    return DeviceMemory{.total_bytes = static_cast<int64_t>(total),
                        .free_bytes = static_cast<int64_t>(free)};
  }
  absl::Status Health() override {
    const DeviceGuard guard(ordinal_);
    // A query of any stream shows whether the context is still alive; a busy stream is fine.
    if (const cudaError_t error = cudaStreamQuery(memory_->stream()); error != cudaErrorNotReady)
      OCTAVO_CUDA(health_.get(), error);
    return absl::OkStatus();
  }

  absl::StatusOr<Stream> NewStream(StreamPriority priority) override {
    const DeviceGuard guard(ordinal_);
    int least = 0, greatest = 0;
    OCTAVO_CUDA(health_.get(), cudaDeviceGetStreamPriorityRange(&least, &greatest));
    const int level = priority == StreamPriority::kHigh  ? greatest
                      : priority == StreamPriority::kLow ? least
                                                         : std::min(0, least);
    cudaStream_t stream = nullptr;
    OCTAVO_CUDA(health_.get(), cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, level));
    return Stream(std::make_unique<CudaStream>(ordinal_, stream, health_));
  }
  absl::StatusOr<Event> NewEvent() override {
    const DeviceGuard guard(ordinal_);
    cudaEvent_t event = nullptr;
    OCTAVO_CUDA(health_.get(),
                cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync));
    return Event(std::make_unique<CudaEvent>(ordinal_, event, health_));
  }

  absl::StatusOr<DeviceBuffer> Allocate(int64_t bytes) override {
    OCTAVO_RETURN_IF_ERROR(Fault(bytes));
    const DeviceGuard guard(ordinal_);
    void* data = nullptr;
    OCTAVO_CUDA(health_.get(),
                cudaMallocFromPoolAsync(&data, static_cast<size_t>(std::max<int64_t>(bytes, 1)),
                                        memory_->pool(), memory_->stream()));
    DeviceBuffer buffer(memory_, data, bytes);
    OCTAVO_CUDA(health_.get(),
                cudaStreamSynchronize(
                    memory_->stream()));  // from here on the memory is usable on every stream
    return buffer;
  }
  absl::StatusOr<DeviceBuffer> AllocateExportable(int64_t bytes) override {
    const DeviceGuard guard(ordinal_);
    OCTAVO_ASSIGN_OR_RETURN(const auto shared, Shared());
    const int64_t rounded = RoundUp(bytes, ClientMemory::kGranule);
    OCTAVO_ASSIGN_OR_RETURN(DeviceBuffer buffer, VirtualMemory::Allocate(shared, rounded));
    // Every process that maps the memory sees all of it.
    OCTAVO_CUDA(health_.get(),
                cudaMemsetAsync(buffer.data(), 0, static_cast<size_t>(rounded), memory_->stream()));
    OCTAVO_CUDA(health_.get(), cudaStreamSynchronize(memory_->stream()));
    return buffer;
  }
  absl::StatusOr<SharedMemory> Share(const DeviceBuffer& memory) override {
    OCTAVO_ASSIGN_OR_RETURN(const auto shared, Shared());
    return shared->Share(memory);
  }
  absl::StatusOr<DeviceBuffer> Import(const UniqueFd& descriptor, int64_t bytes) override {
    OCTAVO_RETURN_IF_ERROR(Fault(bytes));
    const DeviceGuard guard(ordinal_);
    const auto shared = Shared();
    if (absl::IsUnimplemented(shared.status())) {
      return WithInfo(shared.status(),
                      {.reason = Reason::kImportKind, .field = "kind", .numbers = {}});
    }
    OCTAVO_RETURN_IF_ERROR(shared.status());
    return VirtualMemory::Import(*shared, descriptor, bytes);
  }
  int64_t ImportGranule() const override { return ClientMemory::kGranule; }
  absl::StatusOr<PinnedBuffer> AllocatePinned(int64_t bytes) override {
    OCTAVO_RETURN_IF_ERROR(Fault(bytes));
    const DeviceGuard guard(ordinal_);
    void* data = nullptr;
    OCTAVO_CUDA(health_.get(),
                cudaHostAlloc(&data, static_cast<size_t>(std::max<int64_t>(bytes, 1)),
                              cudaHostAllocPortable));
    return PinnedBuffer(pinned_, data, bytes);
  }
  absl::StatusOr<DeviceBuffer> AllocateForIo(int64_t bytes) override {
    OCTAVO_RETURN_IF_ERROR(Fault(bytes));
    const DeviceGuard guard(ordinal_);
    void* data = nullptr;
    // cudaMalloc aligns to 512 bytes at least; whole 2 MiB begin at a multiple of 4096.
    OCTAVO_CUDA(health_.get(),
                cudaMalloc(&data, static_cast<size_t>(RoundUp(bytes, int64_t{2} << 20))));
    return DeviceBuffer(io_, data, bytes);
  }
  absl::Status MakeCurrent() override {
    OCTAVO_CUDA(health_.get(), cudaSetDevice(ordinal_));
    return absl::OkStatus();
  }
  absl::StatusOr<PinnedBuffer> LockPages(void* data, int64_t bytes) override {
    OCTAVO_RETURN_IF_ERROR(Fault(bytes));
    const DeviceGuard guard(ordinal_);
    OCTAVO_CUDA(health_.get(),
                cudaHostRegister(data, static_cast<size_t>(bytes), cudaHostRegisterPortable));
    return PinnedBuffer(registered_, data, bytes);
  }

  absl::Status CopyToDevice(StreamRef stream, void* dst, const void* src, int64_t bytes) override {
    return Copy(stream, dst, src, bytes, cudaMemcpyHostToDevice);
  }
  absl::Status CopyToHost(StreamRef stream, void* dst, const void* src, int64_t bytes) override {
    return Copy(stream, dst, src, bytes, cudaMemcpyDeviceToHost);
  }
  absl::Status CopyOnDevice(StreamRef stream, void* dst, const void* src, int64_t bytes) override {
    return Copy(stream, dst, src, bytes, cudaMemcpyDeviceToDevice);
  }
  // The driver knows to which devices the addresses belong.
  absl::Status CopyAcross(StreamRef stream, void* dst, const void* src, int64_t bytes) override {
    return Copy(stream, dst, src, bytes, cudaMemcpyDefault);
  }

  absl::Status CopyBoxToHost(StreamRef stream, void* dst, const void* src, const int64_t shape[3],
                             int64_t element_bytes, const Box3& box) override {
    const DeviceGuard guard(ordinal_);
    const auto row = static_cast<size_t>(shape[2] * element_bytes),
               out_row = static_cast<size_t>(box.count[2] * element_bytes);
    cudaMemcpy3DParms p = {};
    p.srcPtr = make_cudaPitchedPtr(const_cast<void*>(src), row, row, static_cast<size_t>(shape[1]));
    p.srcPos = make_cudaPos(static_cast<size_t>(box.start[2] * element_bytes),
                            static_cast<size_t>(box.start[1]), static_cast<size_t>(box.start[0]));
    p.dstPtr = make_cudaPitchedPtr(dst, out_row, out_row, static_cast<size_t>(box.count[1]));
    p.extent = make_cudaExtent(out_row, static_cast<size_t>(box.count[1]),
                               static_cast<size_t>(box.count[0]));
    p.kind = cudaMemcpyDeviceToHost;
    OCTAVO_CUDA(health_.get(), cudaMemcpy3DAsync(&p, AsCuda(stream)));
    return absl::OkStatus();
  }

  absl::Status Fill(StreamRef stream, void* dst, int64_t bytes, uint32_t pattern) override {
    if (bytes == 0) return absl::OkStatus();
    const DeviceGuard guard(ordinal_);
    const uint32_t byte = pattern & 255;
    if (pattern == byte * 0x01010101u) {  // any alignment
      OCTAVO_CUDA(health_.get(), cudaMemsetAsync(dst, static_cast<int>(byte),
                                                 static_cast<size_t>(bytes), AsCuda(stream)));
      return absl::OkStatus();
    }
    LaunchFill(AsCuda(stream), dst, bytes, pattern);
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    return absl::OkStatus();
  }

  absl::Status Digest(StreamRef stream, DeviceSpan<const uint8_t> src,
                      DeviceSpan<uint64_t> out) override {
    if (out.count() < 1) return TooShort(out.count(), 1);
    const DeviceGuard guard(ordinal_);
    OCTAVO_CUDA(health_.get(), cudaMemsetAsync(out.data(), 0, sizeof(uint64_t), AsCuda(stream)));
    LaunchDigest(AsCuda(stream), src.data(), src.bytes(), out.data());
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    return absl::OkStatus();
  }

  absl::Status DigestOfPart(StreamRef stream, DeviceSpan<const uint8_t> src,
                            const DigestPlace& place, DeviceSpan<uint64_t> out) override {
    OCTAVO_RETURN_IF_ERROR(CheckPlace(place));
    if (out.count() < 1) return TooShort(out.count(), 1);
    const DeviceGuard guard(ordinal_);
    OCTAVO_CUDA(health_.get(), cudaMemsetAsync(out.data(), 0, sizeof(uint64_t), AsCuda(stream)));
    // A single run is a run that never ends.
    const int64_t run = place.run_bytes == 0 ? src.bytes() / 8 + 1 : place.run_bytes / 8;
    LaunchDigestOfPart(AsCuda(stream), src.data(), src.bytes(), place.first_byte / 8, run,
                       place.stride_bytes / 8, out.data());
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    return absl::OkStatus();
  }

  absl::Status Delay(StreamRef stream, int64_t ns) override {
    const DeviceGuard guard(ordinal_);
    LaunchDelay(AsCuda(stream), std::min<int64_t>(ns, 1'000'000'000));
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    return absl::OkStatus();
  }
  void InjectFault(const std::string& reason) override {
    health_->Lose(cudaErrorDevicesUnavailable, reason);
  }

  absl::Status Stamp(StreamRef stream, HostSpan<int64_t> out) override {
    if (out.count() < 1) return TooShort(out.count(), 1);
    const DeviceGuard guard(ordinal_);
    LaunchStamp(AsCuda(stream), out.data());
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    return absl::OkStatus();
  }

  // The device writes the stamp between two readings of the host's clock. Of several attempts, the
  // one with the least time between the readings counts.
  absl::StatusOr<ClockReading> ReadClock() override {
    MutexLock lock(clock_mutex_);
    if (!clock_stream_) {
      OCTAVO_ASSIGN_OR_RETURN(clock_word_, AllocatePinned(sizeof(int64_t)));
      OCTAVO_ASSIGN_OR_RETURN(clock_stream_, NewStream(StreamPriority::kHigh));
    }
    const HostSpan<int64_t> word = clock_word_.span<int64_t>();
    ClockReading best;
    int64_t least = INT64_MAX;
    for (int i = 0; i < 4; ++i) {
      const int64_t before = SystemClock().Now().monotonic_ns;
      OCTAVO_RETURN_IF_ERROR(Stamp(clock_stream_.ref(), word));
      OCTAVO_RETURN_IF_ERROR(clock_stream_.ref().Synchronize());
      const int64_t after = SystemClock().Now().monotonic_ns;
      if (after - before >= least) continue;
      least = after - before;
      best = {.device_ns = *word.data(), .host_ns = before + least / 2};
    }
    return best;
  }

  CudaContext cuda_context() const override { return {.ordinal = ordinal_, .health = health_}; }
  Operators* FindOperators(const OperatorFamily& family) override {
    return operators_.Find(family);
  }
  /// The caller calls it once, before it hands out the device.
  absl::Status MakeOperators() {
    OCTAVO_ASSIGN_OR_RETURN(operators_, MakeCudaOperators(*this));
    return absl::OkStatus();
  }

 private:
  // Opened at the first use, because few processes use it.
  absl::StatusOr<std::shared_ptr<VirtualMemory>> Shared() {
    MutexLock lock(shared_mutex_);
    if (shared_ == nullptr) {
      int count = 0;
      OCTAVO_CUDA(health_.get(), cudaGetDeviceCount(&count));
      std::vector<int> peers;
      for (int peer = 0; peer < count; ++peer) {
        int can = 0;
        if (peer != ordinal_ && cudaDeviceCanAccessPeer(&can, peer, ordinal_) == cudaSuccess &&
            can != 0)
          peers.push_back(peer);
      }
      OCTAVO_ASSIGN_OR_RETURN(shared_, VirtualMemory::Open(ordinal_, std::move(peers)));
    }
    return shared_;
  }
  static absl::Status Fault(int64_t bytes) {
    if (!AllocationFault::Hits()) return absl::OkStatus();
    return WithInfo(absl::ResourceExhaustedError(
                        absl::StrCat("a test fails this allocation of ", bytes, " bytes")),
                    {.reason = Reason::kOutOfMemory,
                     .field = "",
                     .numbers = {{"wanted", absl::StrCat(bytes)}}});
  }
  absl::Status Copy(StreamRef stream, void* dst, const void* src, int64_t bytes,
                    cudaMemcpyKind kind) {
    const DeviceGuard guard(ordinal_);
    OCTAVO_CUDA(health_.get(),
                cudaMemcpyAsync(dst, src, static_cast<size_t>(bytes), kind, AsCuda(stream)));
    return absl::OkStatus();
  }

  const DeviceInfo info_;
  const int ordinal_;
  const std::shared_ptr<DeviceHealth> health_;
  const std::shared_ptr<PoolMemory> memory_;
  const std::shared_ptr<PinnedMemory> pinned_;
  const std::shared_ptr<PinnedRegistration> registered_;
  const std::shared_ptr<IoMemory> io_;
  OperatorSet operators_;
  Mutex shared_mutex_;
  std::shared_ptr<VirtualMemory> shared_ ABSL_GUARDED_BY(shared_mutex_);
  Mutex clock_mutex_;
  PinnedBuffer clock_word_ ABSL_GUARDED_BY(clock_mutex_);
  Stream clock_stream_ ABSL_GUARDED_BY(clock_mutex_);
};

absl::StatusOr<std::unique_ptr<Device>> OpenOne(int ordinal, int index,
                                                std::vector<cudaMemPool_t>* pools) {
  cudaDeviceProp properties{};
  OCTAVO_CUDA(nullptr, cudaGetDeviceProperties(&properties, ordinal));
  const DeviceGuard guard(ordinal);
  cudaMemPoolProps props = {};
  props.allocType = cudaMemAllocationTypePinned;
  props.location.type = cudaMemLocationTypeDevice;
  props.location.id = ordinal;
  cudaMemPool_t pool = nullptr;
  OCTAVO_CUDA(nullptr, cudaMemPoolCreate(&pool, &props));
  uint64_t keep_all = ~uint64_t{0};
  OCTAVO_CUDA(nullptr, cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep_all));
  cudaStream_t stream = nullptr;
  OCTAVO_CUDA(nullptr, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::string uuid = "GPU-";
  for (const char byte : properties.uuid.bytes)
    absl::StrAppendFormat(&uuid, "%02x", static_cast<unsigned char>(byte));
  DeviceInfo info{.index = index,
                  .backend = "cuda",
                  .model = properties.name,
                  .uuid = uuid,
                  .total_bytes = static_cast<int64_t>(properties.totalGlobalMem)};
  pools->push_back(pool);
  auto device = std::make_unique<CudaDevice>(std::move(info), ordinal,
                                             std::make_shared<PoolMemory>(ordinal, pool, stream));
  OCTAVO_RETURN_IF_ERROR(device->MakeOperators());
  return device;
}

// Every device may write the memory of the others if the machine connects them; other copies
// between devices go through the host.
void LetPeersWrite(const std::vector<cudaMemPool_t>& pools) {
  const int count = static_cast<int>(pools.size());
  for (int owner = 0; owner < count; ++owner) {
    for (int peer = 0; peer < count; ++peer) {
      int can = 0;
      if (peer == owner || cudaDeviceCanAccessPeer(&can, peer, owner) != cudaSuccess || can == 0)
        continue;
      cudaMemAccessDesc access = {};
      access.location.type = cudaMemLocationTypeDevice;
      access.location.id = peer;
      access.flags = cudaMemAccessFlagsProtReadWrite;
      (void)cudaMemPoolSetAccess(pools[static_cast<size_t>(owner)], &access, 1);
    }
  }
  (void)cudaGetLastError();
}

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Device>>> OpenCudaDevices(int first_index) {
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted == cudaErrorInsufficientDriver || counted == cudaErrorNoDevice) {
    (void)cudaGetLastError();
    int driver = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
      return absl::NotFoundError("no NVIDIA driver is installed");
    if (counted == cudaErrorNoDevice) return absl::NotFoundError("the NVIDIA driver sees no GPU");
    return absl::NotFoundError(absl::StrCat(
        "the NVIDIA driver is for CUDA ", driver / 1000, ".", driver % 1000 / 10,
        "; this program needs ", CUDART_VERSION / 1000, ".", CUDART_VERSION % 1000 / 10));
  }
  OCTAVO_CUDA(nullptr, cudaGetDeviceCount(&count));
  if (count == 0) return absl::NotFoundError("the NVIDIA driver sees no GPU");
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<cudaMemPool_t> pools;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    OCTAVO_ASSIGN_OR_RETURN(auto device, OpenOne(ordinal, first_index + ordinal, &pools));
    devices.push_back(std::move(device));
  }
  LetPeersWrite(pools);
  return devices;
}

}  // namespace octavo::inline gpu::cuda
