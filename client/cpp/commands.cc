#include "client/cpp/commands.h"

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "google/protobuf/util/json_util.h"

#include "octavo/v1/types.pb.h"

namespace octavo::cli {

std::shared_ptr<grpc::Channel> Session::channel() const {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(64 << 20);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

std::unique_ptr<grpc::ClientContext> Session::Context() const {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1e3)));
  return context;
}

std::string ReasonOf(const grpc::Status& status) {
  v1::RpcStatus rich;
  rich.ParseFromString(status.error_details());
  v1::ErrorDetail detail;
  for (const auto& any : rich.details()) any.UnpackTo(&detail);
  return detail.reason();
}

bool Check(Session& session, const grpc::Status& status) {
  if (status.ok()) return true;
  session.exit_code = status.error_code() == grpc::StatusCode::UNAVAILABLE ? kUnavailable : kFailed;
  v1::RpcStatus rich;
  rich.ParseFromString(status.error_details());
  v1::ErrorDetail detail;
  v1::AdmissionReport report;
  bool has_report = false;
  for (const auto& any : rich.details()) {
    any.UnpackTo(&detail);
    has_report |= any.UnpackTo(&report);
  }
  if (session.json) {
    v1::RpcStatus out = rich;
    out.set_code(status.error_code());
    out.set_message(status.error_message());
    PrintJson(out);
  }
  std::cerr << "octavo: " << status.error_message();
  if (!detail.reason().empty()) std::cerr << " [" << detail.reason() << "]";
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE && rich.details().empty()) {
    std::cerr << "\n  is octavod running, and at " << session.address << "? (--address, OCTAVO_ADDRESS)";
  }
  std::cerr << "\n";
  if (has_report && !report.admitted()) {
    std::cerr << "  " << report.device() << ": wanted " << Bytes(static_cast<double>(report.wanted_bytes())) << ", free "
              << Bytes(static_cast<double>(report.free_bytes())) << " of " << Bytes(static_cast<double>(report.budget_bytes())) << "\n";
    for (const auto& holder : report.holders()) {
      std::cerr << "    " << Bytes(static_cast<double>(holder.bytes())) << "  " << holder.name() << "  " << holder.what() << "  " << holder.title()
                << "\n";
    }
  }
  return false;
}

void PrintJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  if (google::protobuf::util::MessageToJsonString(message, &text, options).ok()) std::cout << text << "\n" << std::flush;
}

std::string Bytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, kUnits[unit]);
  return text;
}

std::string Count(double number) {
  static constexpr const char* kUnits[] = {"", " k", " M", " G"};
  int unit = 0;
  for (; number >= 1000 && unit < 3; ++unit) number /= 1000;
  char text[32];
  std::snprintf(text, sizeof text, "%.4g%s", number, kUnits[unit]);
  return text;
}

std::string Clipped(int64_t voxels, int64_t of) {
  char text[48];
  std::snprintf(text, sizeof text, "%.3g %% clipped", 100 * static_cast<double>(voxels) / static_cast<double>(std::max<int64_t>(of, 1)));
  return text;
}

std::string Seconds(double seconds) {
  char text[48];
  if (seconds < 60) {
    std::snprintf(text, sizeof text, "%.1f s", seconds);
  } else {
    std::snprintf(text, sizeof text, "%.0f min %02.0f s", static_cast<double>(static_cast<int64_t>(seconds / 60)),
                  seconds - 60 * static_cast<double>(static_cast<int64_t>(seconds / 60)));
  }
  return text;
}

}  // namespace octavo::cli
