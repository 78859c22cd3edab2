#pragma once

// Fixture that runs programs on arrays whose content the host knows.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

#include "gpu/array/sliced_program.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/status_matchers.h"

namespace octavo::testing {

/// An array of numbers, as an element type stores them.
struct StoredArray {
  ArrayType type;
  std::vector<uint8_t> bytes;
  StoredArray(Scalar scalar, std::vector<int64_t> dims, const std::vector<double>& values)
      : type{.scalar = scalar, .dims = std::move(dims)} {
    bytes.resize(static_cast<size_t>(type.bytes()));
    for (size_t i = 0; i < values.size(); ++i)
      math::Store(scalar, bytes.data(), static_cast<int64_t>(i), {values[i]});
  }
  double at(int64_t i) const { return math::Load(type.scalar, bytes.data(), i).re; }
};

class ProgramTest : public BackendTest {
 protected:
  /// The numbers of the program's output.
  std::vector<double> Run(const SlicedProgram& program, const std::vector<StoredArray>& inputs) {
    const std::vector<uint8_t> bytes = RunBytes(program, inputs);
    std::vector<double> out;
    for (int64_t i = 0; i < program.out().numbers() && !bytes.empty(); ++i)
      out.push_back(math::Load(program.out().scalar, bytes.data(), i).re);
    return out;
  }
  /// The bytes of the program's output.
  std::vector<uint8_t> RunBytes(const SlicedProgram& program,
                                const std::vector<StoredArray>& inputs) {
    std::vector<DeviceBuffer> memory;
    std::vector<const void*> pointers;
    for (const StoredArray& one : inputs) {
      memory.push_back(Upload(one.bytes));
      pointers.push_back(memory.back().data());
    }
    const auto before = program.ScratchBytes(device_);
    EXPECT_THAT(before, IsOk());
    auto run = program.Prepare(device_, nullptr);
    EXPECT_THAT(run, IsOk());
    if (!run.ok()) return {};
    const DeviceBuffer to = Poisoned(program.out().bytes());
    // Twice, in one piece and in pieces: a run leaves nothing that the next one would meet.
    const int64_t parts = program.parts();
    EXPECT_GE(parts, 1);
    EXPECT_THAT((*run)->Run(stream_.ref(), 0, parts, pointers, to.data()), IsOk());
    EXPECT_THAT(stream_.ref().Synchronize(), IsOk());  // only one run may be in progress
    for (int64_t first = 0, end = 1; first < parts; first = end, end = std::min(parts, 3 * end))
      EXPECT_THAT((*run)->Run(stream_.ref(), first, end, pointers, to.data()), IsOk());
    auto bytes = Download<uint8_t>(to, static_cast<size_t>(program.out().bytes()));
    for (size_t i = 0; i < inputs.size(); ++i)
      EXPECT_EQ(Download<uint8_t>(memory[i], inputs[i].bytes.size()), inputs[i].bytes);
    return bytes;
  }
};

}  // namespace octavo::testing
