// Shared by the measurements of octavo bench: scans with known volumes, clocks, percentiles, a raw
// socket.

#include <algorithm>
#include <arpa/inet.h>
#include <chrono>
#include <cmath>
#include <iostream>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "octavo/v1/volume.grpc.pb.h"

#include "client/cpp/bench/bench.h"
#include "client/cpp/cli/words.h"
#include "client/cpp/wire/seconds.h"

namespace octavo::cli {

v1::ScanSpec RepeatedScan(uint32_t ascans, uint32_t bscans, uint32_t samples, uint32_t volumes,
                          double rate_hz) {
  v1::ScanSpec spec;
  spec.set_title("octavo bench");
  auto* source = spec.mutable_simulated();
  source->set_seed(1);
  source->set_repeat_block(true);
  source->set_as_fast_as_possible(rate_hz == 0);
  auto* acquisition = spec.mutable_acquisition();
  acquisition->set_samples_per_record(samples);
  acquisition->set_record_rate_hz(rate_hz);
  // Whole B-scans of about 4 MiB that divide the volume: every volume begins with a block, so all
  // volumes are equal.
  uint32_t lines = std::clamp<uint32_t>((4u << 20) / std::max(1u, ascans * samples * 2), 1, bscans);
  while (bscans % lines != 0) --lines;
  acquisition->set_records_per_block(lines * ascans);
  acquisition->set_ring_blocks(32);
  auto* raster = spec.mutable_pattern()->mutable_raster();
  raster->set_ascans_per_bscan(ascans);
  raster->set_bscans_per_volume(bscans);
  raster->set_volumes(volumes);
  auto* processing = spec.mutable_processing();
  processing->mutable_dispersion()->set_a2(2e-5);
  // set explicitly, so that figures stay comparable if the default changes
  processing->set_dtype(v1::DTYPE_U8);
  processing->mutable_levels()->set_lo(-15);
  processing->mutable_levels()->set_hi(37);
  spec.mutable_products()->set_preview_rate_hz(-1);
  return spec;
}

std::optional<v1::Scan> WaitForScan(Session& session, const std::string& name) {
  grpc::ClientContext context;
  v1::WatchScanRequest request;
  request.set_name(name);
  auto reader = v1::ScanService::NewStub(session.channel())->WatchScan(&context, request);
  v1::WatchScanResponse answer;
  v1::Scan last;
  while (reader->Read(&answer)) last.Swap(answer.mutable_scan());
  if (!Check(session, reader->Finish())) return std::nullopt;
  return last;
}

std::string ProblemOf(const v1::Scan& scan, uint32_t volumes) {
  if (scan.state() != v1::SCAN_STATE_DONE)
    return "the scan ended " + ShortName(scan.state()) + ": " + scan.reason();
  if (scan.volumes_done() != volumes || scan.missing_ascans() != 0 || scan.blocks_dropped() != 0) {
    return std::to_string(scan.volumes_done()) + " of " + std::to_string(volumes) + " volumes, " +
           std::to_string(scan.missing_ascans()) + " A-scans missing, " +
           std::to_string(scan.blocks_dropped()) + " blocks dropped";
  }
  return "";
}

std::optional<std::string> SubmitBenchScan(Session& session, const v1::ScanSpec& spec) {
  v1::SubmitScanRequest request;
  *request.mutable_spec() = spec;
  v1::SubmitScanResponse answer;
  if (!Check(session, v1::ScanService::NewStub(session.channel())
                          ->SubmitScan(session.Context().get(), request, &answer)))
    return std::nullopt;
  return answer.scan().name();
}

std::optional<CheapVolumes> SubmitCheapVolumes(Session& session, uint32_t bscans, uint32_t volumes,
                                               const v1::Retention& retention, const char* figure,
                                               BenchReport& report) {
  v1::ScanSpec spec = RepeatedScan(1024, bscans, 64, volumes, 0);
  spec.mutable_processing()->set_value(v1::VALUE_MAGNITUDE);
  spec.mutable_processing()->set_dtype(v1::DTYPE_F32);
  spec.mutable_processing()->clear_levels();
  auto reference = MakeVolume(session, spec);
  if (!reference.has_value()) {
    report.Refuse(figure, "there is no volume to compare with");
    return std::nullopt;
  }
  Discard(session, reference->volume.name());
  *spec.mutable_retention() = retention;
  auto scan = SubmitBenchScan(session, spec);
  if (!scan.has_value()) return std::nullopt;
  return CheapVolumes{.scan = *std::move(scan), .voxels = std::move(reference->voxels)};
}

std::optional<HeldVolume> MakeVolume(Session& session, v1::ScanSpec spec, bool read) {
  spec.mutable_pattern()->mutable_raster()->set_volumes(1);
  spec.mutable_retention()->Clear();
  // The records are the same at any rate, and at the machine's own rate there are never too many.
  spec.mutable_simulated()->set_as_fast_as_possible(true);
  spec.mutable_acquisition()->set_record_rate_hz(0);
  const auto scan = SubmitBenchScan(session, spec);
  if (!scan.has_value()) return std::nullopt;
  const auto ended = WaitForScan(session, *scan);
  if (!ended.has_value()) return std::nullopt;
  if (const std::string problem = ProblemOf(*ended, 1);
      !problem.empty() || ended->volumes_size() != 1) {
    std::cerr << "octavo: a volume to compare with cannot be had: " << problem << "\n";
    session.exit_code = kFailed;
    return std::nullopt;
  }
  auto stub = v1::VolumeService::NewStub(session.channel());
  HeldVolume held;
  if (!read) {
    v1::GetVolumeRequest get;
    get.set_name(ended->volumes(0));
    v1::GetVolumeResponse got;
    if (!Check(session, stub->GetVolume(session.Context().get(), get, &got))) return std::nullopt;
    held.volume = std::move(*got.mutable_volume());
    return held;
  }
  grpc::ClientContext context;
  v1::ReadVolumeRequest all;
  all.set_name(ended->volumes(0));
  auto reader = stub->ReadVolume(&context, all);
  for (v1::ReadVolumeResponse part; reader->Read(&part);) {
    if (part.has_volume()) held.volume = part.volume();
    held.voxels += part.data();
  }
  if (!Check(session, reader->Finish())) return std::nullopt;
  return held;
}

void Discard(Session& session, const std::string& volume) {
  v1::DiscardVolumeRequest request;
  request.set_name(volume);
  v1::DiscardVolumeResponse gone;
  Check(session, v1::VolumeService::NewStub(session.channel())
                     ->DiscardVolume(session.Context().get(), request, &gone));
}

int64_t MonotonicNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool SameHost(const v1::Frame& frame) {
  const int64_t unix_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                              std::chrono::system_clock::now().time_since_epoch())
                              .count();
  const int64_t booted_here = unix_ns - MonotonicNs(),
                booted_there =
                    google::protobuf::util::TimeUtil::TimestampToNanoseconds(frame.publish_time()) -
                    frame.publish_monotonic_ns();
  return std::abs(booted_here - booted_there) < 50'000'000;
}

