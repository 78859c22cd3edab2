#pragma once

// Private to bench_*.cc: octavo bench.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "nlohmann/json.hpp"

#include "octavo/v1/scan.grpc.pb.h"
#include "octavo/v1/stream.pb.h"
#include "octavo/v1/system.grpc.pb.h"
#include "octavo/v1/volume.grpc.pb.h"

#include "client/cpp/cli/commands.h"

namespace octavo::cli {

/// The options of the command.
struct BenchFlags {
  std::vector<std::string> what;  // empty = all
  std::string backend = "auto", directory;
  double seconds = 0.5;
  uint32_t samples = 1024, ascans = 512, bscans = 512;
  // latency: A-scans per second; 0 = half of the rate that the machine can stream
  double rate_hz = 0;
  int64_t mib = 512;  // storage: of a file
  /// `storage` has to be named: it writes large files.
  bool Wants(const std::string& name) const;
};

/// One figure and its reference.
struct Figure {
  std::string name, included, unit, ceiling_name, verified;
  double value = 0, ceiling = 0;
  nlohmann::json more = nlohmann::json::object();  // --json only
};

/// Collects figures: prints each as a line of JSON when it is ready, or a table at the end. Refuses
/// figures whose output was not verified.
class BenchReport {
 public:
  explicit BenchReport(Session& session) : session_(session) {}
  /// Refuses a figure that does not say how its output was verified: a message on standard error,
  /// exit code 1.
  void Add(const Figure& figure);
  /// Says why a figure is missing; exit code 1.
  void Refuse(const std::string& name, const std::string& why);
  /// Text between the table's rows; not with --json.
  void Note(const std::string& text);
  /// Writes the table.
  void Finish(const std::string& title);
  double ValueOf(const std::string& name) const;  // 0 = not measured

 private:
  Session& session_;
  std::vector<Figure> figures_;
  std::string notes_;
};

/// A private daemon of this program: the octavod beside it, on a free port, with a temporary
/// directory.
class BenchDaemon {
 public:
  /// Null and a text on standard error if it does not start.
  static std::unique_ptr<BenchDaemon> Start(const BenchFlags& flags);
  BenchDaemon(const BenchDaemon&) = delete;
  BenchDaemon& operator=(const BenchDaemon&) = delete;
  ~BenchDaemon();  // ends it and removes its directory
  const std::string& address() const { return address_; }

 private:
  BenchDaemon() = default;
  pid_t pid_ = -1;
  std::string address_, directory_;
};

/// A simulated scan whose source costs nothing: `volumes` volumes of the pattern, each made of the
/// same block of records, so that all are equal. rate_hz 0: as fast as possible. Rolling
/// background, k from the source, dispersion, dB, u8.
v1::ScanSpec RepeatedScan(uint32_t ascans, uint32_t bscans, uint32_t samples, uint32_t volumes,
                          double rate_hz);

/// A volume of such a scan, held, and its voxels.
struct HeldVolume {
  v1::Volume volume;
  std::string voxels;
};
/// Runs `spec` (of one volume) to its end and reads the volume. Nothing (after an error message) if
/// a call fails.
std::optional<HeldVolume> MakeVolume(Session& session, v1::ScanSpec spec, bool read = true);
void Discard(Session& session, const std::string& volume);
/// Submits `spec`. The scan's name; nothing (after an error message) if it is refused.
std::optional<std::string> SubmitBenchScan(Session& session, const v1::ScanSpec& spec);

/// A scan whose volumes are cheap to compute for their size, so that what is measured is their way
/// out: 64 samples in, 32 depths of f32 out.
struct CheapVolumes {
  std::string scan;    // its name
  std::string voxels;  // of each of its volumes
};
/// Makes one volume to compare with, then submits a scan of `volumes` equal ones of 1024 x `bscans`
/// A-scans, kept as `retention` says. Nothing if a call fails; `report` then says why `figure` is
/// missing, unless an error message has said it.
std::optional<CheapVolumes> SubmitCheapVolumes(Session& session, uint32_t bscans, uint32_t volumes,
                                               const v1::Retention& retention, const char* figure,
                                               BenchReport& report);
/// Waits for the end of a scan; nothing if the call fails.
std::optional<v1::Scan> WaitForScan(Session& session, const std::string& scan);
/// Empty, or the problem of the scan: it should have all volumes done, none missing or dropped.
std::string ProblemOf(const v1::Scan& scan, uint32_t volumes);

int64_t MonotonicNs();
/// Whether the server and this process share a monotonic clock: both run on one host, since one
/// boot.
bool SameHost(const v1::Frame& frame);
double Percentile(std::vector<double> values, double percent);
/// The throughput of a TCP connection within this host, in GB/s, measured with `bytes`.
double SocketRate(int64_t bytes);

void BenchChain(Session& session, const BenchFlags& flags, BenchReport& report);
void BenchLatency(Session& session, const BenchFlags& flags, BenchReport& report);
void BenchSubscribe(Session& session, const BenchFlags& flags, BenchReport& report);
void BenchSubscribeByRead(Session& session, const BenchFlags& flags, BenchReport& report);
void BenchCommit(Session& session, const BenchFlags& flags, BenchReport& report);
void BenchStorage(Session& session, const BenchFlags& flags, BenchReport& report);

}  // namespace octavo::cli
