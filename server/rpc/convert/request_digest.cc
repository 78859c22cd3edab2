#include "server/rpc/convert/request_digest.h"

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

#include "server/base/sha256.h"

namespace octavo::rpc {

std::string RequestDigest(const google::protobuf::MessageLite& body) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    body.SerializeToCodedStream(&coded);
  }
  return base::Sha256(bytes);
}

}  // namespace octavo::rpc
