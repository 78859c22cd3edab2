// octavo buffer: arrays in the memory of the server's devices.

#include <fstream>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "octavo/v1/buffer.grpc.pb.h"

#include "client/cpp/cli/commands.h"
#include "client/cpp/cli/format_flags.h"
#include "client/cpp/cli/json_spec.h"
#include "client/cpp/cli/list_flags.h"
#include "client/cpp/cli/long_work.h"
#include "client/cpp/cli/new_buffer.h"
#include "client/cpp/cli/npy_file.h"
#include "client/cpp/cli/output_file.h"
#include "client/cpp/cli/owner_text.h"
#include "client/cpp/cli/terminal.h"
#include "client/cpp/cli/words.h"
#include "client/cpp/wire/seconds.h"

namespace octavo::cli {
namespace {

constexpr size_t kMessageBytes = 1 << 20;

std::unique_ptr<v1::BufferService::Stub> StubOf(const Session& session) {
  return v1::BufferService::NewStub(session.channel());
}

void PrintBuffer(const Session& session, const v1::Buffer& buffer) {
  if (session.json) {
    PrintJson(buffer);
    return;
  }
  std::cout << buffer.name() << "  " << ShortName(buffer.state()) << "  ["
            << absl::StrJoin(buffer.shape(), ", ") << "] " << ShortName(buffer.type().dtype());
  if (buffer.type().lanes() > 1) std::cout << " x " << buffer.type().lanes();
  std::cout << "  " << Bytes(static_cast<double>(buffer.byte_size())) << " on "
            << absl::StrJoin(buffer.replicas(), ", ", [](std::string* out, const v1::Replica& one) {
                 *out += one.device();
               });
  if (!buffer.coherent() && buffer.state() == v1::BUFFER_STATE_READY)
    std::cout << "  replicas differ";
  if (!buffer.origin().empty()) std::cout << "  made of " << buffer.origin();
  if (!buffer.client().empty()) std::cout << "  client " << Printable(buffer.client());
  std::cout << OwnerText(buffer);
  if (buffer.is_private()) std::cout << "  private";
  if (buffer.shared_leases() + buffer.exclusive_leases() > 0)
    std::cout << "  " << buffer.shared_leases() + buffer.exclusive_leases() << " leases";
  if (buffer.has_expire_time())
    std::cout << "  expires in " << Seconds(SecondsUntil(buffer.expire_time()));
  for (const auto& [key, value] : buffer.labels())
    std::cout << "  " << Printable(key) << "=" << Printable(value);
  std::cout << "\n";
}

// Writes the array of the file into all replicas. Returns whether that succeeded.
bool Write(Session& session, const NpyFile& array, const std::string& path, const std::string& name,
           v1::Buffer* buffer) {
  std::ifstream file(path, std::ios::binary);
  file.seekg(array.data_offset);
  grpc::ClientContext context;  // as long as it takes
  v1::WriteBufferResponse answer;
  const auto stream = StubOf(session)->WriteBuffer(&context, &answer);
  v1::WriteBufferRequest message;
  auto* header = message.mutable_header();
  header->set_name(name);
  header->set_total_bytes(static_cast<uint64_t>(array.bytes));
  bool open = stream->Write(message);
  ProgressBar bar("writing");
  for (int64_t done = 0; open && done < array.bytes;) {
    std::string data(static_cast<size_t>(std::min<int64_t>(array.bytes - done,
                                                           static_cast<int64_t>(kMessageBytes))),
                     '\0');
    if (!file.read(data.data(), static_cast<std::streamsize>(data.size()))) break;
    done += static_cast<int64_t>(data.size());
    message.Clear();
    message.set_data(std::move(data));
    open = stream->Write(message);
    bar.Update(static_cast<double>(done) / static_cast<double>(array.bytes),
               Bytes(static_cast<double>(done)), 0);
  }
  stream->WritesDone();
  if (!Check(session, stream->Finish())) return false;
  *buffer = answer.buffer();
  return true;
}

void Put(Session& session, const std::string& path, const std::vector<std::string>& devices,
         const NewBuffer& flags) {
  const NpyFile array = OpenNpy("file", path);
  v1::CreateBufferRequest create;
  create.mutable_type()->set_dtype(array.dtype);
  for (const int64_t extent : array.shape) create.add_shape(static_cast<uint64_t>(extent));
  for (const std::string& device : devices) create.mutable_placement()->add_devices(device);
  create.set_fill(v1::CreateBufferRequest::FILL_UNINITIALIZED);
  flags.Fill(&create);
  v1::CreateBufferResponse created;
  if (!Check(session, StubOf(session)->CreateBuffer(session.Context().get(), create, &created)))
    return;
  v1::Buffer buffer;
  if (Write(session, array, path, created.buffer().name(), &buffer))
    return PrintBuffer(session, buffer);
  // Nobody else knows the name of a buffer without contents.
  v1::DestroyBufferRequest destroy;
  destroy.set_name(created.buffer().name());
  v1::DestroyBufferResponse destroyed;
  (void)StubOf(session)->DestroyBuffer(session.Context().get(), destroy, &destroyed);
}

void Get(Session& session, const v1::ReadBufferRequest& request, const std::string& path) {
  grpc::ClientContext context;  // as long as it takes
  const auto reader = StubOf(session)->ReadBuffer(&context, request);
  v1::ReadBufferResponse part;
  std::ofstream file;
  uint64_t total = 0, done = 0;
  {
    ProgressBar bar("reading");
    while (reader->Read(&part)) {
      if (part.has_header()) {
        total = part.header().total_bytes();
        file.open(path, std::ios::binary);
        file << NpyHead(part.header().type(),
                        {part.header().shape().begin(), part.header().shape().end()});
      }
      file.write(part.data().data(), static_cast<std::streamsize>(part.data().size()));
      done += part.data().size();
      bar.Update(total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0,
                 Bytes(static_cast<double>(done)), 0);
    }
  }
  if (!Check(session, reader->Finish())) return;
  file.close();
  if (!file || done != total) {
    std::cerr << "octavo: could not write " << path << "\n";
    session.exit_code = kFailed;
    return;
  }
  std::cout << path << "  " << Bytes(static_cast<double>(done)) << "\n";
}

void AddPut(CLI::App* buffer, Session& session) {
  auto* put = buffer->add_subcommand("put", "a new buffer with the array of a .npy file");
  const auto path = std::make_shared<std::string>();
  const auto devices = std::make_shared<std::vector<std::string>>();
  const auto flags = std::make_shared<NewBuffer>();
  put->add_option("file", *path, "a .npy file here")->required();
  put->add_option("--devices", *devices, "devices/N, or N, with commas between (default: all)")
      ->delimiter(',')
      ->transform(DeviceName());
  flags->AddTo(put);
  put->callback([&session, path, devices, flags] { Put(session, *path, *devices, *flags); });
}

void AddGet(CLI::App* buffer, Session& session) {
  auto* get = buffer->add_subcommand("get", "its array into a .npy file here");
  const auto name = std::make_shared<std::string>();
  const auto path = std::make_shared<std::string>("buffer.npy");
  const auto replica = std::make_shared<uint32_t>(0);
  const auto start = std::make_shared<std::vector<int64_t>>(),
             count = std::make_shared<std::vector<int64_t>>();
  get->add_option("buffer", *name, "buffers/...")->required()->check(BufferName());
  get->add_option("-o,--output", *path, "the file (default buffer.npy)");
  auto* one = get->add_option("--replica", *replica, "this one (default: any of them)");
  get->add_option("--start", *start, "the first element along each axis (default 0)")
      ->delimiter(',');
  get->add_option("--count", *count, "how many along each axis; 0 = to the end (default)")
      ->delimiter(',');
  get->callback([&session, name, path, replica, start, count, one] {
    v1::ReadBufferRequest request;
    request.set_name(*name);
    if (one->count() > 0) request.mutable_selector()->set_replica(*replica);
    request.mutable_start()->Add(start->begin(), start->end());
    request.mutable_count()->Add(count->begin(), count->end());
    CheckNpyName("--output", *path);
    CheckWritable("--output", *path);
    Get(session, request, *path);
  });
}

void AddApply(CLI::App* buffer, Session& session) {
  auto* apply = buffer->add_subcommand(
      "apply", "operations on the array of a buffer or a volume, into a buffer");
  const auto name = std::make_shared<std::string>(), output = std::make_shared<std::string>();
  const auto operations = std::make_shared<std::vector<std::string>>();
  const auto flags = std::make_shared<NewBuffer>();
  apply->add_option("input", *name, "buffers/... or volumes/...")
      ->required()
      ->check(BufferOrVolumeName());
  apply
      ->add_option("--operation", *operations,
                   "an ArrayOperation as JSON, '{\"mip\": {\"axis\": 0}}', or a file of it; may be "
                   "repeated: each works on the result of the one before")
      ->required();
  apply
      ->add_option("--output", *output,
                   "buffers/... of the resulting type and shape (default: a new one)")
      ->check(BufferName());
  flags->AddTo(apply);
  apply->callback([&session, name, output, operations, flags] {
    v1::ApplyOpRequest request;
    request.set_input(*name);
    for (const std::string& one : *operations)
      ReadJsonSpec(one, request.add_operations(), "--operation");
    request.set_output(*output);
    flags->Fill(&request);
    v1::ApplyOpResponse answer;
    if (!Check(session, StubOf(session)->ApplyOp(session.Context().get(), request, &answer)))
      return;
    v1::WaitBufferRequest wait;
    wait.set_name(answer.buffer().name());
    v1::WaitBufferResponse done;
    grpc::ClientContext context;  // as long as the operations take
    if (Check(session, StubOf(session)->WaitBuffer(&context, wait, &done)))
      PrintBuffer(session, done.buffer());
  });
}

/// Names of axes: "z,y,x".
CLI::Validator AxisName() { return OneOf({"x", "y", "z"}); }

void Commit(Session& session, v1::CommitBufferRequest request) {
  request.mutable_wait();  // answer as soon as it has begun
  v1::CommitBufferResponse answer;
  InterruptibleWork work(session);
  const grpc::Status begun =
      StubOf(session)->CommitBuffer(session.Context().get(), request, &answer);
  work.Begun(answer.operation().name());
  if (!Check(session, begun)) return;
  const auto ended = FollowOperation(session, answer.operation(), "committing");
  if (work.interrupted() && ended.has_value())
    std::cerr << "octavo: it was too late to cancel: committing has succeeded\n";
  else if (work.interrupted())
    session.exit_code = kInterrupted;
  if (ended.has_value() && !session.json) PrintCommitted(ended->commit());
}

void AddCommit(CLI::App* buffer, Session& session) {
  auto* commit = buffer->add_subcommand(
      "commit", "write it to the server's storage, as a volume; the buffer stays");
  const auto request = std::make_shared<v1::CommitBufferRequest>();
  const auto flags = std::make_shared<FormatFlags>();
  const auto name = std::make_shared<std::string>(), destination = std::make_shared<std::string>(),
             title = std::make_shared<std::string>(), request_id = std::make_shared<std::string>(),
             lease = std::make_shared<std::string>();
  const auto axes = std::make_shared<std::vector<std::string>>();
  const auto spacing = std::make_shared<std::vector<double>>();
  const auto replica = std::make_shared<uint32_t>(0);
  commit->add_option("buffer", *name, "buffers/...")->required()->check(BufferName());
  commit
      ->add_option("destination", *destination,
                   "path below the server's storage root, with {scan} (the buffer's id) {title} "
                   "{date}; its ending tells the format, else --format")
      ->required();
  commit
      ->add_option("--axes", *axes,
                   "names of its dimensions, slowest first: z,y,x; those that it lacks get the "
                   "extent 1")
      ->required()
      ->delimiter(',')
      ->check(AxisName());
  commit
      ->add_option("--spacing-um", *spacing,
                   "micrometres from sample to sample along each; 0 = not known (default)")
      ->delimiter(',');
  commit->add_option("--title", *title, "what it is called in the file, and {title}");
  auto* one = commit->add_option("--replica", *replica, "this one (default: any of them)");
  flags->AddTo(commit);
  commit->add_option("--request-id", *request_id,
                     "a retry with the same id finds the first commit");
  commit->add_option("--lease", *lease, "the token of your own lease of the buffer");
  commit->callback([&session, request, flags, name, destination, title, request_id, lease, axes,
                    spacing, replica, one] {
    request->set_name(*name);
    request->mutable_axes()->Add(axes->begin(), axes->end());
    request->mutable_spacing_um()->Add(spacing->begin(), spacing->end());
    request->set_title(*title);
    if (one->count() > 0) request->set_replica(*replica);
    request->set_request_id(*request_id);
    request->set_lease_token(*lease);
    flags->Fill("destination", *destination, request->mutable_options());
    Commit(session, *request);
  });
}

}  // namespace

void PrintBufferNow(Session& session, const std::string& name) {
  v1::GetBufferRequest request;
  request.set_name(name);
  v1::GetBufferResponse answer;
  if (Check(session, StubOf(session)->GetBuffer(session.Context().get(), request, &answer)))
    PrintBuffer(session, answer.buffer());
}

void AddBufferCommands(CLI::App& app, Session& session) {
  auto* buffer =
      app.add_subcommand("buffer", "arrays in the memory of the devices")->require_subcommand(1);
  const auto name = std::make_shared<std::string>();

  auto* list = buffer->add_subcommand("list", "buffers, oldest first");
  const ListFlags list_flags;
  list_flags.AddTo(list, "state = READY AND byte_size > 1000000");
  list->callback([&session, list_flags] {
    auto stub = StubOf(session);
    list_flags.EachPage<v1::ListBuffersResponse>(
        session, v1::ListBuffersRequest(), "",
        [&](auto* context, const auto& page, auto* answer) {
          return stub->ListBuffers(context, page, answer);
        },
        [&](const auto& answer) {
          for (const auto& one : answer.buffers()) PrintBuffer(session, one);
        });
  });

  auto* show = buffer->add_subcommand("show", "one buffer");
  show->add_option("buffer", *name, "buffers/...")->required()->check(BufferName());
  show->callback([&session, name] {
    v1::GetBufferRequest request;
    request.set_name(*name);
    v1::GetBufferResponse answer;
    if (Check(session, StubOf(session)->GetBuffer(session.Context().get(), request, &answer)))
      PrintBuffer(session, answer.buffer());
  });

  AddPut(buffer, session);
  AddGet(buffer, session);
  AddApply(buffer, session);
  AddCommit(buffer, session);

  auto* destroy = buffer->add_subcommand("destroy", "free its memory; its data are gone");
  const auto detach = std::make_shared<bool>(false);
  const auto lease = std::make_shared<std::string>();
  destroy->add_option("buffer", *name, "buffers/...")->required()->check(BufferName());
  destroy->add_flag("--detach-exports", *detach, "even if other processes map it");
  destroy->add_option("--lease", *lease, "the token of your own exclusive lease");
  destroy->callback([&session, name, detach, lease] {
    v1::DestroyBufferRequest request;
    request.set_name(*name);
    request.set_detach_exports(*detach);
    request.set_lease_token(*lease);
    v1::DestroyBufferResponse answer;
    if (!Check(session, StubOf(session)->DestroyBuffer(session.Context().get(), request, &answer)))
      return;
    if (session.json) return PrintJson(answer);
    std::cout << *name << "  destroyed\n";
  });
}

}  // namespace octavo::cli
