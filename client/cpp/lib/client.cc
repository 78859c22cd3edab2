#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"

#include "octavo/v1/export.grpc.pb.h"
#include "octavo/v1/ingest.grpc.pb.h"
#include "octavo/v1/operation.grpc.pb.h"
#include "octavo/v1/scan.grpc.pb.h"
#include "octavo/v1/stream.grpc.pb.h"
#include "octavo/v1/system.grpc.pb.h"
#include "octavo/v1/volume.grpc.pb.h"

#include "client/cpp/include/octavo/octavo.h"
#include "client/cpp/lib/connections.h"
#include "client/cpp/lib/convert.h"
#include "client/cpp/lib/frame_stream.h"
#include "client/cpp/lib/handoff.h"
#include "client/cpp/lib/lent.h"
#include "client/cpp/lib/volume_reader.h"
#include "client/cpp/wire/login.h"
#include "client/cpp/wire/seconds.h"

namespace octavo::client {
namespace {

Error BadField(const std::string& field, const std::string& problem) {
  Error error = Refusal(Code::kInvalidArgument, "BAD_FIELD", field + ": " + problem);
  error.field = field;
  return error;
}

}  // namespace

class Client::Impl {
 public:
  Impl(std::string address, std::chrono::milliseconds timeout, const Login& login)
      : address_(std::move(address)), timeout_(timeout) {
    const MakeConnection connect = ConnectionsTo(address_, login);
    channel_ = connect();
    reader_ = std::make_shared<VolumeReader>(channel_, connect, timeout_);
    scans_ = v1::ScanService::NewStub(channel_);
    volumes_ = v1::VolumeService::NewStub(channel_);
    operations_ = v1::OperationService::NewStub(channel_);
    exports_ = v1::ExportService::NewStub(channel_);
    sources_ = v1::IngestService::NewStub(channel_);
    streams_ = v1::StreamService::NewStub(channel_);
    system_ = v1::SystemService::NewStub(channel_);
  }

  /// A short call with the deadline; throws if it fails.
  template <class Response, class Stub, class Method, class Request>
  Response Call(Stub& stub, Method method, const Request& request) {
    grpc::ClientContext context;
    context.set_deadline(Deadline());
    Response response;
    Check((stub.*method)(&context, request, &response));
    return response;
  }
  template <class Request>
  static Request Named(const std::string& name) {
    Request request;
    request.set_name(name);
    return request;
  }
  RingTicket OpenRing(const v1::OpenRingRequest& request) {
    const auto answer =
        Call<v1::OpenRingResponse>(*sources_, &v1::IngestService::Stub::OpenRing, request);
    return {.socket = answer.socket_path(),
            .ticket = answer.ticket(),
            .expires_seconds = SecondsUntil(answer.expire_time())};
  }
  ArrayLayout Read(const std::string& name, const ReadOptions& options,
                   const VolumeReader::Place& place) {
    if (options.connections > VolumeReader::kMostConnections) {
      throw BadField("connections", "is " + std::to_string(options.connections) +
                                        "; allowed 0 to " +
                                        std::to_string(VolumeReader::kMostConnections));
    }
    auto request = Named<v1::ReadVolumeRequest>(name);
    Encode(options, &request);
    return reader_->Read(request, options.connections, place);
  }
  std::chrono::system_clock::time_point Deadline() const {
    return std::chrono::system_clock::now() + timeout_;
  }

  const std::string address_;
  const std::chrono::milliseconds timeout_;
  std::shared_ptr<grpc::Channel> channel_;
  std::shared_ptr<VolumeReader> reader_;  // with the streams that read volumes
  std::unique_ptr<v1::ScanService::Stub> scans_;
  std::unique_ptr<v1::VolumeService::Stub> volumes_;
  std::unique_ptr<v1::OperationService::Stub> operations_;
  std::unique_ptr<v1::ExportService::Stub> exports_;
  std::unique_ptr<v1::IngestService::Stub> sources_;
  std::unique_ptr<v1::StreamService::Stub> streams_;
  std::unique_ptr<v1::SystemService::Stub> system_;

  std::shared_ptr<Handoff> handoff() {
    const std::lock_guard lock(handoff_mutex_);
    return handoff_ != nullptr && handoff_->alive() ? handoff_ : nullptr;
  }
  /// The connection to this socket, created if needed.
  std::shared_ptr<Handoff> ConnectTo(const std::string& path) {
    const std::lock_guard lock(handoff_mutex_);
    if (handoff_ == nullptr || !handoff_->alive() || handoff_->path() != path)
      handoff_ = Handoff::Connect(path, timeout_);
    return handoff_;
  }

