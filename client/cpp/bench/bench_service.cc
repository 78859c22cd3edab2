// octavo bench: the chain (measured by the server), volumes to a subscriber, commits.

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include "octavo/v1/stream.grpc.pb.h"
#include "octavo/v1/volume.grpc.pb.h"

#include "client/cpp/bench/bench.h"
#include "client/cpp/cli/long_work.h"
#include "client/cpp/cli/words.h"
#include "client/cpp/wire/seconds.h"

namespace octavo::cli {
namespace {

// A file as bytes; empty if it cannot be read.
std::string FileBytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// Whether an .npy holds exactly these voxels after its header.
bool NpyHolds(const std::string& path, const std::string& voxels) {
  const std::string bytes = FileBytes(path);
  return bytes.size() > voxels.size() && bytes.compare(0, 6, "\x93NUMPY") == 0 &&
         std::equal(voxels.begin(), voxels.end(), bytes.end() - std::ssize(voxels));
}

// MB/s of one plain write of `bytes` and fsync.
double PlainWrite(const std::string& path, const std::string& bytes) {
  const int64_t began = MonotonicNs();
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  bool fine = fd >= 0;
  for (size_t done = 0; fine && done < bytes.size();) {
    const ssize_t n =
        ::write(fd, bytes.data() + done, std::min<size_t>(bytes.size() - done, 1 << 20));
    fine = n > 0;
    done += fine ? static_cast<size_t>(n) : 0;
  }
  fine = fine && ::fsync(fd) == 0;
  if (fd >= 0) ::close(fd);
  const double seconds = static_cast<double>(MonotonicNs() - began) * 1e-9;
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  return fine ? static_cast<double>(bytes.size()) / seconds * 1e-6 : 0;
}

std::optional<v1::CommitResult> Commit(Session& session, const std::string& volume,
                                       const std::string& destination, v1::Format format) {
  v1::CommitVolumeRequest request;
  request.set_name(volume);
  request.mutable_options()->set_destination(destination);
  request.mutable_options()->set_format(format);
  request.mutable_options()->set_codec(v1::CODEC_NONE);
  grpc::ClientContext context;  // as long as it takes
  v1::CommitVolumeResponse answer;
  if (!Check(session, v1::VolumeService::NewStub(session.channel())
                          ->CommitVolume(&context, request, &answer)) ||
      !Check(session, StatusOf(answer.operation())))
    return std::nullopt;
  return answer.operation().commit();
}

void RemoveCommitted(const std::string& uri) {
  std::error_code ignored;
  std::filesystem::remove_all(uri, ignored);
  std::filesystem::remove(uri + ".json", ignored);
}

}  // namespace

void BenchChain(Session& session, const BenchFlags& flags, BenchReport& report) {
  v1::MeasureRequest request;
  request.set_samples(flags.samples);
  *request.mutable_duration() = DurationOf(flags.seconds);
  grpc::ClientContext context;
  auto reader = v1::SystemService::NewStub(session.channel())->Measure(&context, request);
  for (v1::MeasureResponse answer; reader->Read(&answer);) {
    const v1::Measurement& m = answer.measurement();
    Figure figure{.name = InWords(m.figure()),
                  .included = m.included(),
                  .unit = m.unit(),
                  .ceiling_name = m.ceiling_name(),
                  .verified = m.verified(),
                  .value = m.value(),
                  .ceiling = m.ceiling()};
    if (m.samples() > 0)
      figure.included += "; " + std::to_string(m.samples()) + " samples, blocks of " +
                         std::to_string(m.records_per_block());
    figure.more = {{"device", m.device()},
                   {"backend", m.backend()},
                   {"model", m.model()},
                   {"samples", m.samples()},
                   {"records_per_block", m.records_per_block()},
                   {"rounds", m.rounds()},
                   {"seconds_per_round", SecondsOf(m.round_duration())}};
    if (m.samples() > 0) figure.more["ns_per_ascan"] = 1e9 / m.value();
    report.Add(figure);
  }
  const grpc::Status status = reader->Finish();
  if (!Check(session, status)) report.Refuse("what follows of the chain", status.error_message());
}

void BenchSubscribe(Session& session, const BenchFlags& flags, BenchReport& report) {
  static constexpr const char kName[] = "subscribe to volumes";
  const auto volumes = static_cast<uint32_t>(std::clamp(flags.seconds * 80, 10.0, 500.0));
  v1::Retention retention;
  retention.set_disposition(v1::DISPOSITION_AUTO_DISCARD);
  retention.set_hold_slots(4);
  const auto made = SubmitCheapVolumes(session, 256, volumes, retention, kName, report);
  if (!made.has_value()) return;
  const std::string& voxels = made->voxels;
  v1::SubscribeRequest subscribe;
  subscribe.set_parent(made->scan);
  subscribe.add_products(v1::PRODUCT_VOLUME);
  subscribe.set_delivery(v1::DELIVERY_DROP_OLDEST);
  subscribe.set_queue_length(4);
  grpc::ClientContext context;
  auto reader = v1::StreamService::NewStub(session.channel())->Subscribe(&context, subscribe);
  int64_t received = 0, frames = 0, began = 0, ended = 0;
  bool same = true;
  for (v1::SubscribeResponse part; reader->Read(&part);) {
    if (began == 0) {
      began = MonotonicNs();  // the first message is not counted, because it was sent before
    } else {
      received += std::ssize(part.data());
    }
    ended = MonotonicNs();
    frames += part.has_frame();
    same &= part.total_bytes() == voxels.size() &&
            part.offset() + part.data().size() <= voxels.size() &&
            std::memcmp(voxels.data() + part.offset(), part.data().data(), part.data().size()) == 0;
  }
  if (!Check(session, reader->Finish()))
    return report.Refuse(kName, "the subscription ended early");
  const auto done = WaitForScan(session, made->scan);
  if (!done.has_value()) return;
  if (const std::string problem = ProblemOf(*done, volumes); !problem.empty())
    return report.Refuse(kName, problem);
  if (!same || frames < 2)
    return report.Refuse(
        kName, same ? "too few volumes came" : "a volume came that is not what the server holds");
  report.Add({.name = kName,
              .included = "volumes of " + Bytes(static_cast<double>(voxels.size())) +
                          " as they are made, " + std::to_string(frames) + " of " +
                          std::to_string(volumes) +
                          " (others left out), through gRPC to this process, compared on the way",
              .unit = "GB/s",
              .ceiling_name = "a plain TCP socket",
              .verified = "every byte compared with the held volume",
              .value = static_cast<double>(received) / static_cast<double>(ended - began),
              .ceiling = SocketRate(int64_t{512} << 20),
              .more = {{"frames", frames}, {"volumes", volumes}}});
}

void BenchCommit(Session& session, const BenchFlags& flags, BenchReport& report) {
  struct Kind {
    const char *name, *ending;
    v1::Format format;
  };
  for (const Kind& kind : {Kind{"commit .npy", ".npy", v1::FORMAT_NPY},
                           Kind{"commit OME-Zarr", ".ome.zarr", v1::FORMAT_OME_ZARR_05}}) {
    std::vector<double> rates, ceilings;
    std::string problem;
    int64_t bytes = 0;
    for (int round = 0; round < 3 && problem.empty(); ++round) {
      const auto held = MakeVolume(
          session, RepeatedScan(flags.ascans, std::max(1u, flags.bscans / 2), flags.samples, 1, 0));
      if (!held.has_value()) return report.Refuse(kind.name, "there is no volume");
      const std::string destination =
          "octavo-bench-" + std::to_string(::getpid()) + "-" + std::to_string(round) + kind.ending;
      const int64_t began = MonotonicNs();
      const auto result = Commit(session, held->volume.name(), destination, kind.format);
      const double seconds = static_cast<double>(MonotonicNs() - began) * 1e-9;
      if (!result.has_value()) {
        Discard(session, held->volume.name());
        return report.Refuse(kind.name, "the commit failed");
      }
      bytes = std::ssize(held->voxels);
      rates.push_back(static_cast<double>(bytes) / seconds * 1e-6);
      const std::string& uri = result->path();
      if (!std::filesystem::exists(uri)) {
        problem = "the server's storage (" + uri + ") is not to be seen from here";
      } else if (kind.format == v1::FORMAT_NPY) {
        if (!NpyHolds(uri, held->voxels)) problem = uri + " does not hold the volume's voxels";
      } else {
        const std::string plain = uri + ".check.npy";
        const std::string failure = ConvertTo(uri, plain);
        if (!failure.empty() || !NpyHolds(plain, held->voxels))
          problem =
              uri + " does not hold the volume's voxels" + (failure.empty() ? "" : ": " + failure);
        RemoveCommitted(plain);
      }
      if (problem.empty()) ceilings.push_back(PlainWrite(uri + ".plain", held->voxels));
      RemoveCommitted(uri);
    }
    if (!problem.empty()) {
      report.Refuse(kind.name, problem);
      continue;
    }
    report.Add(
        {.name = kind.name,
         .included = Bytes(static_cast<double>(bytes)) +
                     " of a held volume, uncompressed, checksummed, on disk (fsync) and named",
         .unit = "MB/s",
         .ceiling_name = "one plain write and fsync",
         .verified = "read back: every voxel",
         .value = Percentile(rates, 50),
         .ceiling = Percentile(ceilings, 50)});
  }
}

}  // namespace octavo::cli
