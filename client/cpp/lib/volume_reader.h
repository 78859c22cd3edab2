#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "grpcpp/grpcpp.h"

#include "octavo/v1/volume.grpc.pb.h"

#include "client/cpp/include/octavo/octavo.h"
#include "client/cpp/lib/connections.h"

namespace octavo::client {

/// The bytes of such an array. Throws Error (DATA_LOSS) for an impossible shape.
size_t BytesOf(const ArrayLayout& layout);

/// Reads voxels straight into the caller's memory: small boxes over the client's connection, large
/// ones over several connections at once, each of them a range of the box. One connection is not
/// enough: its bytes all pass through one thread of gRPC. Thread-safe.
class VolumeReader {
 public:
  static constexpr uint32_t kMostConnections = 16;
  /// Memory for the voxels, of exactly the bytes of the layout. Called once, before they come.
  using Place = std::function<std::span<std::byte>(const ArrayLayout&)>;

  /// `more` makes another connection like `first`; what it throws means that there will be none.
  /// `timeout` is for short calls.
  VolumeReader(std::shared_ptr<grpc::Channel> first, MakeConnection more,
               std::chrono::milliseconds timeout);

  /// `connections`: at most so many at once; 0 = as the processors and the box allow. Throws Error;
  /// then the memory may hold a part of the voxels.
  /// A request of `stop` ends it soon, with an Error (CANCELLED). `whole`: the array of the whole
  /// volume, if it is known, which saves a call.
  ArrayLayout Read(const v1::ReadVolumeRequest& request, uint32_t connections, const Place& place,
                   const std::stop_token& stop = {}, const ArrayLayout* whole = nullptr);

 private:
  /// A range of the box, contiguous in the array.
  struct Part {
    v1::ReadVolumeRequest request;
    size_t offset = 0, bytes = 0;  // in the array
  };
  struct Plan {
    ArrayLayout layout;
    std::vector<Part> parts;
  };

  /// The array of the whole volume; nothing if there is none of that name.
  std::optional<ArrayLayout> LayoutOfVolume(const std::string& name, const std::stop_token& stop);
  /// Nothing if one connection is to read all. `volume`: the array of the whole volume.
  static std::optional<Plan> PlanFor(const v1::ReadVolumeRequest& request, uint32_t connections,
                                     const ArrayLayout& volume);
  ArrayLayout ReadWhole(const v1::ReadVolumeRequest& request, const Place& place,
                        const std::stop_token& stop);
  void ReadParts(const Plan& plan, std::span<std::byte> into, const std::stop_token& stop);
  /// As many connections, or fewer if no more can be had.
  std::vector<std::shared_ptr<grpc::Channel>> Connections(size_t count);

  const MakeConnection more_;
  const std::chrono::milliseconds timeout_;
  const std::unique_ptr<v1::VolumeService::Stub> volumes_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<grpc::Channel>> connections_;  // guarded by mutex_; never empty
};

}  // namespace octavo::client
