#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/array/scatter.h"
#include "gpu/device/device.h"
#include "server/storage/direct/cufile.h"
#include "server/storage/direct/root_way.h"
#include "server/storage/direct/stored_pieces.h"

namespace octavo::storage {

/// Lends page-locked host memory of a device, page aligned, until the last reference ends.
using LendSlab = std::function<absl::StatusOr<std::shared_ptr<void>>(int64_t bytes)>;

/// What to read, and to where.
struct DeviceRead {
  Device* device = nullptr;
  LendSlab lend;
  int64_t most_lent = 0;  // that `lend` gives together; 0 = not known
  const PieceSource* source = nullptr;
  /// Of the array in device memory: which axis of the box each of its axes is (-1: none, it has one
  /// element), and the bytes between neighbours, the last ones packed.
  int box_axis[3] = {-1, -1, -1};
  int64_t out_stride[3] = {0, 0, 0};
  void* out = nullptr;
  int64_t elements = 0;            // of the array
  ScatterSpec spec;                // the source says the byte order
  RootWay* way = nullptr;          // null: through the page cache
  const CuFile* cufile = nullptr;  // null: none
  int threads = 0;                 // 0 = chosen
  /// Takes what the page cache has from there, whatever the way. Measurements do not.
  bool use_cached = true;
};

/// Reads a box of an array in files into device memory. Several threads open files, read ranges of
/// them into slabs of page-locked memory, and decode what is compressed; each slab then goes to the
/// device in one copy, and one kernel puts its elements to their places (gpu/array/scatter.h),
/// while the threads fill the next slabs. By cuFile the bytes come to the device without a slab's
/// host memory. The memory is bounded by the slabs, and by an encoded piece for each thread.
class DeviceReader {
 public:
  /// Most device memory that a reader of so many elements takes: 0 if the device reads host memory.
  static absl::StatusOr<int64_t> DeviceBytes(Device& device, const PieceSource& source,
                                             int64_t elements);
  /// Most bytes of the elements of a piece that is decoded.
  static constexpr int64_t kMostDecoded = 48 << 20;

  /// Takes the memory. `read` and what it points to must outlive the reader.
  static absl::StatusOr<std::unique_ptr<DeviceReader>> Create(const DeviceRead& read);
  virtual ~DeviceReader() = default;

  /// Reads all; once. `before`: what is enqueued there, on the same memory, comes first.
  /// `on_progress(part)` is called on this thread every few hundredths of a second with the part
  /// that is done, 0 to 1; its error ends the reading. In any case all work on the device has
  /// passed when it returns.
  virtual absl::Status Run(StreamRef before,
                           const std::function<absl::Status(double done)>& on_progress) = 0;
  /// Bytes that came by cuFile, and bytes that came through host memory.
  virtual int64_t cufile_bytes() const = 0;
  virtual int64_t host_bytes() const = 0;
};

}  // namespace octavo::storage
