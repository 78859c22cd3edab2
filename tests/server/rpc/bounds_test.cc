// The table of bounds is complete (against the descriptors of all services), and each of its lines
// holds, in the table and over the wire.

#include "server/rpc/convert/bounds.h"

#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor_database.h"
#include "google/protobuf/dynamic_message.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

#include "octavo/v1/types.pb.h"

#include "gpu/backend/open_devices.h"
#include "gpu/base/status.h"
#include "gpu/device/device.h"
#include "server/engine/engine.h"
#include "server/rpc/rpc_server.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::rpc {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MessageFactory;
using google::protobuf::MethodDescriptor;

// The linked-in methods of all services of the package.
std::vector<const MethodDescriptor*> Methods() {
  std::vector<std::string> files;
  DescriptorPool::internal_generated_database()->FindAllFileNames(&files);
  std::vector<const MethodDescriptor*> methods;
  for (const std::string& name : files) {
    const auto* file = DescriptorPool::generated_pool()->FindFileByName(name);
    if (file == nullptr || file->package() != "octavo.v1") continue;
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m)
        methods.push_back(file->service(s)->method(m));
    }
  }
  return methods;
}

bool NeedsBound(const FieldDescriptor* field) {
  return field->is_repeated() || field->cpp_type() == FieldDescriptor::CPPTYPE_STRING;
}
std::string NameOf(const FieldDescriptor* field) {
  return std::string(absl::StripPrefix(field->full_name(), "octavo.v1."));
}

using Path = std::vector<const FieldDescriptor*>;
// Visits all fields that need a bound, by their paths; does not enter a message within itself.
void Walk(const Descriptor* message, Path* path, std::set<const Descriptor*>* above,
          const std::function<void(const Path&)>& visit) {
  if (!above->insert(message).second) return;
  for (int i = 0; i < message->field_count(); ++i) {
    path->push_back(message->field(i));
    if (NeedsBound(message->field(i))) visit(*path);
    if (message->field(i)->message_type() != nullptr)
      Walk(message->field(i)->message_type(), path, above, visit);
    path->pop_back();
  }
  above->erase(message);
}
void WalkRequest(const Descriptor* request, const std::function<void(const Path&)>& visit) {
  Path path;
  std::set<const Descriptor*> above;
  Walk(request, &path, &above, visit);
}

const Bound* Find(const std::string& name) {
  for (const Bound& bound : Bounds()) {
    if (bound.field == name) return &bound;
  }
  return nullptr;
}

// Adds an element that is valid in itself, where that is cheap to achieve.
void Add(Message* message, const FieldDescriptor* field, int64_t i) {
  const auto* r = message->GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE: r->AddDouble(message, field, 1); break;
    case FieldDescriptor::CPPTYPE_FLOAT: r->AddFloat(message, field, 1); break;
    case FieldDescriptor::CPPTYPE_INT32: r->AddInt32(message, field, 1); break;
    case FieldDescriptor::CPPTYPE_INT64: r->AddInt64(message, field, 1); break;
    case FieldDescriptor::CPPTYPE_UINT32: r->AddUInt32(message, field, 1); break;
    case FieldDescriptor::CPPTYPE_UINT64: r->AddUInt64(message, field, 1); break;
    case FieldDescriptor::CPPTYPE_BOOL: r->AddBool(message, field, true); break;
    case FieldDescriptor::CPPTYPE_ENUM: r->AddEnumValue(message, field, 1); break;
    case FieldDescriptor::CPPTYPE_STRING: r->AddString(message, field, "x"); break;
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      Message* element = r->AddMessage(message, field);
      if (field->is_map())
        element->GetReflection()->SetString(element, element->GetDescriptor()->FindFieldByNumber(1),
                                            absl::StrCat("k", i));
      break;
    }
  }
}

struct Case {
  std::unique_ptr<Message> at, above;
  std::string field;    // its name in errors
  std::string allowed;  // the allowed range in errors
};

