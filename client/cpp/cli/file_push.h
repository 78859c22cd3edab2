#pragma once

#include <memory>
#include <string>
#include <vector>

#include "octavo/v1/source.grpc.pb.h"

#include "client/cpp/cli/commands.h"

namespace octavo::storage {
struct RecordFile;
}

namespace octavo::cli {

/// A file of raw records that the server does not reach and this computer does: read here and
/// pushed.
class FilePush {
 public:
  /// Whether a server that refused to replay a file, for this reason, may get it pushed.
  static bool Instead(const std::string& reason);
  /// Opens the file that `spec` replays and makes `spec` one that is pushed, with what the file
  /// says of its records. Null, with `error` set, where it cannot be; empty `error`: there is no
  /// such file here.
  static std::unique_ptr<FilePush> Open(v1::ScanSpec* spec, std::string* error);
  ~FilePush();

  /// What is sent, in words.
  std::string Describe() const;
  /// What the file looks like instead of what it is said to be.
  const std::vector<std::string>& doubts() const { return doubts_; }
  /// Sends records until the scan wants no more or the file has no more; an interrupt cancels the
  /// scan. Sets the exit code.
  void Send(Session& session, const std::string& scan);

 private:
  class Answers;
  FilePush(storage::RecordFile file, std::vector<std::string> doubts, uint32_t loops,
           double rate_hz);
  /// Returns what went wrong here, empty if nothing did.
  std::string Write(grpc::ClientReaderWriter<v1::PushRequest, v1::PushResponse>& stream,
                    Answers& answers) const;
  void CompareWith(uint64_t wanted) const;

  const std::unique_ptr<const storage::RecordFile> file_;
  const std::vector<std::string> doubts_;
  const uint32_t loops_;  // 0 = as long as the scan wants records
  const double rate_hz_;  // 0 = as fast as they are taken
};

}  // namespace octavo::cli
