#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/support/status.h"

#include "octavo/v1/types.pb.h"

namespace octavo {

/// What an error of the server carries for programs (proto/README.md, Errors).
struct ErrorDetails {
  std::string reason, field;
  std::map<std::string, std::string> numbers;
  std::optional<std::chrono::nanoseconds> retry_delay;  // the same call may succeed after this long
  std::optional<v1::AdmissionReport> report;
  google::rpc::Status status;  // as sent
};

/// Empty details for a status that carries none.
inline ErrorDetails DetailsOf(const grpc::Status& status) {
  ErrorDetails out;
  if (!out.status.ParseFromString(status.error_details())) return out;
  google::rpc::ErrorInfo info;
  google::rpc::RetryInfo retry;
  v1::AdmissionReport report;
  for (const auto& any : out.status.details()) {
    if (any.UnpackTo(&info)) {
      out.reason = info.reason();
      out.numbers = {info.metadata().begin(), info.metadata().end()};
      if (const auto field = out.numbers.find("field"); field != out.numbers.end()) {
        out.field = field->second;
        out.numbers.erase(field);
      }
    } else if (any.UnpackTo(&retry)) {
      out.retry_delay = std::chrono::seconds(retry.retry_delay().seconds()) +
                        std::chrono::nanoseconds(retry.retry_delay().nanos());
    } else if (any.UnpackTo(&report)) {
      out.report = report;
    }
  }
  return out;
}

}  // namespace octavo
