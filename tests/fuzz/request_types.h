#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

#include "octavo/v1/buffer.pb.h"
#include "octavo/v1/export.pb.h"
#include "octavo/v1/ingest.pb.h"
#include "octavo/v1/job.pb.h"
#include "octavo/v1/mosaic.pb.h"
#include "octavo/v1/operation.pb.h"
#include "octavo/v1/scan.pb.h"
#include "octavo/v1/session.pb.h"
#include "octavo/v1/stream.pb.h"
#include "octavo/v1/system.pb.h"
#include "octavo/v1/volume.pb.h"

#include "tests/fuzz/fuzz_input.h"

namespace octavo::fuzz {

/// The number by which an input names a request: of its name, so that a new method changes no
/// input. make_request_seeds.py computes it, too.
inline uint16_t NumberOfRequest(const std::string& name) {
  uint32_t number = 5381;
  for (const char c : name) number = number * 33 + static_cast<unsigned char>(c);
  return static_cast<uint16_t>(number ^ number >> 16);
}

/// The requests of all methods of the contract, by their numbers.
inline const std::map<uint16_t, const google::protobuf::Message*>& Requests() {
  static const auto& all = *[] {
    auto* found = new std::map<uint16_t, const google::protobuf::Message*>;
    for (const auto* any :
         {v1::Buffer::descriptor(), v1::ExportRequest::descriptor(), v1::PushRequest::descriptor(),
          v1::Job::descriptor(), v1::RegisterTilesRequest::descriptor(),
          v1::Operation::descriptor(), v1::Scan::descriptor(), v1::ClientSession::descriptor(),
          v1::SubscribeRequest::descriptor(), v1::DeviceStatus::descriptor(),
          v1::Volume::descriptor()}) {
      const google::protobuf::FileDescriptor& file = *any->file();
      for (int s = 0; s < file.service_count(); ++s) {
        for (int m = 0; m < file.service(s)->method_count(); ++m) {
          const auto* type = file.service(s)->method(m)->input_type();
          const auto* prototype =
              google::protobuf::MessageFactory::generated_factory()->GetPrototype(type);
          const auto [it, fresh] = found->emplace(NumberOfRequest(type->name()), prototype);
          Require(fresh || it->second == prototype);  // no two names have one number
        }
      }
    }
    return found;
  }();
  return all;
}

/// The one of this number, or any for another number.
inline const google::protobuf::Message& RequestOf(uint16_t number) {
  const auto& all = Requests();
  if (const auto it = all.find(number); it != all.end()) return *it->second;
  return *std::next(all.begin(), number % std::ssize(all))->second;
}

}  // namespace octavo::fuzz
