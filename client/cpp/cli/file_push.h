#pragma once

#include <memory>
#include <string>
#include <vector>

#include "octavo/v1/ingest.grpc.pb.h"

#include "client/cpp/cli/commands.h"

namespace octavo::storage {
struct RecordFile;
}

namespace octavo::cli {

/// Reads a file of raw records that the server cannot reach but this computer can, and pushes them.
class FilePush {
 public:
  /// Whether the client may push a file that the server refused to replay for this reason.
  static bool Instead(const std::string& reason);
  /// Opens the file that `spec` replays and changes `spec` to a pushed source with the file's form
  /// of records. Null with `error` set if that fails; empty `error`: there is no such file here.
  static std::unique_ptr<FilePush> Open(v1::ScanSpec* spec, std::string* error);
  ~FilePush();

  /// The kind of the file at `path` here, in words, if it holds no raw numbers: "a PNG picture".
  /// Empty if it may hold some, or is not here.
  static std::string KindOfOther(const std::string& path);

  /// The data to send, in words.
  std::string Describe() const;
  /// Warnings if the file contradicts its declared form.
  const std::vector<std::string>& doubts() const { return doubts_; }
  /// Warns if the file holds more or fewer records than the scan wants; 0 = it is endless.
  void CompareWith(uint64_t wanted) const;
  /// Sends records until the scan wants no more or the file ends; an interrupt cancels the scan.
  /// Sets the exit code.
  void Send(Session& session, const std::string& scan);

 private:
  class Answers;
  FilePush(storage::RecordFile file, std::vector<std::string> doubts, uint32_t loops,
           double rate_hz);
  /// Returns a local error, or empty.
  std::string Write(grpc::ClientReaderWriter<v1::PushRequest, v1::PushResponse>& stream,
                    Answers& answers) const;

  const std::unique_ptr<const storage::RecordFile> file_;
  const std::vector<std::string> doubts_;
  const uint32_t loops_;  // 0 = as long as the scan wants records
  const double rate_hz_;  // 0 = as fast as the server takes them
};

}  // namespace octavo::cli
