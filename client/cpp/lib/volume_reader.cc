#include "client/cpp/lib/volume_reader.h"

#include <algorithm>
#include <exception>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/wire_format_lite.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/proto_buffer_reader.h"

#include "client/cpp/lib/convert.h"

namespace octavo::client {
namespace {

namespace io = google::protobuf::io;
using google::protobuf::internal::WireFormatLite;

// A box comes over at most one connection for so many of its bytes. With 16 MiB a volume of 64 MiB
// came over four of them, and at 4 GB/s instead of 7.
constexpr int64_t kBytesOfOne = 8 << 20;
// More connections than this gain nothing, because the server's memory and the kernel's copies then
// are the limit.
constexpr uint32_t kConnectionsByDefault = 8;

// A message of the stream: all but its data, and where these lie in it.
struct Message {
  v1::ReadVolumeResponse head;
  int at = 0;
  uint32_t bytes = 0;
};

[[noreturn]] void ThrowUnreadable(const std::string& name) {
  throw Error(Code::kDataLoss, "the server sent a message of " + name + " that cannot be read");
}

// protobuf would copy the data into a string of its own; here they stay in gRPC's memory.
Message Parse(grpc::ByteBuffer* bytes, const std::string& name) {
  constexpr uint32_t kData = WireFormatLite::MakeTag(v1::ReadVolumeResponse::kDataFieldNumber,
                                                     WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  Message message;
  std::string head;
  {
    grpc::ProtoBufferReader reader(bytes);
    io::CodedInputStream in(&reader);
    io::StringOutputStream text(&head);
    io::CodedOutputStream out(&text);
    while (const uint32_t tag = in.ReadTag()) {
      if (tag != kData) {
        if (!WireFormatLite::SkipField(&in, tag, &out)) ThrowUnreadable(name);
        continue;
      }
      if (!in.ReadVarint32(&message.bytes)) ThrowUnreadable(name);
      message.at = in.CurrentPosition();
      if (!in.Skip(static_cast<int>(message.bytes))) ThrowUnreadable(name);
    }
    if (!in.ConsumedEntireMessage()) ThrowUnreadable(name);
  }
  if (!message.head.ParseFromString(head)) ThrowUnreadable(name);
  return message;
}

void CopyData(grpc::ByteBuffer* bytes, const Message& message, std::span<std::byte> into,
              const std::string& name) {
  if (message.bytes == 0) return;
  const uint64_t offset = message.head.offset();
  if (offset > into.size() || message.bytes > into.size() - offset) {
    throw Error(Code::kDataLoss, "the server sent bytes of " + name + " beyond its end");
  }
  grpc::ProtoBufferReader reader(bytes);
  io::CodedInputStream in(&reader);
  if (!in.Skip(message.at) || !in.ReadRaw(into.data() + offset, static_cast<int>(message.bytes))) {
    ThrowUnreadable(name);
  }
}

// One call of ReadVolume. `begin` gets the first message and gives the memory.
void ReadOne(const std::shared_ptr<grpc::Channel>& connection, grpc::ClientContext& context,
             const v1::ReadVolumeRequest& request,
             const std::function<std::span<std::byte>(const v1::ReadVolumeResponse&)>& begin) {
  const std::string bytes = request.SerializeAsString();
  const grpc::Slice slice(bytes);
  grpc::GenericStub stub(connection);
  grpc::CompletionQueue queue;
  const auto ended = [&] {  // whether the step under way went well
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  auto call = stub.PrepareCall(&context, "/octavo.v1.VolumeService/ReadVolume", &queue);
  call->StartCall(nullptr);
  if (ended()) {
    call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
    (void)ended();  // what is wrong is in the status
  }
  std::span<std::byte> into;
  std::vector<std::pair<uint64_t, uint64_t>> pieces;  // offset, bytes
  std::exception_ptr problem;
  for (;;) {
    grpc::ByteBuffer part;
    call->Read(&part, nullptr);
    if (!ended()) break;
    if (problem != nullptr) continue;  // drains what came before the end of the call
    try {
      const Message message = Parse(&part, request.name());
      if (message.head.has_volume() && into.empty()) into = begin(message.head);
      CopyData(&part, message, into, request.name());
      pieces.emplace_back(message.head.offset(), message.bytes);
    } catch (...) {
      problem = std::current_exception();
      context.TryCancel();
    }
  }
  grpc::Status status;
  call->Finish(&status, nullptr);
  (void)ended();
  if (problem != nullptr) std::rethrow_exception(problem);
  Check(status);
  std::sort(pieces.begin(), pieces.end());
  uint64_t done = 0;  // in one piece from the beginning on
  for (const auto& [offset, size] : pieces) {
    if (offset == done) done += size;
  }
  if (into.empty() || done != into.size()) {
    throw Error(Code::kDataLoss,
                "the server sent " + std::to_string(done) + " bytes of " + request.name());
  }
}

ArrayLayout LayoutOf(const v1::ReadVolumeResponse& head) {
  return {.dtype = static_cast<DType>(head.dtype()),
          .shape = {head.shape().begin(), head.shape().end()}};
}

uint32_t UsefulConnections() {
  return std::clamp<uint32_t>(std::thread::hardware_concurrency() / 2, 1, kConnectionsByDefault);
}

// Whether a later call may have what this one was refused: room, or the connection.
bool WorthAnotherTry(const Error& error) {
  return error.code == Code::kUnavailable || error.code == Code::kResourceExhausted;
}

}  // namespace

size_t BytesOf(const ArrayLayout& layout) {
  size_t bytes = Array::ItemSize(layout.dtype);
  for (const int64_t extent : layout.shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<size_t>(extent), &bytes))
      throw Error(Code::kDataLoss, "the server sends an array of an impossible shape");
  }
  return bytes;
}

VolumeReader::VolumeReader(std::shared_ptr<grpc::Channel> first, MakeConnection more,
                           std::chrono::milliseconds timeout)
    : more_(std::move(more)),
      timeout_(timeout),
      volumes_(v1::VolumeService::NewStub(first)),
      connections_{std::move(first)} {}

ArrayLayout VolumeReader::Read(const v1::ReadVolumeRequest& request, uint32_t connections,
                               const Place& place, const std::stop_token& stop,
                               const ArrayLayout* whole) {
  const uint32_t most = connections == 0 ? UsefulConnections() : connections;
  std::optional<Plan> plan;
  if (most > 1 && request.downsample() <= 1) {  // else it is the device's work, and few bytes
    const std::optional<ArrayLayout> volume =
        whole != nullptr ? *whole : LayoutOfVolume(request.name(), stop);
    if (volume.has_value()) plan = PlanFor(request, most, *volume);
  }
  if (!plan.has_value()) return ReadWhole(request, place, stop);
  ReadParts(*plan, place(plan->layout), stop);
  return plan->layout;
}

std::optional<ArrayLayout> VolumeReader::LayoutOfVolume(const std::string& name,
                                                        const std::stop_token& stop) {
  v1::GetVolumeRequest get;
  get.set_name(name);
  v1::GetVolumeResponse answer;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout_);
  const std::stop_callback cancel(stop, [&] { context.TryCancel(); });
  // What is wrong with the name, the volume or the box, the read itself is told.
  if (!volumes_->GetVolume(&context, get, &answer).ok()) return std::nullopt;
  const v1::Volume& volume = answer.volume();
  return ArrayLayout{.dtype = static_cast<DType>(volume.dtype()),
                     .shape = {volume.shape().begin(), volume.shape().end()}};
}

