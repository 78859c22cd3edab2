#pragma once

#include <string>
#include <vector>

#include "client/cpp/cli/commands.h"
#include "client/cpp/wire/seconds.h"

namespace octavo::cli {

/// What a new buffer gets beside its contents: flags, and the fields of a request.
struct NewBuffer {
  std::vector<std::string> labels;
  double ttl_s = 0;

  void AddTo(CLI::App* command) {
    command->add_option("--label", labels, "key=value, may be repeated");
    command->add_option("--ttl", ttl_s,
                        "seconds without use after which it is destroyed (default: never)");
  }
  template <class Request>
  void Fill(Request* request) const {
    for (const std::string& label : labels) {
      const size_t equals = label.find('=');
      if (equals == std::string::npos)
        throw CLI::ValidationError("--label", "'" + label + "' is not key=value");
      (*request->mutable_labels())[label.substr(0, equals)] = label.substr(equals + 1);
    }
    if (ttl_s != 0) *request->mutable_ttl() = DurationOf(ttl_s);
  }
};

/// The same for a buffer that a call computes, which can be repeated with its id.
struct ComputedBuffer {
  NewBuffer made;
  std::string request_id;

  void AddTo(CLI::App* command) {
    made.AddTo(command);
    command->add_option("--request-id", request_id,
                        "a retry with the same id returns the first buffer");
  }
  template <class Request>
  void Fill(Request* request) const {
    made.Fill(request);
    request->set_request_id(request_id);
  }
};

}  // namespace octavo::cli
