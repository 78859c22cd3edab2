// octavo bench: volumes to a subscriber that reads them beside its subscription.

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "octavo/v1/stream.grpc.pb.h"
#include "octavo/v1/volume.grpc.pb.h"

#include "client/cpp/bench/bench.h"
#include "client/cpp/cli/words.h"

namespace octavo::cli {
namespace {

/// Reads volumes in ranges of the first axis, each over a connection of its own.
class RangeReader {
 public:
  explicit RangeReader(const Session& session) {
    const uint32_t most = std::clamp(std::thread::hardware_concurrency() / 2, 1u, 8u);
    for (uint32_t i = 0; i < most; ++i)
      stubs_.push_back(v1::VolumeService::NewStub(session.channel(/*own_connection=*/true)));
  }
  size_t connections() const { return stubs_.size(); }

  /// Reads the volume of the frame and compares it with `voxels` on the way; `same` becomes false
  /// if it differs.
  grpc::Status Compare(const v1::Frame& frame, const std::string& voxels, bool* same) {
    const int64_t rows = frame.shape(0), count = std::ssize(stubs_);
    grpc::Status status;
    std::mutex mutex;
    const auto read = [&](int64_t i) {
      const int64_t begin = rows * i / count, end = rows * (i + 1) / count;
      v1::ReadVolumeRequest request;
      request.set_name(frame.volume());
      for (int axis = 0; axis < frame.shape_size(); ++axis) {
        request.add_start(axis == 0 ? begin : 0);
        request.add_count(axis == 0 ? end - begin : frame.shape(axis));
      }
      const size_t row = voxels.size() / static_cast<size_t>(rows);
      const char* const wanted = voxels.data() + static_cast<size_t>(begin) * row;
      const size_t size = static_cast<size_t>(end - begin) * row;
      size_t got = 0;
      bool equal = true;
      grpc::ClientContext context;
      auto reader = stubs_[static_cast<size_t>(i)]->ReadVolume(&context, request);
      for (v1::ReadVolumeResponse part; reader->Read(&part);) {
        got += part.data().size();
        equal &= part.offset() + part.data().size() <= size &&
                 std::memcmp(wanted + part.offset(), part.data().data(), part.data().size()) == 0;
      }
      const grpc::Status ended = reader->Finish();
      const std::lock_guard lock(mutex);
      if (!ended.ok()) {
        status = ended;
      } else {
        *same &= equal && got == size;
      }
    };
    {
      std::vector<std::jthread> threads;
      for (int64_t i = 1; i < count; ++i) threads.emplace_back(read, i);
      read(0);
    }
    return status;
  }

 private:
  std::vector<std::unique_ptr<v1::VolumeService::Stub>> stubs_;
};

}  // namespace

// The ring of a LIVE scan, whose volumes a subscriber can read: it reads the newest.
void BenchSubscribeByRead(Session& session, const BenchFlags& flags, BenchReport& report) {
  static constexpr const char kName[] = "volumes by read";
  const auto volumes = static_cast<uint32_t>(std::clamp(flags.seconds * 40, 10.0, 500.0));
  RangeReader ranges(session);  // first: the ring of a LIVE scan waits for no reader
  v1::Retention retention;
  retention.set_mode(v1::RETENTION_MODE_LIVE);
  retention.set_hold_slots(4);
  const auto made = SubmitCheapVolumes(session, 1024, volumes, retention, kName, report);
  if (!made.has_value()) return;
  const std::string& voxels = made->voxels;
  v1::SubscribeRequest subscribe;
  subscribe.set_parent(made->scan);
  subscribe.add_products(v1::PRODUCT_VOLUME);
  subscribe.set_delivery(v1::DELIVERY_LATEST);
  subscribe.set_volumes_by_read(true);
  grpc::ClientContext context;
  auto reader = v1::StreamService::NewStub(session.channel())->Subscribe(&context, subscribe);
  int64_t frames = 0, began = 0, ended = 0;
  bool same = true;
  for (v1::SubscribeResponse part; reader->Read(&part);) {
    if (part.total_bytes() != 0) {
      context.TryCancel();
      return report.Refuse(kName, "the server sends the data in the stream: it is an older one");
    }
    if (began == 0) {  // the first volume is not counted, because connections are made
      (void)ranges.Compare(part.frame(), voxels, &same);
      began = MonotonicNs();
      continue;
    }
    const grpc::Status status = ranges.Compare(part.frame(), voxels, &same);
    if (status.error_code() == grpc::StatusCode::NOT_FOUND) continue;  // overwritten: left out
    if (!Check(session, status)) {
      context.TryCancel();
      return report.Refuse(kName, "a volume could not be read");
    }
    ++frames;
    ended = MonotonicNs();
  }
  if (!Check(session, reader->Finish()))
    return report.Refuse(kName, "the subscription ended early");
  const auto done = WaitForScan(session, made->scan);
  if (!done.has_value()) return;
  for (const std::string& volume : done->volumes()) Discard(session, volume);
  if (const std::string problem = ProblemOf(*done, volumes); !problem.empty())
    return report.Refuse(kName, problem);
  if (!same || frames < 1)
    return report.Refuse(
        kName, same ? "too few volumes came" : "a volume came that is not what the server holds");
  report.Add(
      {.name = kName,
       .included = "volumes of " + Bytes(static_cast<double>(voxels.size())) +
                   " as they are made, " + std::to_string(frames) + " of " +
                   std::to_string(volumes) + " (others left out), announced and read over " +
                   std::to_string(ranges.connections()) + " connections, compared on the way",
       .unit = "GB/s",
       .ceiling_name = "a plain TCP socket",
       .verified = "every byte compared with the held volume",
       .value = static_cast<double>(frames) * static_cast<double>(voxels.size()) /
                static_cast<double>(ended - began),
       .ceiling = SocketRate(int64_t{512} << 20),
       .more = {{"frames", frames}, {"volumes", volumes}, {"connections", ranges.connections()}}});
}

}  // namespace octavo::cli