// Makes a request whose field at the path is filled to its bound, or to one more.
Case MakeCase(const Descriptor* request, const Path& path, const Bound& bound, bool of_text) {
  Case out;
  for (std::unique_ptr<Message>* made : {&out.at, &out.above}) {
    const int64_t more = made == &out.above ? 1 : 0;
    made->reset(MessageFactory::generated_factory()->GetPrototype(request)->New());
    Message* message = made->get();
    out.field.clear();
    for (size_t i = 0; i + 1 < path.size(); ++i) {
      if (i > 0 || path[i]->name() != "spec") {
        absl::StrAppend(&out.field, out.field.empty() ? "" : ".", path[i]->name(),
                        path[i]->is_repeated() ? "[0]" : "");
      }
      const auto* r = message->GetReflection();
      message = path[i]->is_repeated() ? r->AddMessage(message, path[i])
                                       : r->MutableMessage(message, path[i]);
    }
    const FieldDescriptor* field = path.back();
    absl::StrAppend(&out.field, out.field.empty() ? "" : ".", field->name());
    if (of_text) {
      const std::string text(static_cast<size_t>(bound.bytes + more), 'x');
      if (field->is_repeated()) {
        message->GetReflection()->AddString(message, field, text);
        out.field += "[0]";
      } else {
        message->GetReflection()->SetString(message, field, text);
      }
      out.allowed = absl::StrCat("has ", bound.bytes + 1, " bytes; allowed ", bound.bytes);
    } else {
      for (int64_t i = 0; i < bound.count + more; ++i) Add(message, field, i);
      out.allowed = absl::StrCat("has ", bound.count + 1, " entries; allowed ", bound.count);
    }
  }
  return out;
}

// If methods share messages, one path to each line of the table is enough; each method has its own
// message.
void ForEachCase(const std::function<void(const MethodDescriptor*, const Case&)>& visit) {
  for (const MethodDescriptor* method : Methods()) {
    std::set<std::string> seen;
    WalkRequest(method->input_type(), [&](const Path& path) {
      const Bound* bound = Find(NameOf(path.back()));
      if (bound == nullptr || !seen.insert(bound->field).second) return;
      if (path.back()->is_repeated())
        visit(method, MakeCase(method->input_type(), path, *bound, false));
      if (path.back()->cpp_type() == FieldDescriptor::CPPTYPE_STRING)
        visit(method, MakeCase(method->input_type(), path, *bound, true));
    });
  }
}

TEST(BoundsTest, EveryFieldOfEveryRequestHasALine) {
  std::set<std::string> reached;
  const auto methods = Methods();
  EXPECT_GE(methods.size(), 50u);
  for (const MethodDescriptor* method : methods) {
    WalkRequest(
        method->input_type(), [&](const Path& path) {
          const FieldDescriptor* field = path.back();
          const Bound* bound = Find(NameOf(field));
          reached.insert(NameOf(field));
          ASSERT_NE(bound, nullptr)
              << NameOf(field)
              << " has no line in server/rpc/convert/bounds.cc: how much of it makes sense?";
          EXPECT_EQ(bound->count > 0, field->is_repeated()) << NameOf(field);
          EXPECT_EQ(bound->bytes > 0, field->cpp_type() == FieldDescriptor::CPPTYPE_STRING)
              << NameOf(field);
        });
  }
  std::set<std::string> lines;
  for (const Bound& bound : Bounds()) {
    EXPECT_TRUE(lines.insert(bound.field).second) << bound.field << " has two lines";
    EXPECT_TRUE(reached.contains(bound.field)) << bound.field << " is in no request";
  }
}

TEST(BoundsTest, EachLineHolds) {
  int cases = 0;
  ForEachCase([&](const MethodDescriptor* method, const Case& c) {
    ++cases;
    EXPECT_TRUE(CheckBounds(*c.at).ok())
        << method->full_name() << " " << c.field << ": " << CheckBounds(*c.at);
    const absl::Status refused = CheckBounds(*c.above);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument)
        << method->full_name() << " " << c.field;
    EXPECT_EQ(InfoOf(refused).field, c.field);
    EXPECT_TRUE(absl::StrContains(refused.message(), c.allowed)) << refused;
  });
  EXPECT_GE(cases, 150);
}

class BoundsOverTheWireTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char directory[] = "/tmp/octavo-bounds-XXXXXX";
    ASSERT_NE(::mkdtemp(directory), nullptr);
    directory_ = directory;
    std::vector<std::string> report;
    ASSERT_OK_AND_ASSIGN(
        store_, storage::CommitStore::Open(directory_ + "/state", {directory_ + "/data"}, &report));
    ASSERT_OK_AND_ASSIGN(OpenedDevices opened, OpenDevices("host", 1));
    engine::EngineConfig config;
    config.memory_bytes = 64 << 20;
    config.frame_pool_bytes = 16 << 20;
    config.server_id = "test0000";
    config.software = "octavo test";
    ASSERT_OK_AND_ASSIGN(engine_,
                         engine::Engine::Create(config, std::move(opened.devices), store_.get()));
    ASSERT_OK_AND_ASSIGN(server_, RpcServer::Start({.tcp = {"127.0.0.1:0"}}, engine_.get(), {}));
    channel_ = grpc::CreateChannel(server_->addresses()[0], grpc::InsecureChannelCredentials());
  }
  void TearDown() override {
    channel_ = nullptr;
    server_ = nullptr;
    engine_ = nullptr;
    store_ = nullptr;
    std::filesystem::remove_all(directory_);
  }

  // Returns the error that ends the request; OK if none ends it at once. Sets *field to the field
  // that the error names.
  grpc::Status Call(const MethodDescriptor* method, const Message& request,
                    std::chrono::seconds patience, std::string* field) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + patience);
    grpc::CompletionQueue queue;
    const auto next = [&] {
      void* tag = nullptr;
      bool ok = false;
      queue.Next(&tag, &ok);
      return ok;
    };
    auto call = stub.PrepareCall(
        &context, absl::StrCat("/", method->service()->full_name(), "/", method->name()), &queue);
    call->StartCall(nullptr);
    next();
    const grpc::Slice slice(request.SerializeAsString());
    if (method->client_streaming()) {
      call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    } else {
      call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
    }
    next();
    grpc::ByteBuffer answer;
    call->Read(&answer, nullptr);
    const bool answered = next();  // a watch then continues for ever
    if (answered) context.TryCancel();
    grpc::Status status;
    call->Finish(&status, nullptr);
    next();
    if (answered) return grpc::Status::OK;
    google::rpc::Status rich;
    google::rpc::ErrorInfo detail;
    if (rich.ParseFromString(status.error_details()) && rich.details_size() > 0 &&
        rich.details(0).UnpackTo(&detail))
      *field = detail.metadata().contains("field") ? detail.metadata().at("field") : "";
    return status;
  }

  std::string directory_;
  std::unique_ptr<storage::CommitStore> store_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(BoundsOverTheWireTest, EveryHandlerRefusesWhatIsAbove) {
  ForEachCase([&](const MethodDescriptor* method, const Case& c) {
    std::string field;
    const grpc::Status above = Call(method, *c.above, std::chrono::seconds(60), &field);
    EXPECT_EQ(above.error_code(), grpc::StatusCode::INVALID_ARGUMENT)
        << method->full_name() << " " << c.field << ": " << above.error_message();
    EXPECT_EQ(field, c.field) << method->full_name();
    EXPECT_TRUE(absl::StrContains(above.error_message(), c.allowed))
        << method->full_name() << ": " << above.error_message();
    // A valid subscription may never send anything.
    const bool may_wait = method->server_streaming() && !method->client_streaming();
    const grpc::Status at = Call(method, *c.at, std::chrono::seconds(may_wait ? 1 : 60), &field);
    EXPECT_FALSE(absl::StrContains(at.error_message(), c.field) &&
                 absl::StrContains(at.error_message(), c.allowed))
        << at.error_message();
    EXPECT_NE(at.error_code(), grpc::StatusCode::UNAVAILABLE)
        << method->full_name() << " " << c.field << ": " << at.error_message();
    EXPECT_TRUE(may_wait || at.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED)
        << method->full_name() << " " << c.field;
  });
}

}  // namespace
}  // namespace octavo::rpc
