#pragma once

#include <string>

#include "grpcpp/support/status.h"

#include "octavo/v1/operation.pb.h"
#include "octavo/v1/scan.pb.h"
#include "octavo/v1/stream.pb.h"
#include "octavo/v1/volume.pb.h"

#include "client/cpp/include/octavo/octavo.h"

// Converts between the library's types and the contract's messages.
namespace octavo::client {

/// The Error that a failed call carries in its details.
Error ErrorOf(const grpc::Status& status);
/// Throws unless OK.
void Check(const grpc::Status& status);

/// Merges what the text says into the message. Throws Error (INVALID_ARGUMENT, field "json") if the
/// text is no such message.
void FromJson(const std::string& json, google::protobuf::Message* message);
std::string ToJson(const google::protobuf::Message& message);

void Encode(const ScanSpec& in, v1::ScanSpec* out);
void Encode(const Processing& in, v1::Processing* out);
void Encode(const CommitOptions& in, v1::CommitOptions* out);
void Encode(const ImageOptions& in, v1::ImageOptions* out);
void Encode(const SubscribeOptions& in, v1::SubscribeRequest* out);
/// Everything but the name.
void Encode(const ReadOptions& in, v1::ReadVolumeRequest* out);
void Encode(const RenderOptions& in, v1::RenderVolumeRequest* out);

Scan Decode(const v1::Scan& in);
Volume Decode(const v1::Volume& in);
Operation Decode(const v1::Operation& in);
/// Everything but the data.
Frame Decode(const v1::Frame& in);
RenderedPicture Decode(const v1::RenderedPicture& in);

}  // namespace octavo::client