std::optional<VolumeReader::Plan> VolumeReader::PlanFor(const v1::ReadVolumeRequest& request,
                                                        uint32_t connections,
                                                        const ArrayLayout& volume) {
  const auto axes = static_cast<int>(volume.shape.size());
  if ((request.start_size() != 0 && request.start_size() != axes) ||
      (request.count_size() != 0 && request.count_size() != axes))
    return std::nullopt;
  Plan plan;
  plan.layout.dtype = request.has_window() ? DType::kU8 : volume.dtype;
  std::vector<int64_t> start;
  auto bytes = static_cast<int64_t>(Array::ItemSize(plan.layout.dtype));
  for (int axis = 0; axis < axes; ++axis) {
    const int64_t extent = volume.shape[static_cast<size_t>(axis)];
    const int64_t from = request.start_size() == 0 ? 0 : request.start(axis);
    const int64_t wanted = request.count_size() == 0 ? 0 : request.count(axis);
    if (from < 0 || from >= extent || wanted < 0 || wanted > extent - from) return std::nullopt;
    start.push_back(from);
    plan.layout.shape.push_back(wanted == 0 ? extent - from : wanted);
    if (__builtin_mul_overflow(bytes, plan.layout.shape.back(), &bytes)) return std::nullopt;
  }
  // Ranges of an axis are contiguous if all axes before it have one element.
  const auto axis = std::find_if(plan.layout.shape.begin(), plan.layout.shape.end(),
                                 [](int64_t extent) { return extent > 1; });
  if (axis == plan.layout.shape.end()) return std::nullopt;
  const int64_t extent = *axis;
  const int64_t count = std::min({static_cast<int64_t>(connections), bytes / kBytesOfOne, extent});
  if (count < 2) return std::nullopt;
  const int at = static_cast<int>(axis - plan.layout.shape.begin());
  const int64_t each = bytes / extent;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = extent * i / count, end = extent * (i + 1) / count;
    Part part{.request = request,
              .offset = static_cast<size_t>(begin * each),
              .bytes = static_cast<size_t>((end - begin) * each)};
    part.request.mutable_start()->Assign(start.begin(), start.end());
    part.request.set_start(at, start[static_cast<size_t>(at)] + begin);
    part.request.mutable_count()->Assign(plan.layout.shape.begin(), plan.layout.shape.end());
    part.request.set_count(at, end - begin);
    plan.parts.push_back(std::move(part));
  }
  return plan;
}

