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

namespace octavo::cli {

/// Exit codes of the command line.
enum ExitCode { kOk = 0, kFailed = 1, kUsage = 2, kUnavailable = 3 };

/// What all commands share.
struct Session {
  const CLI::App* app = nullptr;  // the whole command line
  std::string address;
  double timeout_s = 30;
  bool json = false;
  bool address_given = false;              // by --address or OCTAVO_ADDRESS
  std::string address_from = "--address";  // which of them
  int exit_code = kOk;

  /// Throws CLI::ValidationError for an address that gRPC would misunderstand.
  std::shared_ptr<grpc::Channel> channel() const;
  /// A context with the deadline of short calls. Streams make their own without.
  std::unique_ptr<grpc::ClientContext> Context() const;
};

/// The reason that a failed call carries (ErrorDetail.reason); empty if none.
std::string ReasonOf(const grpc::Status& status);

/// Prints a failed call as a person wants it (message, reason, field, admission table) and sets the
/// exit code. Returns whether the call was fine.
bool Check(Session& session, const grpc::Status& status);

/// A warning of the server, with the flags for the fields that it names.
std::string WithFlags(const Session& session, const std::string& warning);

/// Whether what was planned or asked for fits, with the figures; what the rest of the memory is
/// held by, the ten largest.
void PrintVerdict(std::ostream& out, const v1::AdmissionReport& report);
void PrintHolders(std::ostream& out, const v1::AdmissionReport& report);

/// One line of JSON.
void PrintJson(const google::protobuf::Message& message);

std::string Bytes(double bytes);                  // "64.0 MiB"
std::string Count(double number);                 // "131.1 k"
std::string Clipped(int64_t voxels, int64_t of);  // "1.5 % clipped"
std::string Seconds(double seconds);              // "1 min 05 s"

void AddScanCommands(CLI::App& app, Session& session);
void AddVolumeCommands(CLI::App& app, Session& session);
void AddJobCommands(CLI::App& app, Session& session);
void AddReconCommand(CLI::App& app, Session& session);
void AddWatchCommand(CLI::App& app, Session& session);
void AddCameraCommands(CLI::App& app, Session& session);
void AddSystemCommands(CLI::App& app, Session& session);
void AddSessionCommands(CLI::App& app, Session& session);
void AddConvertCommand(CLI::App& app, Session& session);
void AddBenchCommand(CLI::App& app, Session& session);

/// A check of an argument that names a volume: names of scans and jobs are refused with where their
/// volumes are.
CLI::Validator VolumeName();
/// The same of scans, of jobs, and of what may be either: names of other things are refused with
/// what they are and which command takes them.
CLI::Validator ScanName();
CLI::Validator JobName();
CLI::Validator ScanOrJobName();

/// Commits a volume with a progress bar, and says where it is, and first on the error stream what
/// it lacks.
void CommitVolume(Session& session, const v1::CommitVolumeRequest& request);

/// octavo convert with its defaults: empty, or what went wrong.
std::string ConvertTo(const std::string& source, const std::string& destination);

}  // namespace octavo::cli
