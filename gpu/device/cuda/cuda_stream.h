#pragma once

#include <cuda_runtime.h>
#include <memory>

#include "gpu/device/cuda/cuda_status.h"
#include "gpu/device/stream.h"

namespace octavo::inline gpu::cuda {

/// Makes `ordinal` the calling thread's device for the lifetime of this object.
class DeviceGuard {
 public:
  explicit DeviceGuard(int ordinal) {
    if (cudaGetDevice(&before_) != cudaSuccess) before_ = ordinal;
    if (before_ != ordinal) (void)cudaSetDevice(ordinal);
    now_ = ordinal;
  }
  ~DeviceGuard() {
    if (before_ != now_) (void)cudaSetDevice(before_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int before_ = 0, now_ = 0;
};

class CudaEvent final : public EventBase {
 public:
  CudaEvent(int ordinal, cudaEvent_t event, std::shared_ptr<DeviceHealth> health)
      : ordinal_(ordinal), event_(event), health_(std::move(health)) {}
  ~CudaEvent() override { (void)cudaEventDestroy(event_); }
  absl::StatusOr<bool> Query() override {
    const cudaError_t error = cudaEventQuery(event_);
    if (error == cudaErrorNotReady) return false;
    OCTAVO_CUDA(health_.get(), error);
    return true;
  }
  absl::Status Synchronize() override {
    OCTAVO_CUDA(health_.get(), cudaEventSynchronize(event_));
    return absl::OkStatus();
  }
  cudaEvent_t get() const { return event_; }

 private:
  const int ordinal_;
  const cudaEvent_t event_;
  const std::shared_ptr<DeviceHealth> health_;
};

class CudaStream final : public StreamBase {
 public:
  CudaStream(int ordinal, cudaStream_t stream, std::shared_ptr<DeviceHealth> health)
      : ordinal_(ordinal), stream_(stream), health_(std::move(health)) {}
  ~CudaStream() override {
    const DeviceGuard guard(ordinal_);
    (void)cudaStreamSynchronize(stream_);  // enqueued work may use memory freed next
    (void)cudaStreamDestroy(stream_);
  }
  absl::Status Record(EventBase& event) override {
    const DeviceGuard guard(ordinal_);
    OCTAVO_CUDA(health_.get(), cudaEventRecord(static_cast<CudaEvent&>(event).get(), stream_));
    return absl::OkStatus();
  }
  absl::Status Wait(EventBase& event) override {
    const DeviceGuard guard(ordinal_);
    OCTAVO_CUDA(health_.get(),
                cudaStreamWaitEvent(stream_, static_cast<CudaEvent&>(event).get(), 0));
    return absl::OkStatus();
  }
  absl::Status Synchronize() override {
    OCTAVO_CUDA(health_.get(), cudaStreamSynchronize(stream_));
    return absl::OkStatus();
  }
  cudaStream_t get() const { return stream_; }

 private:
  const int ordinal_;
  const cudaStream_t stream_;
  const std::shared_ptr<DeviceHealth> health_;
};

inline cudaStream_t AsCuda(StreamRef stream) {
  return static_cast<CudaStream*>(stream.base())->get();
}

}  // namespace octavo::inline gpu::cuda