ArrayLayout VolumeReader::ReadWhole(const v1::ReadVolumeRequest& request, const Place& place,
                                    const std::stop_token& stop) {
  ArrayLayout layout;
  grpc::ClientContext context;
  const std::stop_callback cancel(stop, [&] { context.TryCancel(); });
  ReadOne(Connections(1).front(), context, request, [&](const v1::ReadVolumeResponse& head) {
    layout = LayoutOf(head);
    const std::span<std::byte> into = place(layout);
    if (into.size() != head.total_bytes())
      throw Error(Code::kDataLoss, "the server sends " + std::to_string(head.total_bytes()) +
                                       " bytes of " + request.name() + ", whose array has " +
                                       std::to_string(into.size()));
    return into;
  });
  return layout;
}

void VolumeReader::ReadParts(const Plan& plan, std::span<std::byte> into,
                             const std::stop_token& stop) {
  const auto connections = Connections(plan.parts.size());
  const auto read = [&](size_t i, const std::shared_ptr<grpc::Channel>& connection,
                        grpc::ClientContext& context) {
    const Part& part = plan.parts[i];
    ReadOne(connection, context, part.request, [&](const v1::ReadVolumeResponse& head) {
      if (head.total_bytes() != part.bytes || static_cast<DType>(head.dtype()) != plan.layout.dtype)
        throw Error(Code::kDataLoss, "the server sends another array than that of " +
                                         part.request.name() + " a moment ago");
      return into.subspan(part.offset, part.bytes);
    });
  };
  std::vector<grpc::ClientContext> contexts(plan.parts.size());
  const auto end_all = [&] {
    for (grpc::ClientContext& context : contexts) context.TryCancel();
  };
  const std::stop_callback cancel(stop, end_all);
  std::mutex mutex;
  std::exception_ptr failed;    // guarded by mutex, as the next
  std::vector<size_t> refused;  // parts to be read once more
  const auto run = [&](size_t i) {
    try {
      read(i, connections[i % connections.size()], contexts[i]);
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      if (failed != nullptr) return;  // cancelled
      if (WorthAnotherTry(error)) return refused.push_back(i);
      failed = std::current_exception();
      end_all();
    } catch (...) {  // no memory, for example: it must not end the thread with the program
      const std::lock_guard lock(mutex);
      if (failed == nullptr) failed = std::current_exception();
      end_all();
    }
  };
  {
    std::vector<std::jthread> threads;
    std::vector<size_t> own{0};  // this thread reads the first part, and those without a thread
    for (size_t i = 1; i < plan.parts.size(); ++i) {
      try {
        threads.emplace_back(run, i);
      } catch (const std::system_error&) {
        own.push_back(i);
      }
    }
    for (const size_t i : own) run(i);
  }
  if (failed != nullptr) std::rethrow_exception(failed);
  // One after the other over the client's own connection, as if there were no more.
  for (const size_t i : refused) {
    grpc::ClientContext context;
    const std::stop_callback cancel_it(stop, [&] { context.TryCancel(); });
    read(i, connections.front(), context);
  }
}

std::vector<std::shared_ptr<grpc::Channel>> VolumeReader::Connections(size_t count) {
  const std::lock_guard lock(mutex_);
  while (connections_.size() < count) {
    try {
      connections_.push_back(more_());
    } catch (const std::exception&) {  // the files of the login are gone meanwhile
      break;
    }
  }
  return {connections_.begin(),
          connections_.begin() + static_cast<ptrdiff_t>(std::min(count, connections_.size()))};
}

}  // namespace octavo::client
