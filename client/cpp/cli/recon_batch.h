#pragma once

#include <cstddef>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "grpcpp/client_context.h"

#include "octavo/v1/job.pb.h"
#include "octavo/v1/volume.pb.h"

#include "client/cpp/cli/commands.h"
#include "client/cpp/cli/recon_flags.h"

namespace octavo::cli {

/// The scans of one octavo recon with several files or --output-dir: each is a job whose result the
/// server writes to storage, a few at a time. One that fails does not end the others.
///
/// Standard output: a table, or with --json an object a scan, in the order of the files; the error
/// stream tells what happens meanwhile.
class ReconBatch {
 public:
  /// Throws CLI::ValidationError for flags without effect beside the others.
  ReconBatch(Session& session, const ReconFlags& flags);

  /// Runs all scans, and sets the exit code: kFailed if one failed, kUnavailable without a server,
  /// kInterrupted after an interrupt, which cancels the jobs that have begun. What is being written
  /// then, or is written, stays.
  void Run();
  /// Only prints what each would need (--plan).
  void Plan();

 private:
  // kLeft: the job of another client, which was waited for until the interrupt, and goes on
  enum class State { kNotBegun, kBegun, kDone, kExists, kFailed, kCancelled, kLeft };
  struct Scan {
    std::string file;
    v1::JobSpec spec;
    State state = State::kNotBegun;
    v1::Job job;          // as it was last seen
    bool joined = false;  // the job was submitted by an earlier client
    v1::Volume volume;    // its result
    double seconds = 0;
    std::string problem;  // why it failed
  };

  void Work();  // a thread: takes one scan after the other
  Scan* Next();
  void Make(Session& session, Scan& scan);
  bool Begin(Session& session, Scan& scan);
  /// The server refused the scan with `exists`, since something is where its result would go.
  void Skip(Scan& scan, const grpc::Status& exists);
  /// Waits for a job of an earlier client that makes this scan's result, if there is one. Whether
  /// the scan has come to its end with that.
  bool Join(Session& session, Scan& scan);
  /// What becomes of a scan whose job has ended.
  void End(Session& session, Scan& scan);
  void Follow(Session& session, Scan& scan);
  /// Sets the scan's volume as it is now; false if it failed.
  bool LookAtVolume(Session& session, Scan& scan);
  bool Interrupted();
  void AwaitCommit(Session& session, Scan& scan);
  void Interrupt();
  void Say(const Scan& scan, const std::string& text);
  bool Fine(Session& session, Scan& scan, const grpc::Status& status);
  void PrintTable() const;
  void PrintJsonOf(const Scan& scan) const;
  static const char* WordOf(State state);

  Session& session_;
  const ReconFlags& flags_;
  std::vector<Scan> scans_;
  std::mutex mutex_;  // of all below, of the states, and of the error stream
  size_t next_ = 0;
  bool ends_ = false, interrupted_ = false, no_server_ = false;
  std::vector<std::string> running_;      // operations of the jobs that have begun and not ended
  std::set<grpc::ClientContext*> waits_;  // for jobs of earlier clients, which go on
};

}  // namespace octavo::cli
