#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/array/array_ops.h"
#include "gpu/device/device.h"

// Work that reads arrays and makes one, and that may take so long that whoever runs it wants to
// stop it: it is enqueued part by part.
namespace octavo::inline gpu {

/// A number in page-locked memory. Once the host has made it other than 0, the kernels that look at
/// it end early; what they leave is of no use. Null: they never look.
using StopFlag = const int32_t*;

/// A program with its memory on one device. It must live until the streams on which it ran have
/// passed.
class SlicedRun {
 public:
  virtual ~SlicedRun() = default;
  /// Enqueues the parts from `first` to `end` - 1 on arrays of the planned types. All parts, each
  /// once, in order, on one stream, are a run; only one at a time may be in progress. All calls of
  /// a run get the same arrays.
  virtual absl::Status Run(StreamRef stream, int64_t first, int64_t end,
                           const std::vector<const void*>& inputs, void* out) = 0;
};

/// What is to be done with arrays of certain types. Immutable, without device memory.
class SlicedProgram {
 public:
  virtual ~SlicedProgram() = default;
  virtual const ArrayType& out() const = 0;
  /// At least 1. A part takes milliseconds on a host, or ends when the flag is set.
  virtual int64_t parts() const = 0;
  /// The device memory that a run needs beside inputs and output.
  virtual absl::StatusOr<int64_t> ScratchBytes(Device& device) const = 0;
  /// Allocates, which takes milliseconds. ResourceExhausted if the device has too little memory
  /// left. The run keeps what it needs of the program; `stop` must outlive it.
  virtual absl::StatusOr<std::unique_ptr<SlicedRun>> Prepare(Device& device,
                                                             StopFlag stop) const = 0;
};

/// A chain without second arrays, as one part.
std::unique_ptr<const SlicedProgram> SlicedOf(ArrayChain chain);

}  // namespace octavo::inline gpu
