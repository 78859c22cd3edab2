#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/array/array_ops.h"
#include "gpu/device/device.h"

// Work that reads arrays and makes one: chains of operations, and what other families plan. Whoever
// runs it (buffers of clients, tests) need not know what it does.
namespace octavo::inline gpu {

/// A program with its memory on one device. It must live until the streams on which it ran have
/// passed. Only one run at a time may be in progress.
class ArrayProgramRun {
 public:
  virtual ~ArrayProgramRun() = default;
  /// Enqueues the work on arrays of the planned types.
  virtual absl::Status Run(StreamRef stream, const std::vector<const void*>& inputs, void* out) = 0;
};

/// What is to be done with arrays of certain types. Immutable, without device memory.
class ArrayProgram {
 public:
  virtual ~ArrayProgram() = default;
  virtual const ArrayType& out() const = 0;
  /// The device memory that a run needs beside inputs and output.
  virtual absl::StatusOr<int64_t> ScratchBytes(Device& device) const = 0;
  /// Allocates, which takes milliseconds. ResourceExhausted if the device has too little memory
  /// left. The run keeps what it needs of the program.
  virtual absl::StatusOr<std::unique_ptr<ArrayProgramRun>> Prepare(Device& device) const = 0;
};

/// Plans a program for inputs of these types.
using ArrayPlanner = std::function<absl::StatusOr<std::unique_ptr<const ArrayProgram>>(
    const std::vector<ArrayType>& inputs)>;

/// A chain: its first input is the array, the others are the second arrays.
std::unique_ptr<const ArrayProgram> ProgramOf(ArrayChain chain);

}  // namespace octavo::inline gpu
