#include "server/rpc/transport/gated_service.h"

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "grpc/byte_buffer.h"
#include "grpc/byte_buffer_reader.h"
#include "grpcpp/impl/rpc_service_method.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/proto_buffer_reader.h"

#include "gpu/base/status.h"
#include "server/rpc/transport/call_gate.h"
#include "server/rpc/transport/reactor.h"

namespace octavo::rpc {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::io::CodedInputStream;
using grpc::internal::MethodHandler;
using grpc::internal::RpcServiceMethod;

// The largest request, RegisterTiles of 4096 tiles with a position each, has some ten thousand.
constexpr int64_t kMostParts = 65536;
constexpr int kMostDepth = 100;  // as protobuf's own parser

class PartCounter {
 public:
  PartCounter(CodedInputStream* in, int64_t most) : in_(in), most_(most) {}
  int64_t parts() const { return parts_; }

  // Whether the bytes up to the stream's limit are fields; false also when there are too many.
  bool Count(const Descriptor* type, int depth) {
    for (uint32_t tag = in_->ReadTag(); tag != 0; tag = in_->ReadTag()) {
      const FieldDescriptor* const field =
          type == nullptr ? nullptr : type->FindFieldByNumber(static_cast<int>(tag >> 3));
      const uint32_t form = tag & 7;
      // protobuf keeps each unknown field as an object.
      const bool packed = form == 2 && field != nullptr && field->is_packable();
      if ((form == 2 && !packed) || form == 3 || field == nullptr) {
        if (++parts_ > most_) return false;
      }
      if (!Skip(form, field, depth)) return false;
    }
    return in_->ConsumedEntireMessage();
  }

 private:
  bool Skip(uint32_t form, const FieldDescriptor* field, int depth) {
    uint64_t number = 0;
    switch (form) {
      case 0: return in_->ReadVarint64(&number);
      case 1: return in_->Skip(8);
      case 2: return Nested(field, depth);
      case 3:
      case 4: return true;  // a group's fields count as those around it
      case 5: return in_->Skip(4);
      default: return false;
    }
  }
  bool Nested(const FieldDescriptor* field, int depth) {
    int size = 0;
    if (!in_->ReadVarintSizeAsInt(&size)) return false;
    if (field == nullptr || field->message_type() == nullptr) return in_->Skip(size);
    if (depth >= kMostDepth) return false;
    const auto outer = in_->PushLimit(size);
    const bool whole = Count(field->message_type(), depth + 1);
    in_->PopLimit(outer);
    return whole;
  }

  CodedInputStream* const in_;
  const int64_t most_;
  int64_t parts_ = 0;
};

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

absl::Status CheckParts(grpc_byte_buffer* bytes, const Descriptor* type) {
  // Each part has two bytes at least.
  if (bytes == nullptr || grpc_byte_buffer_length(bytes) <= 2 * static_cast<size_t>(kMostParts))
    return absl::OkStatus();
  if (CountParts(Shared(bytes), type, kMostParts) <= kMostParts) return absl::OkStatus();
  return WithInfo(
      absl::InvalidArgumentError(absl::StrCat(
          "the ", type->name(), " has more than ", kMostParts,
          " parts (messages, texts and fields that this server does not know); allowed ",
          kMostParts)),
      {.reason = Reason::kInvalidArgument, .field = "", .numbers = {}});
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
      return CheckParts(bytes, request_);
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

int64_t CountParts(const grpc::ByteBuffer& bytes, const Descriptor* type, int64_t most) {
  grpc::ByteBuffer copy(bytes);  // of the references, not of the bytes
  grpc::ProtoBufferReader reader(&copy);
  if (!reader.status().ok()) return 0;
  CodedInputStream in(&reader);
  PartCounter counter(&in, most);
  (void)counter.Count(type, 0);
  return counter.parts();
}

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
