#include "client/cpp/cli/commands.h"

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/util/json_util.h"

#include "octavo/v1/types.pb.h"

#include "client/cpp/cli/field_flags.h"
#include "client/cpp/cli/terminal.h"
#include "client/cpp/cli/words.h"
#include "client/cpp/wire/error_details.h"
#include "gpu/base/size_text.h"

namespace octavo::cli {

std::shared_ptr<grpc::Channel> Session::channel(bool own_connection) const {
  if (const std::string problem = ProblemOfAddress(address); !problem.empty())
    throw CLI::ValidationError(address_from, problem);
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(64 << 20);
  if (own_connection) arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  try {
    return MakeChannel(address, arguments, login);
  } catch (const LoginError& error) {
    throw CLI::ValidationError(error.by, error.what());
  }
}

std::unique_ptr<grpc::ClientContext> Session::Context() const {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() +
                        std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1e3)));
  return context;
}

std::string ReasonOf(const grpc::Status& status) { return DetailsOf(status).reason; }

bool Check(Session& session, const grpc::Status& status) {
  if (status.ok()) return true;
  session.exit_code = status.error_code() == grpc::StatusCode::UNAVAILABLE ? kUnavailable : kFailed;
  const ErrorDetails details = DetailsOf(status);
  if (session.json) {
    google::rpc::Status out = details.status;
    out.set_code(status.error_code());
    out.set_message(status.error_message());
    PrintJson(out);
  }
  std::cerr << "octavo: " << Printable(status.error_message());
  if (!details.reason.empty()) std::cerr << " [" << Printable(details.reason) << "]";
  std::cerr << FlagsFor(session.app, details.field, status.error_message());
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE && details.status.details().empty()) {
    std::cerr << "\n  is octavod running, and at " << session.address
              << "? (--address, OCTAVO_ADDRESS)";
  }
  if (status.error_code() == grpc::StatusCode::UNAUTHENTICATED &&
      !session.login.token_file.empty()) {
    std::cerr << "\n  the token is that in " << session.login.token_file.value << " ("
              << session.login.token_file.by << ")";
  }
  const auto found = details.numbers.find("found");
  if (details.reason == "WRONG_ROLE" && found != details.numbers.end() &&
      absl::StrContains(found->second, "without a token")) {
    std::cerr
        << "\n  no token was given (--token-file, OCTAVO_TOKEN_FILE); on the server's host the "
           "Unix socket tells who calls (--address unix:/path, octavo info lists it)";
  }
  std::cerr << "\n";
  if (details.report && !details.report->admitted()) {
    PrintVerdict(std::cerr, *details.report);
    PrintHolders(std::cerr, *details.report);
  }
  return false;
}

std::string WithFlags(const Session& session, const std::string& warning) {
  return warning + FlagsFor(session.app, "", warning);
}

void PrintVerdict(std::ostream& out, const v1::AdmissionReport& report) {
  out << (report.admitted() ? "fits " : "does NOT fit ") << report.device() << ": wants "
      << Bytes(static_cast<double>(report.wanted_bytes())) << ", free "
      << Bytes(static_cast<double>(report.free_bytes())) << " of "
      << Bytes(static_cast<double>(report.budget_bytes())) << "\n";
}

void PrintHolders(std::ostream& out, const v1::AdmissionReport& report) {
  constexpr int kMost = 10;
  if (report.holders().empty()) return;
  out << "held by:\n";
  int64_t rest = report.bytes_left_out();
  for (int i = 0; i < report.holders_size(); ++i) {
    const auto& holder = report.holders(i);
    if (i >= kMost) {
      rest += holder.bytes();
      continue;
    }
    out << "  " << Bytes(static_cast<double>(holder.bytes())) << "  " << holder.name() << "  "
        << InWords(holder.kind()) << "  " << Printable(holder.title()) << "\n";
  }
  if (rest > 0)
    out << "  " << Bytes(static_cast<double>(rest)) << "  in "
        << std::max(0, report.holders_size() - kMost) + report.holders_left_out()
        << " more (octavo memory)\n";
}

std::string JsonOf(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(message, &text, options).ok()) text.clear();
  return text;
}

void PrintJson(const google::protobuf::Message& message) {
  if (const std::string text = JsonOf(message); !text.empty())
    std::cout << text << "\n" << std::flush;
}

std::string Bytes(double bytes) { return SizeText(bytes); }

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
  std::snprintf(text, sizeof text, "%.3g %% clipped",
                100 * static_cast<double>(voxels) / static_cast<double>(std::max<int64_t>(of, 1)));
  return text;
}

std::string Seconds(double seconds) {
  char text[48];
  if (seconds < 60) {
    std::snprintf(text, sizeof text, "%.1f s", seconds);
  } else {
    std::snprintf(text, sizeof text, "%.0f min %02.0f s",
                  static_cast<double>(static_cast<int64_t>(seconds / 60)),
                  seconds - 60 * static_cast<double>(static_cast<int64_t>(seconds / 60)));
  }
  return text;
}

}  // namespace octavo::cli
