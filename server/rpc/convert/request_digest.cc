#include "server/rpc/convert/request_digest.h"

#include "server/base/sha256.h"
#include "server/rpc/convert/fixed_bytes.h"

namespace octavo::rpc {

std::string RequestDigest(const google::protobuf::Message& body) {
  return base::Sha256(FixedBytes(body));
}

}  // namespace octavo::rpc
