#pragma once

#include <chrono>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "google/protobuf/message.h"
#include "grpcpp/grpcpp.h"

#include "octavo/v1/types.pb.h"
#include "octavo/v1/volume.pb.h"

#include "client/cpp/wire/login.h"

namespace octavo::cli {

/// Exit codes of the command line.
enum ExitCode { kOk = 0, kFailed = 1, kUsage = 2, kUnavailable = 3 };

/// Shared by all commands.
struct Session {
  const CLI::App* app = nullptr;  // the whole command line
  std::string address;
  double timeout_s = 30;
  bool json = false;
  bool address_given = false;              // by --address or OCTAVO_ADDRESS
  std::string address_from = "--address";  // which of them
  Login login;                             // by the common flags, or the environment
  int exit_code = kOk;

  /// Throws CLI::ValidationError for an address that gRPC would misunderstand, and for files of the
  /// login that cannot be used. Every call of the channel logs in.
  /// `own_connection`: one that no other channel shares.
  std::shared_ptr<grpc::Channel> channel(bool own_connection = false) const;
  /// A context with the deadline of short calls. Streams make their own contexts without one.
  std::unique_ptr<grpc::ClientContext> Context() const;
};

/// The reason that a failed call carries (ErrorInfo.reason); empty if none.
std::string ReasonOf(const grpc::Status& status);

/// Prints a failed call for people (message, reason, field, admission table) and sets the exit
/// code. Returns whether the call succeeded.
bool Check(Session& session, const grpc::Status& status);

/// The same for a call about a volume; for one that was committed already, with its path.
bool CheckVolume(Session& session, const std::string& name, const grpc::Status& status);

/// A warning of the server, with the flags for the fields that it names.
std::string WithFlags(const Session& session, const std::string& warning);

/// Whether the planned request fits, with the figures, and the ten largest holders of the rest of
/// the memory.
void PrintVerdict(std::ostream& out, const v1::AdmissionReport& report);
void PrintHolders(std::ostream& out, const v1::AdmissionReport& report);

/// A message as JSON, without an end of line; empty if it cannot be told as JSON.
std::string JsonOf(const google::protobuf::Message& message);
/// One line of JSON.
void PrintJson(const google::protobuf::Message& message);

std::string Bytes(double bytes);                  // "64.0 MiB"
std::string Count(double number);                 // "131.1 k"
std::string Clipped(int64_t voxels, int64_t of);  // "1.5 % clipped"
std::string Seconds(double seconds);              // "1 min 05 s"

void AddScanCommands(CLI::App& app, Session& session);
void AddVolumeCommands(CLI::App& app, Session& session);
/// `octavo volume png`.
void AddVolumePictureCommand(CLI::App* volume, Session& session);
void AddVolumeImportCommand(CLI::App* volume, Session& session);

/// Prints a volume as it is now.
void PrintVolumeNow(Session& session, const std::string& name);
/// Prints a buffer as it is now.
void PrintBufferNow(Session& session, const std::string& name);
void AddBufferCommands(CLI::App& app, Session& session);
void AddMosaicCommands(CLI::App& app, Session& session);
void AddJobCommands(CLI::App& app, Session& session);
void AddOperationCommands(CLI::App& app, Session& session);
void AddReconCommand(CLI::App& app, Session& session);
void AddWatchCommand(CLI::App& app, Session& session);
void AddCameraCommands(CLI::App& app, Session& session);
void AddSystemCommands(CLI::App& app, Session& session);
void AddSessionCommands(CLI::App& app, Session& session);
void AddGrantCommands(CLI::App& app, Session& session);
void AddConvertCommand(CLI::App& app, Session& session);
void AddTokenCommands(CLI::App& app, Session& session);
void AddWebCommand(CLI::App& app, Session& session);
void AddBenchCommand(CLI::App& app, Session& session);

/// A check of an argument that names a volume: refuses names of scans and jobs and says how to find
/// their volumes.
CLI::Validator VolumeName();
/// The same for scans, jobs, and arguments that may be either: refuses other names, saying their
/// kind and the command that takes them.
CLI::Validator ScanName();
CLI::Validator JobName();
CLI::Validator ScanOrJobName();
CLI::Validator OperationName();
/// Buffers, and arguments that may be a buffer or a volume.
CLI::Validator BufferName();
CLI::Validator BufferOrVolumeName();
/// Scans, jobs, volumes and buffers.
CLI::Validator GrantableName();

class InterruptibleWork;
/// Commits a volume with a progress bar and prints its path. First it writes to the error stream
/// which data the volume lacks. `work`: cancels the commit at an interrupt; null: the commit then
/// runs to its end.
void CommitVolume(Session& session, v1::CommitVolumeRequest request, InterruptibleWork* work);
/// The files of a commit, on a line.
void PrintCommitted(const v1::CommitResult& result);

/// octavo convert with its defaults: empty, or the error.
std::string ConvertTo(const std::string& source, const std::string& destination);

}  // namespace octavo::cli
