#include "server/rpc/transport/request_parts.h"

#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "grpcpp/support/proto_buffer_reader.h"

#include "gpu/base/status.h"

namespace octavo::rpc {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::io::CodedInputStream;

// The largest request, RegisterTiles of 4096 tiles with a position each, has some ten thousand.
constexpr int64_t kMostParts = 65536;
constexpr int kMostDepth = 100;  // as protobuf's own parser

class PartCounter {
 public:
  PartCounter(CodedInputStream* in, int64_t most) : in_(in), most_(most) {}
  int64_t parts() const { return parts_; }

  // Whether the bytes up to the stream's limit are fields, none of them a group (the contract has
  // none); false also when there are too many.
  bool Count(const Descriptor* type, int depth) {
    for (uint32_t tag = in_->ReadTag(); tag != 0; tag = in_->ReadTag()) {
      const FieldDescriptor* const field =
          type == nullptr ? nullptr : type->FindFieldByNumber(static_cast<int>(tag >> 3));
      const uint32_t form = tag & 7;
      // protobuf keeps each field as an object that it does not know, or that has another form than
      // its type. A packed field is one array.
      const bool array = form == 2 && field != nullptr && field->is_packable();
      const bool number = form != 2 && field != nullptr && form == FormOf(*field);
      if (!array && !number && ++parts_ > most_) return false;
      if (!Skip(form, field, depth)) return false;
    }
    return in_->ConsumedEntireMessage();
  }

 private:
  static uint32_t FormOf(const FieldDescriptor& field) {
    using google::protobuf::internal::WireFormatLite;
    return WireFormatLite::WireTypeForFieldType(
        static_cast<WireFormatLite::FieldType>(field.type()));
  }
  bool Skip(uint32_t form, const FieldDescriptor* field, int depth) {
    uint64_t number = 0;
    switch (form) {
      case 0: return in_->ReadVarint64(&number);
      case 1: return in_->Skip(8);
      case 2: return Nested(field, depth);
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

}  // namespace

int64_t CountParts(const grpc::ByteBuffer& bytes, const Descriptor* type, int64_t most) {
  grpc::ByteBuffer copy(bytes);  // of the references, not of the bytes
  grpc::ProtoBufferReader reader(&copy);
  if (!reader.status().ok()) return 0;
  CodedInputStream in(&reader);
  PartCounter counter(&in, most);
  return counter.Count(type, 0) ? counter.parts() : most + 1;
}

absl::Status CheckParts(const grpc::ByteBuffer& bytes, const Descriptor* type) {
  // Each part has two bytes at least.
  if (bytes.Length() <= 2 * static_cast<size_t>(kMostParts)) return absl::OkStatus();
  if (CountParts(bytes, type, kMostParts) <= kMostParts) return absl::OkStatus();
  return WithInfo(
      absl::InvalidArgumentError(absl::StrCat("the ", type->name(), " has more than ", kMostParts,
                                              " parts (messages, texts and fields that this server "
                                              "does not know), or is none; allowed ",
                                              kMostParts)),
      {.reason = Reason::kInvalidArgument, .field = "", .numbers = {}});
}

}  // namespace octavo::rpc