 private:
  std::mutex handoff_mutex_;
  std::shared_ptr<Handoff> handoff_;  // guarded by handoff_mutex_; null = not needed yet
};

size_t Array::ItemSize(DType dtype) {
  switch (dtype) {
    case DType::kU8:
    case DType::kI8: return 1;
    case DType::kU16:
    case DType::kI16:
    case DType::kF16: return 2;
    case DType::kF32:
    case DType::kU32:
    case DType::kI32:
    case DType::kC32: return 4;
    case DType::kF64:
    case DType::kC64:
    case DType::kU64:
    case DType::kI64: return 8;
    case DType::kC128: return 16;
  }
  return 0;
}

Client::Client(std::string address, std::chrono::milliseconds timeout, std::string token_file,
               const TlsFiles& tls) {
  const Given at = GivenBy(address, "address", "OCTAVO_ADDRESS");
  address = at.empty() ? "127.0.0.1:50051" : at.value;
  if (const std::string problem = ProblemOfAddress(address); !problem.empty())
    throw Error(Code::kInvalidArgument, at.by + ": " + problem);
  const Login login{.token_file = GivenBy(token_file, "token_file", "OCTAVO_TOKEN_FILE"),
                    .ca_file = GivenBy(tls.ca_file, "ca_file", "OCTAVO_CA_FILE"),
                    .cert_file = GivenBy(tls.cert_file, "cert_file", "OCTAVO_CERT_FILE"),
                    .key_file = GivenBy(tls.key_file, "key_file", "OCTAVO_KEY_FILE"),
                    .server_name = GivenBy(tls.server_name, "server_name", "OCTAVO_SERVER_NAME")};
  try {
    impl_ = std::make_unique<Impl>(std::move(address), timeout, login);
  } catch (const LoginError& error) {
    throw Error(Code::kInvalidArgument, error.by + ": " + error.what());
  }
}
Client::~Client() = default;

const std::string& Client::address() const { return impl_->address_; }

// -- scans

Scan Client::SubmitScan(const ScanSpec& spec, const std::string& request_id) {
  v1::SubmitScanRequest request;
  request.set_request_id(request_id);
  Encode(spec, request.mutable_spec());
  return Decode(impl_
                    ->Call<v1::SubmitScanResponse>(*impl_->scans_,
                                                   &v1::ScanService::Stub::SubmitScan, request)
                    .scan());
}

Admission Client::PlanScan(const ScanSpec& spec) {
  v1::PlanScanRequest request;
  Encode(spec, request.mutable_spec());
  const auto answer =
      impl_->Call<v1::PlanScanResponse>(*impl_->scans_, &v1::ScanService::Stub::PlanScan, request);
  const v1::AdmissionReport& report = answer.report();
  return {.admitted = report.admitted(),
          .retryable = report.retryable(),
          .device = report.device(),
          .advice = report.advice(),
          .plan = answer.plan(),
          .wanted_bytes = report.wanted_bytes(),
          .free_bytes = report.free_bytes(),
          .budget_bytes = report.budget_bytes(),
          .volume_bytes = report.volume_bytes()};
}

Scan Client::GetScan(const std::string& name) {
  return Decode(impl_
                    ->Call<v1::GetScanResponse>(*impl_->scans_, &v1::ScanService::Stub::GetScan,
                                                Impl::Named<v1::GetScanRequest>(name))
                    .scan());
}

std::vector<Scan> Client::ListScans(const ListOptions& options) {
  std::vector<Scan> list;
  v1::ListScansRequest request;
  request.set_filter(options.filter);
  request.set_order_by(options.order_by);
  request.set_page_size(1000);
  do {
    const auto page = impl_->Call<v1::ListScansResponse>(
        *impl_->scans_, &v1::ScanService::Stub::ListScans, request);
    for (const auto& scan : page.scans()) list.push_back(Decode(scan));
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return list;
}

Scan Client::WatchScan(const std::string& name, const std::function<bool(const Scan&)>& each) {
  grpc::ClientContext context;
  auto reader = impl_->scans_->WatchScan(&context, Impl::Named<v1::WatchScanRequest>(name));
  Scan last;
  bool enough = false;
  v1::WatchScanResponse message;
  while (reader->Read(&message)) {
    if (enough) continue;  // drains messages in flight when the call was cancelled
    last = Decode(message.scan());
    enough = !each(last);
    if (enough) context.TryCancel();
  }
  const grpc::Status status = reader->Finish();
  if (!enough) Check(status);
  return last;
}

Scan Client::WaitScan(const std::string& name) {
  return WatchScan(name, [](const Scan&) { return true; });
}

Scan Client::UpdateScan(const std::string& name, const Processing& processing,
                        const std::vector<std::string>& fields) {
  v1::UpdateScanRequest request;
  for (const std::string& field : fields) request.mutable_update_mask()->add_paths(field);
  request.set_name(name);
  Encode(processing, request.mutable_processing());
  return Decode(impl_
                    ->Call<v1::UpdateScanResponse>(*impl_->scans_,
                                                   &v1::ScanService::Stub::UpdateScan, request)
                    .scan());
}

RingTicket Client::OpenRing(const std::string& scan) {
  v1::OpenRingRequest request;
  request.set_scan(scan);
  return impl_->OpenRing(request);
}

RingTicket Client::OpenJobRing(const std::string& job, uint32_t slots) {
  v1::OpenRingRequest request;
  request.set_job(job);
  request.set_slots(slots);
  return impl_->OpenRing(request);
}

Scan Client::StopScan(const std::string& name) {
  return Decode(impl_
                    ->Call<v1::StopScanResponse>(*impl_->scans_, &v1::ScanService::Stub::StopScan,
                                                 Impl::Named<v1::StopScanRequest>(name))
                    .scan());
}

Scan Client::CancelScan(const std::string& name) {
  return Decode(impl_
                    ->Call<v1::CancelScanResponse>(*impl_->scans_,
                                                   &v1::ScanService::Stub::CancelScan,
                                                   Impl::Named<v1::CancelScanRequest>(name))
                    .scan());
}

// -- volumes

Volume Client::GetVolume(const std::string& name) {
  return Decode(impl_
                    ->Call<v1::GetVolumeResponse>(*impl_->volumes_,
                                                  &v1::VolumeService::Stub::GetVolume,
                                                  Impl::Named<v1::GetVolumeRequest>(name))
                    .volume());
}

std::vector<Volume> Client::ListVolumes(const std::string& parent, const ListOptions& options) {
  std::vector<Volume> list;
  v1::ListVolumesRequest request;
  request.set_parent(parent);
  request.set_filter(options.filter);
  request.set_order_by(options.order_by);
  request.set_page_size(1000);
  do {
    const auto page = impl_->Call<v1::ListVolumesResponse>(
        *impl_->volumes_, &v1::VolumeService::Stub::ListVolumes, request);
    for (const auto& volume : page.volumes()) list.push_back(Decode(volume));
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return list;
}

Array Client::Read(const std::string& name, const std::vector<int64_t>& start,
                   const std::vector<int64_t>& count) {
  ReadOptions options;
  options.start = start;
  options.count = count;
  return Read(name, options);
}

Array Client::Read(const std::string& name, const ReadOptions& options) {
  Array array;
  impl_->Read(name, options, [&](const ArrayLayout& layout) {
    array.dtype = layout.dtype;
    array.shape = layout.shape;
    array.data.resize(BytesOf(layout));
    return std::span(array.data);
  });
  return array;
}

ArrayLayout Client::ReadInto(const std::string& name, std::span<std::byte> into,
                             const ReadOptions& options) {
  return impl_->Read(name, options, [&](const ArrayLayout& layout) {
    if (const size_t bytes = BytesOf(layout); bytes != into.size()) {
      throw BadField("into", "has " + std::to_string(into.size()) + " bytes; " + name + " needs " +
                                 std::to_string(bytes));
    }
    return into;
  });
}

RenderedPicture Client::Render(const std::string& name, const RenderOptions& options) {
  grpc::ClientContext context;
  auto request = Impl::Named<v1::RenderVolumeRequest>(name);
  Encode(options, &request);
  auto reader = impl_->volumes_->RenderVolume(&context, request);
  RenderedPicture picture;
  size_t done = 0;
  v1::RenderVolumeResponse part;
  while (reader->Read(&part)) {
    if (part.has_picture()) {
      picture = Decode(part.picture());
      picture.array.data.resize(part.total_bytes());
    }
    Bytes& data = picture.array.data;
    if (part.data().empty() || part.offset() + part.data().size() > data.size()) continue;
    std::memcpy(data.data() + part.offset(), part.data().data(), part.data().size());
    done += part.data().size();
  }
  Check(reader->Finish());
  if (done == 0 || done != picture.array.data.size()) {
    throw Error(Code::kDataLoss, "got " + std::to_string(done) + " bytes of a picture of " + name);
  }
  return picture;
}

Volume Client::HoldVolume(const std::string& name) {
  return Decode(impl_
                    ->Call<v1::HoldVolumeResponse>(*impl_->volumes_,
                                                   &v1::VolumeService::Stub::HoldVolume,
                                                   Impl::Named<v1::HoldVolumeRequest>(name))
                    .volume());
}

Volume Client::ReleaseVolume(const std::string& name) {
  return Decode(impl_
                    ->Call<v1::ReleaseVolumeResponse>(*impl_->volumes_,
                                                      &v1::VolumeService::Stub::ReleaseVolume,
                                                      Impl::Named<v1::ReleaseVolumeRequest>(name))
                    .volume());
}

CommitResult Client::Commit(const std::string& name, const CommitOptions& options,
                            const std::function<bool(const OperationProgress&)>& progress,
                            const std::string& request_id) {
  Operation operation = StartCommit(name, options, request_id);
  if (!progress) {
    operation = WaitOperation(operation.name);
  } else {
    bool wanted = true;
    operation = WatchOperation(operation.name, [&](const Operation& now) {
      if (wanted && !progress(now.progress)) {
        wanted = false;
        CancelOperation(now.name);
      }
      return true;
    });
  }
  if (operation.error.has_value()) throw *operation.error;
  return operation.commit.value_or(CommitResult{});
}

Operation Client::StartCommit(const std::string& name, const CommitOptions& options,
                              const std::string& request_id) {
  auto request = Impl::Named<v1::CommitVolumeRequest>(name);
  Encode(options, request.mutable_options());
  request.set_request_id(request_id);
  request.mutable_wait();  // answer as soon as it has begun
  return Decode(impl_
                    ->Call<v1::CommitVolumeResponse>(
                        *impl_->volumes_, &v1::VolumeService::Stub::CommitVolume, request)
                    .operation());
}

Volume Client::DiscardVolume(const std::string& name) {
  return Decode(impl_
                    ->Call<v1::DiscardVolumeResponse>(*impl_->volumes_,
                                                      &v1::VolumeService::Stub::DiscardVolume,
                                                      Impl::Named<v1::DiscardVolumeRequest>(name))
                    .volume());
}

// -- long work

Operation Client::GetOperation(const std::string& name) {
  return Decode(impl_
                    ->Call<v1::GetOperationResponse>(*impl_->operations_,
                                                     &v1::OperationService::Stub::GetOperation,
                                                     Impl::Named<v1::GetOperationRequest>(name))
                    .operation());
}

std::vector<Operation> Client::ListOperations() {
  std::vector<Operation> list;
  v1::ListOperationsRequest request;
  request.set_page_size(1000);
  do {
    const auto page = impl_->Call<v1::ListOperationsResponse>(
        *impl_->operations_, &v1::OperationService::Stub::ListOperations, request);
    for (const auto& operation : page.operations()) list.push_back(Decode(operation));
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return list;
}

Operation Client::WaitOperation(const std::string& name,
                                std::optional<std::chrono::milliseconds> wait) {
  auto request = Impl::Named<v1::WaitOperationRequest>(name);
  if (wait.has_value())
    *request.mutable_wait() = DurationOf(std::chrono::duration<double>(*wait).count());
  grpc::ClientContext context;  // as long as it takes
  v1::WaitOperationResponse answer;
  Check(impl_->operations_->WaitOperation(&context, request, &answer));
  return Decode(answer.operation());
}

Operation Client::WatchOperation(const std::string& name,
                                 const std::function<bool(const Operation&)>& each) {
  grpc::ClientContext context;
  auto reader =
      impl_->operations_->WatchOperation(&context, Impl::Named<v1::WatchOperationRequest>(name));
  Operation last;
  bool enough = false;
  v1::WatchOperationResponse message;
  while (reader->Read(&message)) {
    if (enough) continue;  // drains messages in flight when the call was cancelled
    last = Decode(message.operation());
    enough = !each(last);
    if (enough) context.TryCancel();
  }
  const grpc::Status status = reader->Finish();
  if (!enough) Check(status);
  return last;
}

Operation Client::CancelOperation(const std::string& name) {
  return Decode(impl_
                    ->Call<v1::CancelOperationResponse>(
                        *impl_->operations_, &v1::OperationService::Stub::CancelOperation,
                        Impl::Named<v1::CancelOperationRequest>(name))
                    .operation());
}

// -- memory

Mapped Client::Map(const std::string& name, const MapOptions& options) {
  const std::shared_ptr<Handoff> known = impl_->handoff();
  if (name.rfind("volumes/", 0) == 0 && options.replica == 0 && options.accept.empty() &&
      known != nullptr && known->presented()) {
    try {
      return known->Take(name);  // one message; a ticket was presented before
    } catch (const Error& error) {
      if (error.reason != "SERVER_GONE" && error.reason != "NO_GRANT") throw;
    }
  }
  v1::ExportRequest request;
  request.set_name(name);
  request.set_replica(options.replica);
  request.set_lease_token(options.lease_token);
  request.set_lease_fence(options.lease_fence);
  for (const MemoryKind kind : options.accept)
    request.add_accept(static_cast<v1::ExportKind>(kind));
  const auto ticket =
      impl_->Call<v1::ExportResponse>(*impl_->exports_, &v1::ExportService::Stub::Export, request);
  return impl_->ConnectTo(ticket.socket_path())->Present(ticket.ticket());
}

Lent Client::ImportBuffer(int descriptor, const ImportOptions& options) {
  v1::ImportBufferRequest request;
  v1::Dtype dtype = v1::DTYPE_UNSPECIFIED;
  std::string name = options.scalar;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (!v1::Dtype_Parse("DTYPE_" + name, &dtype)) {
    throw BadField("scalar", "is '" + options.scalar + "'; allowed \"u8\" to \"c128\"");
  }
  request.mutable_type()->set_dtype(dtype);
  request.mutable_type()->set_lanes(options.lanes);
  for (const int64_t extent : options.shape)
    request.add_shape(static_cast<uint64_t>(std::max<int64_t>(extent, 0)));
  request.set_device(options.device);
  request.set_byte_size(options.bytes);
  request.mutable_labels()->insert(options.labels.begin(), options.labels.end());
  request.set_session_secret(options.session_secret);
  const auto ticket = impl_->Call<v1::ImportBufferResponse>(
      *impl_->sources_, &v1::IngestService::Stub::ImportBuffer, request);
  auto connection =
      Handoff::Connect(ticket.socket_path(), impl_->timeout_, handoff::v1::PURPOSE_IMPORT);
  Handoff::Loan loan = connection->Lend(ticket.ticket(), descriptor);
  return Lent(std::make_unique<Lent::Impl>(std::move(connection), std::move(loan)));
}

void Client::ForgetMappings() {
  if (const auto known = impl_->handoff(); known != nullptr) known->Forget();
}

// -- live products

FrameStream Client::Subscribe(const SubscribeOptions& options) {
  v1::SubscribeRequest request;
  Encode(options, &request);
  if (!options.same_host)
    return FrameStream(FramesOfCall(impl_->streams_.get(), std::move(request), impl_->reader_));
  v1::OpenFramesRequest open;
  *open.mutable_subscription() = std::move(request);
  const auto ticket = impl_->Call<v1::OpenFramesResponse>(
      *impl_->streams_, &v1::StreamService::Stub::OpenFrames, open);
  return FrameStream(FramesOfFeed(ticket.socket_path(), ticket.ticket()));
}

void Client::Subscribe(const SubscribeOptions& options,
                       const std::function<bool(const Frame&)>& each) {
  FrameStream stream = Subscribe(options);
  Frame frame;
  while (stream.Next(&frame)) {
    if (!each(frame)) return;
  }
}

// -- the server

std::string Client::InfoJson() {
  return ToJson(impl_->Call<v1::GetInfoResponse>(*impl_->system_, &v1::SystemService::Stub::GetInfo,
                                                 v1::GetInfoRequest()));
}

// grpc.health.v1.Health/Check; its proto comes with no Debian package. An empty request asks for
// the whole server; the answer's field 1 is 1 when it serves.
bool Client::Health() {
  grpc::GenericStub stub(impl_->channel_);
  const grpc::Slice empty("");
  grpc::ByteBuffer request(&empty, 1), response;
  grpc::ClientContext context;
  context.set_deadline(impl_->Deadline());
  grpc::CompletionQueue queue;
  grpc::Status status;
  auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &queue);
  call->StartCall();
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  Check(status);
  std::vector<grpc::Slice> slices;
  response.Dump(&slices);
  std::string bytes;
  for (const auto& slice : slices)
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return bytes == std::string("\x08\x01", 2);
}

}  // namespace octavo::client
