#include "server/rpc/transport/gated_service.h"

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "grpc/byte_buffer.h"
#include "grpc/byte_buffer_reader.h"
#include "grpcpp/impl/rpc_service_method.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"

#include "gpu/base/status.h"
#include "server/rpc/transport/call_gate.h"
#include "server/rpc/transport/reactor.h"
#include "server/rpc/transport/request_parts.h"

namespace octavo::rpc {
namespace {

using google::protobuf::Descriptor;
using grpc::internal::MethodHandler;
using grpc::internal::RpcServiceMethod;

// The same bytes; nothing if there are none.
grpc::ByteBuffer Shared(grpc_byte_buffer* bytes) {
  std::vector<grpc::Slice> slices;
  grpc_byte_buffer_reader reader;
  if (grpc_byte_buffer_reader_init(&reader, bytes) == 0) return {};
  for (grpc_slice slice; grpc_byte_buffer_reader_next(&reader, &slice) != 0;)
    slices.emplace_back(slice, grpc::Slice::STEAL_REF);
  grpc_byte_buffer_reader_destroy(&reader);
  return {slices.data(), slices.size()};
}

// Of methods with one request.
class GatedHandler final : public MethodHandler {
 public:
  GatedHandler(MethodHandler* handler, const Descriptor* request)
      : handler_(handler), request_(request) {}

  // Keeps the bytes as they are, until the context of the call is known.
  void* Deserialize(grpc_call*, grpc_byte_buffer* bytes, grpc::Status*, void**) override {
    return bytes;
  }

  void RunHandler(const HandlerParameter& call) override {
    auto* bytes = static_cast<grpc_byte_buffer*>(call.request);
    auto* const context = static_cast<grpc::CallbackServerContext*>(call.server_context);
    const absl::Status admitted = Guarded([&]() -> absl::Status {
      OCTAVO_RETURN_IF_ERROR(Admit(context, request_));
      return bytes == nullptr ? absl::OkStatus() : CheckParts(Shared(bytes), request_);
    });
    if (!admitted.ok()) {
      Refuse(context, admitted);
      grpc_byte_buffer_destroy(bytes);
      bytes = grpc_raw_byte_buffer_create(nullptr, 0);
    }
    grpc::Status parsed;
    void* data = nullptr;
    // The handler takes the bytes.
    void* const request = handler_->Deserialize(call.call->call(), bytes, &parsed, &data);
    handler_->RunHandler(HandlerParameter(call.call, call.server_context, request, parsed, data,
                                          call.call_requester));
  }

 private:
  MethodHandler* const handler_;
  const Descriptor* const request_;
};

// Of streams of clients: they have no request, and ask by themselves.
class ForwardedHandler final : public MethodHandler {
 public:
  explicit ForwardedHandler(MethodHandler* handler) : handler_(handler) {}
  void RunHandler(const HandlerParameter& call) override { handler_->RunHandler(call); }

 private:
  MethodHandler* const handler_;
};

MethodHandler* HandlerOf(grpc::Service* service, int index) {
  struct Access : grpc::Service {
    using grpc::Service::GetHandler;
  };
  return (service->*&Access::GetHandler)(index);
}

RpcServiceMethod::RpcType FormOf(const google::protobuf::MethodDescriptor& method) {
  if (method.client_streaming())
    return method.server_streaming() ? RpcServiceMethod::BIDI_STREAMING
                                     : RpcServiceMethod::CLIENT_STREAMING;
  return method.server_streaming() ? RpcServiceMethod::SERVER_STREAMING
                                   : RpcServiceMethod::NORMAL_RPC;
}

}  // namespace

GatedService::GatedService(std::unique_ptr<grpc::Service> service,
                           const google::protobuf::ServiceDescriptor* descriptor)
    : service_(std::move(service)) {
  names_.reserve(static_cast<size_t>(descriptor->method_count()));
  for (int i = 0; i < descriptor->method_count(); ++i) {
    const auto& method = *descriptor->method(i);
    names_.push_back(absl::StrCat("/", descriptor->full_name(), "/", method.name()));
    AddMethod(new RpcServiceMethod(names_.back().c_str(), FormOf(method), nullptr));
    MethodHandler* const handler = HandlerOf(service_.get(), i);
    if (method.client_streaming())
      MarkMethodCallback(i, new ForwardedHandler(handler));
    else
      MarkMethodCallback(i, new GatedHandler(handler, method.input_type()));
  }
}

}  // namespace octavo::rpc
