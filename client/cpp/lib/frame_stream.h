#pragma once

#include <memory>
#include <string>

#include "grpcpp/grpcpp.h"

#include "octavo/v1/stream.grpc.pb.h"

#include "client/cpp/include/octavo/octavo.h"
#include "client/cpp/lib/volume_reader.h"

namespace octavo::client {

/// One of the ways in which frames come.
class FrameStream::Impl {
 public:
  virtual ~Impl() = default;
  virtual bool Next(Frame* frame) = 0;
  virtual void Cancel() = 0;
};

/// Frames as the messages of a call (StreamService.Subscribe). `reader` reads the volumes that come
/// without their data.
std::unique_ptr<FrameStream::Impl> FramesOfCall(v1::StreamService::Stub* stub,
                                                v1::SubscribeRequest request,
                                                std::shared_ptr<VolumeReader> reader);
/// Frames in memory of the server on this host, by a ticket of StreamService.OpenFrames. Throws
/// Error (kUnavailable, SERVER_GONE) if nobody listens at `path`.
std::unique_ptr<FrameStream::Impl> FramesOfFeed(const std::string& path, const std::string& ticket);

}  // namespace octavo::client