double Percentile(std::vector<double> values, double percent) {
  if (values.empty()) return 0;
  // The smallest value that is not below the given percentage of the values.
  const auto rank =
      static_cast<std::ptrdiff_t>(std::ceil(percent / 100 * static_cast<double>(values.size()))) -
      1;
  const auto at = values.begin() + std::clamp<std::ptrdiff_t>(rank, 0, std::ssize(values) - 1);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

double SocketRate(int64_t bytes) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  double rate = 0;
  if (listener >= 0 && ::bind(listener, plain, size) == 0 && ::listen(listener, 1) == 0 &&
      ::getsockname(listener, plain, &size) == 0) {
    std::jthread sender([&] {
      const int out = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const std::string chunk(2 << 20, 'x');
      if (out >= 0 && ::connect(out, plain, size) == 0) {
        for (int64_t left = bytes; left > 0;) {
          const ssize_t n = ::send(out, chunk.data(),
                                   std::min(chunk.size(), static_cast<size_t>(left)), MSG_NOSIGNAL);
          if (n <= 0) break;
          left -= n;
        }
      }
      if (out >= 0) ::close(out);
    });
    const int in = ::accept(listener, nullptr, nullptr);
    std::string buffer(2 << 20, 0);
    const int64_t began = MonotonicNs();
    int64_t got = 0;
    for (ssize_t n; in >= 0 && (n = ::recv(in, buffer.data(), buffer.size(), 0)) > 0;) got += n;
    if (got == bytes) rate = static_cast<double>(got) / static_cast<double>(MonotonicNs() - began);
    if (in >= 0) ::close(in);
  }
  if (listener >= 0) ::close(listener);
  return rate;
}

}  // namespace octavo::cli
