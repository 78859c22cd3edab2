#pragma once

#include <memory>
#include <string>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "grpcpp/impl/service_type.h"

namespace octavo::rpc {

/// Stands before a service and asks for each call whether its caller may make it (Admit,
/// call_gate.h) before the request is parsed. gRPC's own handlers parse first: a request of 8 MiB
/// becomes hundreds of MiB of objects if it consists of empty messages, and whoever can connect
/// could have them made.
///
/// The request of a call that may not be made is dropped unread; the handler runs with an empty one
/// and answers with what Admit says. A request of more parts than any method can need is refused in
/// the same way, with INVALID_ARGUMENT. Streams of clients go through
/// unchanged: they have no request, and their forms ask before they parse a message (handler.h).
///
/// Register it instead of the service that it stands before.
class GatedService final : public grpc::Service {
 public:
  GatedService(std::unique_ptr<grpc::Service> service,
               const google::protobuf::ServiceDescriptor* descriptor);

 private:
  const std::unique_ptr<grpc::Service> service_;
  std::vector<std::string> names_;  // gRPC keeps pointers to them
};

}  // namespace octavo::rpc
