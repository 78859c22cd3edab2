#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/time_util.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/impl/codegen/client_unary_call.h"

#include "octavo/v1/system.grpc.pb.h"

#include "client/cpp/cli/commands.h"
#include "client/cpp/cli/host_memory_text.h"
#include "client/cpp/cli/list_flags.h"
#include "client/cpp/cli/words.h"

namespace octavo::cli {
namespace {

/// "direct, 3.2 GB/s: measured with ..."
std::string BackendText(const v1::StorageBackend& backend) {
  std::string text = backend.kind() == v1::STORAGE_BACKEND_KIND_UNSPECIFIED
                         ? "buffered"
                         : std::string(InWords(backend.kind()));
  text += " - " + backend.reason();
  if (!backend.cufile().empty()) text += "; not by cuFile: " + backend.cufile();
  if (backend.cufile_errors() > 0)
    text += "; " + std::to_string(backend.cufile_errors()) + " reads that cuFile failed";
  return text;
}

struct ProbeFlags {
  std::vector<std::string> roots;
  std::string device;
  int64_t bytes = 0;
};

/// {"root": "/data", "backend": {...}}: without the root, the lines of several roots could not be
/// told from each other.
void PrintProbeJson(const std::string& root, const v1::StorageBackend& backend) {
  google::protobuf::Value name;
  name.set_string_value(root);
  std::cout << "{\"root\":" << JsonOf(name) << ",\"backend\":" << JsonOf(backend) << "}\n"
            << std::flush;
}

/// Measures the roots one after the other; without any, all that the server has.
void ProbeStorage(Session& session, const ProbeFlags& flags) {
  auto stub = v1::SystemService::NewStub(session.channel());
  std::vector<std::string> roots = flags.roots;
  if (roots.empty()) {
    v1::GetInfoResponse info;
    if (!Check(session, stub->GetInfo(session.Context().get(), {}, &info))) return;
    for (const auto& root : info.storage()) {
      if (std::find(roots.begin(), roots.end(), root.path()) == roots.end())
        roots.push_back(root.path());
    }
  }
  for (const std::string& root : roots) {
    v1::ProbeStorageRequest request;
    request.set_root(root);
    request.set_device(flags.device);
    request.set_bytes(flags.bytes);
    v1::ProbeStorageResponse response;
    grpc::ClientContext context;  // a slow drive takes long
    const grpc::Status status = stub->ProbeStorage(&context, request, &response);
    // The other roots are measured nevertheless.
    if (!Check(session, status)) continue;
    if (session.json)
      PrintProbeJson(root, response.backend());
    else
      std::cout << root << ": " << BackendText(response.backend()) << "\n";
  }
}

void PrintTls(const v1::TlsInfo& tls) {
  const char* clients = "clients have no certificates";
  if (tls.client_certificates() == v1::TlsInfo::CLIENT_CERTIFICATES_OPTIONAL)
    clients = "clients may have certificates";
  if (tls.client_certificates() == v1::TlsInfo::CLIENT_CERTIFICATES_REQUIRED)
    clients = "clients need certificates";
  std::cout << "TLS: " << clients;
  if (tls.client_certificates() != v1::TlsInfo::CLIENT_CERTIFICATES_NOT_TAKEN)
    std::cout << ", those without a line are " << InWords(tls.certificate_role());
  std::cout << "; the server's expires "
            << google::protobuf::util::TimeUtil::ToString(tls.expire_time()) << "\n";
}

// What a stop of the server does with held volumes, in a line.
std::string StopText(const v1::StopForecast& stop) {
  const auto seconds = [](const google::protobuf::Duration& time) {
    return Seconds(static_cast<double>(time.seconds()) + time.nanos() * 1e-9);
  };
  std::string text = "at a stop held volumes: " + InWords(stop.on_held());
  if (stop.on_held() == v1::StopForecast::ON_HELD_LOSE)
    return text + " (drain.on_held is lose, or it is spill and spill.disk_bytes is 0)";
  absl::StrAppend(&text, "; to write now: ", stop.volumes(), ", ",
                  Bytes(static_cast<double>(stop.bytes())));
  if (stop.has_expected_duration() && stop.bytes() > 0) {
    absl::StrAppend(&text, " in ", seconds(stop.expected_duration()), " at ",
                    Bytes(stop.disk_bytes_per_s()), "/s");
  }
  if (stop.has_limit()) absl::StrAppend(&text, ", limit ", seconds(stop.limit()));
  if (stop.bytes() > stop.room_bytes()) {
    absl::StrAppend(&text, "; NO ROOM: the disk takes only ",
                    Bytes(static_cast<double>(stop.room_bytes())));
  }
  return text;
}

/// What the caller uses, of what has a limit or is used.
void PrintQuotas(const v1::GetInfoResponse& info) {
  const v1::Caller& caller = info.caller();
  for (const v1::Quota& quota : caller.quotas()) {
    if (quota.used() == 0 && quota.allowed() == 0) continue;
    const auto amount = [&](int64_t n) {
      return quota.kind() == v1::Quota::KIND_DEVICE_BYTES ? Bytes(static_cast<double>(n))
                                                          : absl::StrCat(n);
    };
    std::cout << "your quota of " << InWords(quota.kind()) << ": " << amount(quota.used())
              << " used, "
              << (quota.allowed() == 0 ? "no limit" : amount(quota.allowed()) + " allowed") << "\n";
  }
  for (const std::string& root : caller.storage_roots())
    std::cout << "your commits and imports may name the root " << root << "\n";
  // A relative destination lies in the first root for commits.
  const auto first = std::find_if(
      info.storage().begin(), info.storage().end(),
      [](const auto& root) { return root.use() == v1::GetInfoResponse::StorageRoot::USE_COMMIT; });
  const auto is_first = [&](const std::string& root) {
    return first != info.storage().end() &&
           absl::StripSuffix(first->path(), "/") == absl::StripSuffix(root, "/");
  };
  if (!caller.storage_roots().empty() &&
      std::none_of(caller.storage_roots().begin(), caller.storage_roots().end(), is_first)) {
    std::cout << "give your commits absolute paths, such as " << caller.storage_roots(0)
              << "/NAME: relative ones lie in the first storage root, which is not yours "
                 "(quota.roots)\n";
  }
}

/// Whether a line of GetInfoResponse.recovered says what is wrong now: it names a key of the
/// configuration, or a grant.
bool IsCondition(absl::string_view line) {
  for (const absl::string_view begin : {"quota.", "history.", "security.", "spill.", "grants/"}) {
    if (absl::StartsWith(line, begin)) return true;
  }
  return false;
}

void Info(Session& session) {
  v1::GetInfoResponse info;
  if (!Check(session, v1::SystemService::NewStub(session.channel())
                          ->GetInfo(session.Context().get(), {}, &info)))
    return;
  if (session.json) {
    PrintJson(info);
    return;
  }
  std::cout << "octavod " << info.version() << "  server " << info.server_id() << "  ("
            << info.build() << ")" << (info.draining() ? "  DRAINING" : "") << "\n";
  for (const auto& backend : info.backends()) {
    std::cout << "backend " << backend.name() << ": "
              << (backend.chosen() ? "chosen" : "not chosen") << " - " << backend.reason() << "\n";
  }
  std::cout << HostMemoryText(info.host_memory()) << "\n";
  for (const auto& source : info.sources()) {
    std::cout << "source " << source.name() << ": "
              << (source.available() ? "available" : "not available") << " - " << source.reason()
              << "\n";
  }
  for (const auto& root : info.storage()) {
    std::cout << InWords(root.use()) << " root " << root.path() << ": " << InWords(root.mode())
              << ", " << Bytes(static_cast<double>(root.free_bytes())) << " free";
    if (root.quarantine_entries() > 0) {
      std::cout << ", " << root.quarantine_entries()
                << (root.quarantine_entries() == 1 ? " entry (" : " entries (")
                << Bytes(static_cast<double>(root.quarantine_bytes())) << ") in .octavo-quarantine";
    }
    std::cout << "\n  into a device: " << BackendText(root.backend()) << "\n";
  }
  for (const auto& address : info.listening()) std::cout << "listening on " << address << "\n";
  for (const auto& address : info.insecure_listening()) {
    std::cout << "INSECURE: other hosts can reach " << address
              << (info.has_tls() ? " without a login" : " without TLS") << " (security.insecure)\n";
  }
  if (info.has_tls()) PrintTls(info.tls());
  std::cout << "TCP without a token: " << InWords(info.loopback_role())
            << " (listen.loopback_role); tokens: "
            << (info.takes_tokens() ? "taken" : "none are taken") << "\n";
  if (!info.insecure_listening().empty() && !info.has_tls() && !info.takes_tokens()) {
    std::cout << "other hosts, without a login: " << InWords(info.insecure_role())
              << " (security.insecure_role)\n";
  }
  std::cout << "you are " << info.caller().name() << ", " << InWords(info.caller().role())
            << (info.caller().project().empty() ? "" : ", of project " + info.caller().project())
            << ": " << info.caller().found() << "\n";
  PrintQuotas(info);
  std::cout << StopText(info.stop()) << "\n";
  // What is lost comes first.
  for (const bool lost : {true, false}) {
    for (const auto& line : info.recovered()) {
      if ((absl::StrContains(line, ": lost at ") || absl::StrContains(line, "LOST: ")) == lost)
        std::cout << (lost                ? "LOST: "
                      : IsCondition(line) ? "warning: "
                                          : "recovered: ")
                  << line << "\n";
    }
  }
}

void PrintDevice(const Session& session, const v1::DeviceStatus& device) {
  if (session.json) {
    PrintJson(device);
    return;
  }
  std::cout << device.name() << "  " << device.backend() << "  " << device.model() << "  "
            << (device.healthy() ? "healthy" : "DOWN: " + device.reason()) << "\n  budget "
            << Bytes(static_cast<double>(device.budget_bytes())) << ": reserved "
            << Bytes(static_cast<double>(device.reserved_bytes())) << ", held "
            << Bytes(static_cast<double>(device.held_bytes())) << ", free "
            << Bytes(static_cast<double>(device.free_bytes())) << "; " << device.running_scans()
            << " running scans, " << device.running_jobs() << " jobs\n";
}

void Devices(Session& session, const ListFlags& flags) {
  auto stub = v1::SystemService::NewStub(session.channel());
  flags.EachPage<v1::ListDevicesResponse>(
      session, v1::ListDevicesRequest(), "",
      [&](auto* context, const auto& page, auto* answer) {
        return stub->ListDevices(context, page, answer);
      },
      [&](const auto& answer) {
        for (const auto& device : answer.devices()) PrintDevice(session, device);
      });
}

// grpc.health.v1.Health/Check. Its proto comes with no Debian package; request and answer are one
// field each: an empty request asks for the whole server, the answer's field 1 is 1 when it serves.
void Health(Session& session) {
  grpc::GenericStub stub(session.channel());
  grpc::ByteBuffer request, response;
  const grpc::Slice empty("");
  request = grpc::ByteBuffer(&empty, 1);
  auto context = session.Context();
  grpc::CompletionQueue queue;
  grpc::Status status;
  auto call = stub.PrepareUnaryCall(context.get(), "/grpc.health.v1.Health/Check", request, &queue);
  call->StartCall();
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  if (!Check(session, status)) return;
  std::vector<grpc::Slice> slices;
  response.Dump(&slices);
  std::string bytes;
  for (const auto& slice : slices)
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  const bool serving = bytes == std::string("\x08\x01", 2);
  if (session.json) {
    std::cout << "{\"serving\": " << (serving ? "true" : "false") << "}\n";
  } else {
    std::cout << (serving ? "SERVING" : "NOT_SERVING") << "\n";
  }
  if (!serving) session.exit_code = kFailed;
}

}  // namespace

void AddSystemCommands(CLI::App& app, Session& session) {
  app.add_subcommand("info", "version, backends and why, storage, addresses")->callback([&session] {
    Info(session);
  });
  auto* devices = app.add_subcommand("devices", "memory and health of the devices");
  const ListFlags flags;
  flags.AddTo(devices, "healthy = true AND free_bytes > 1e9", "free_bytes desc, name");
  devices->callback([&session, flags] { Devices(session, flags); });
  auto* storage = app.add_subcommand("storage", "how files come into the devices");
  storage->require_subcommand(1);
  auto* probe = storage->add_subcommand(
      "probe",
      "measures which way of reading files into a device is the fastest (page cache, O_DIRECT, "
      "cuFile), and why cuFile is not used; the server reads that way from then on");
  auto probe_flags = std::make_shared<ProbeFlags>();
  probe->add_option("root", probe_flags->roots,
                    "storage roots, as octavo info lists them; default: all");
  probe->add_option("--device", probe_flags->device, "devices/<n>; default devices/0");
  probe
      ->add_option("--bytes", probe_flags->bytes,
                   "to read, 16 MiB to 16 GiB (\"1GiB\"); default 256 MiB")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(int64_t{16} << 20, int64_t{16} << 30));
  probe->callback([&session, probe_flags] { ProbeStorage(session, *probe_flags); });
  app.add_subcommand("health", "exit code 0 if the server serves")->callback([&session] {
    Health(session);
  });
}

}  // namespace octavo::cli
