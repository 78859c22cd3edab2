// octavo bench latency: from the last raw byte of a volume in host memory to its en face projection
// in this process, stage by stage; once by gRPC, and once by memory that both processes map.

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "octavo/v1/stream.grpc.pb.h"

#include "client/cpp/bench/bench.h"
#include "client/cpp/wire/frame_feed_reader.h"
#include "client/cpp/wire/seconds.h"

namespace octavo::cli {
namespace {

constexpr size_t kStages = 9;
constexpr std::array<const char*, kStages> kStageNames = {"hand-over", "upload",  "process",
                                                          "download",  "wake-up", "seal",
                                                          "publish",   "send",    "transport"};
constexpr std::array<const char*, kStages> kStageTexts = {
    "last record in memory -> the engine takes its block",
    "-> the block is in device memory",
    "-> the volume is complete in device memory",
    "-> its projection is in host memory",
    "-> the engine's thread hears of it (the volume's digest is made meanwhile)",
    "-> the volume is held",
    "-> the frame is published",
    "-> the frame is handed to gRPC, or to the copy into shared memory (queue, worker)",
    "-> the whole frame is in this process"};

/// How the frames come.
enum class Way : uint8_t { kGrpc = 0, kMemory = 1 };

/// One frame, valid until the next one is read.
struct Received {
  v1::Frame head;
  std::string_view data;
  int64_t at_ns = 0;
};

/// The frames of a subscription, by either way.
class FrameReader {
 public:
  virtual ~FrameReader() = default;
  /// False at the end.
  virtual bool Read(Received* frame) = 0;
  /// Whether the end was that of the scan; says on stderr what it was otherwise.
  virtual bool Finish() = 0;
};

class CallReader final : public FrameReader {
 public:
  CallReader(Session& session, const v1::SubscribeRequest& request)
      : session_(session),
        call_(v1::StreamService::NewStub(session.channel())->Subscribe(&context_, request)) {}
  bool Read(Received* frame) override {
    v1::SubscribeResponse part;
    while (call_->Read(&part)) {
      if (part.has_frame()) {
        frame->head.Swap(part.mutable_frame());
        data_.swap(*part.mutable_data());
      } else {
        data_ += part.data();
      }
      if (data_.size() < part.total_bytes()) continue;
      frame->at_ns = MonotonicNs();
      frame->data = data_;
      return true;
    }
    return false;
  }
  bool Finish() override { return Check(session_, call_->Finish()); }

 private:
  Session& session_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::SubscribeResponse>> call_;
  std::string data_;
};

class MemoryReader final : public FrameReader {
 public:
  /// Empty, or why this server and this program cannot share memory.
  std::string Open(Session& session, const v1::SubscribeRequest& request) {
    v1::OpenFramesRequest open;
    *open.mutable_subscription() = request;
    v1::OpenFramesResponse ticket;
    const grpc::Status status = v1::StreamService::NewStub(session.channel())
                                    ->OpenFrames(session.Context().get(), open, &ticket);
    if (!status.ok()) return status.error_message();
    if (!frames_.Open(ticket.socket_path(), ticket.ticket()))
      return "cannot connect to '" + ticket.socket_path() + "': " + std::strerror(errno);
    return "";
  }
  bool Read(Received* frame) override {
    if (taken_.has_value()) frames_.Done(*std::exchange(taken_, std::nullopt));
    wire::FrameFeedReader::Arrived arrived;
    last_ = frames_.Next(&arrived);
    if (last_ != wire::FrameFeedReader::Event::kFrame) return false;
    frame->at_ns = MonotonicNs();
    taken_ = arrived.slot;
    if (!frame->head.ParseFromArray(arrived.about.data(), static_cast<int>(arrived.about.size())))
      return false;
    frame->data = {reinterpret_cast<const char*>(arrived.data.data()), arrived.data.size()};
    return true;
  }
  bool Finish() override {
    const bool fine =
        last_ == wire::FrameFeedReader::Event::kEnded && frames_.refusal().code() == 0;
    if (!fine) {
      std::fprintf(stderr, "the frames in shared memory end: %s%s\n",
                   frames_.refusal().message().c_str(), frames_.problem().c_str());
    }
    return fine;
  }

 private:
  wire::FrameFeedReader frames_;
  std::optional<uint32_t> taken_;  // the slot of the last frame
  wire::FrameFeedReader::Event last_ = wire::FrameFeedReader::Event::kGone;
};

/// Null, with the reason in `why_not`, if frames do not come this way from this server.
std::unique_ptr<FrameReader> Open(Way way, Session& session, const v1::SubscribeRequest& request,
                                  std::string* why_not) {
  if (way == Way::kGrpc) return std::make_unique<CallReader>(session, request);
  auto reader = std::make_unique<MemoryReader>();
  *why_not = reader->Open(session, request);
  return why_not->empty() ? std::move(reader) : nullptr;
}

struct Arrival {
  double total_us = 0;
  std::array<double, kStages> stage_us{};
  bool known = false;  // every stage
};

Arrival ArrivalOf(const v1::Frame& head, int64_t received_ns) {
  const v1::StageTimes& s = head.stages();
  const std::array<int64_t, kStages + 1> at = {head.acquire_monotonic_ns(),
                                               s.taken_ns(),
                                               s.uploaded_ns(),
                                               s.processed_ns(),
                                               s.on_host_ns(),
                                               s.seen_ns(),
                                               s.sealed_ns(),
                                               head.publish_monotonic_ns(),
                                               s.sent_ns(),
                                               received_ns};
  Arrival out{
      .total_us = static_cast<double>(received_ns - at[0]) * 1e-3, .stage_us = {}, .known = true};
  for (size_t i = 0; i < kStages; ++i) {
    out.known &= at[i] != 0 && at[i + 1] >= at[i];
    out.stage_us[i] = static_cast<double>(at[i + 1] - at[i]) * 1e-3;
  }
  return out;
}

// The maximum over z of each A-scan of a U8 volume.
std::string ProjectionOf(const HeldVolume& held) {
  const auto depth = static_cast<size_t>(held.volume.shape(2));
  std::string mip;
  for (size_t at = 0; at + depth <= held.voxels.size(); at += depth) {
    const auto* ascan = reinterpret_cast<const uint8_t*>(held.voxels.data()) + at;
    mip += static_cast<char>(*std::max_element(ascan, ascan + depth));
  }
  return mip;
}

// Logarithmic bins, a line each.
std::string HistogramText(const std::vector<double>& us) {
  const auto bin_of = [](double value) {
    return static_cast<int>(std::floor(4 * std::log2(std::max(value, 1.0))));
  };
  std::map<int, int64_t> bins;
  for (const double value : us) ++bins[bin_of(value)];
  int64_t most = 1;
  for (const auto& [bin, count] : bins) most = std::max(most, count);
  std::string text;
  for (int bin = bins.begin()->first; bin <= bins.rbegin()->first; ++bin) {
    const int64_t count = bins.count(bin) != 0 ? bins[bin] : 0;
    char line[64];
    std::snprintf(line, sizeof line, "  %9.0f us %7lld ", std::exp2(bin / 4.0),
                  static_cast<long long>(count));
    text += line + std::string(static_cast<size_t>((count * 60 + most - 1) / most), '#') + "\n";
  }
  return text;
}

// The rate of the chain on this machine, from a short measurement; half of it leaves room.
double HalfTheStreamingRate(Session& session, const BenchFlags& flags, const BenchReport& report) {
  if (const double known = report.ValueOf("streamed"); known > 0) return known / 2;
  v1::MeasureRequest request;
  request.set_samples(flags.samples);
  *request.mutable_duration() = DurationOf(0.1);
  grpc::ClientContext context;
  auto reader = v1::SystemService::NewStub(session.channel())->Measure(&context, request);
  double rate = 0;
  for (v1::MeasureResponse answer; reader->Read(&answer);) {
    if (answer.measurement().figure() == v1::Measurement::FIGURE_STREAMED)
      rate = answer.measurement().value();
  }
  return Check(session, reader->Finish()) ? rate / 2 : 0;
}

/// The names of the figures begin so.
const char* NameOf(Way way) { return way == Way::kGrpc ? "latency" : "latency by memory"; }

// `overrun` is set, and nothing reported, if the machine was too slow for `rate` and
// `may_be_slower`.
void MeasureAt(Way way, double rate, bool may_be_slower, Session& session, const BenchFlags& flags,
               BenchReport& report, bool* overrun) {
  const char* const name = NameOf(way);
  *overrun = false;
  const double volume_seconds = flags.ascans * static_cast<double>(flags.bscans) / rate;
  const auto counted =
      static_cast<uint32_t>(std::clamp(4 * flags.seconds / volume_seconds, 10.0, 5000.0));
  const uint32_t warm_up = std::max(4u, counted / 10);
  v1::ScanSpec spec =
      RepeatedScan(flags.ascans, flags.bscans, flags.samples, warm_up + counted, rate);
  const auto reference = MakeVolume(session, spec);
  if (!reference.has_value()) return report.Refuse(name, "there is no volume to compare with");
  Discard(session, reference->volume.name());
  const std::string wanted = ProjectionOf(*reference);
  if (std::all_of(wanted.begin(), wanted.end(), [&](char c) { return c == wanted[0]; }))
    return report.Refuse(name, "the projection is all alike");

  spec.mutable_retention()->set_disposition(v1::DISPOSITION_AUTO_DISCARD);
  spec.mutable_retention()->set_hold_slots(4);
  spec.set_overrun(v1::OVERRUN_FAIL_SCAN);
  const auto scan = SubmitBenchScan(session, spec);
  if (!scan.has_value()) return;
  v1::SubscribeRequest subscribe;
  subscribe.set_parent(*scan);
  subscribe.add_products(v1::PRODUCT_MIP);
  subscribe.set_preview(false);
  subscribe.set_delivery(v1::DELIVERY_LOSSLESS);
  subscribe.set_queue_length(256);
  std::string why_not;
  const auto reader = Open(way, session, subscribe, &why_not);
  if (reader == nullptr) {
    report.Note("\nno " + std::string(name) + ": " + why_not + "\n");
    (void)WaitForScan(session, *scan);
    return;
  }
  std::vector<Arrival> arrivals;
  std::string problem;
  int64_t frames = 0;
  bool same_host = true;
  Received frame;
  const v1::Frame& head = frame.head;
  while (reader->Read(&frame)) {
    ++frames;
    if (problem.empty() && frame.data != wanted)
      problem = "the projection of volume " + std::to_string(head.volume_index()) +
                " is not that of its voxels";
    if (problem.empty() && (head.dropped_before() != 0 || !head.complete()))
      problem = "a frame was dropped or incomplete";
    same_host &= SameHost(head);
    if (head.volume_index() >= warm_up) arrivals.push_back(ArrivalOf(head, frame.at_ns));
  }
  *overrun = false;
  if (!reader->Finish()) return report.Refuse(name, "the subscription ended early");
  const auto ended = WaitForScan(session, *scan);
  if (!ended.has_value()) return;
  *overrun = ended->reason_code() == v1::REASON_SOURCE_OVERRUN;
  if (*overrun && may_be_slower) return;
  if (problem.empty()) problem = ProblemOf(*ended, warm_up + counted);
  if (problem.empty() && arrivals.size() != counted)
    problem = std::to_string(arrivals.size()) + " of " + std::to_string(counted) + " frames came";
  if (problem.empty() && !same_host)
    problem = "the server runs on another host, whose clock is not this one's";
  if (!problem.empty()) return report.Refuse(name, problem);

  std::vector<double> total;
  std::array<std::vector<double>, kStages> stages;
  double sum = 0;
  size_t known = 0;
  for (const Arrival& a : arrivals) {
    total.push_back(a.total_us);
    sum += a.total_us;
    known += a.known;
    for (size_t i = 0; i < kStages; ++i) stages[i].push_back(a.stage_us[i]);
  }
  if (known != arrivals.size())
    return report.Refuse(name, "the times of the stages are not in order, or some are not known");
  nlohmann::json shares = nlohmann::json::array();
  char line[256];
  std::snprintf(line, sizeof line,
                "\n%s of %zu volumes, %u x %u A-scans of %u samples, %s A-scans/s (%.2f "
                "GB/s)\n  p50 %.0f us   p90 %.0f us   p99 %.0f us   max %.0f us\n",
                name, total.size(), flags.ascans, flags.bscans, flags.samples, Count(rate).c_str(),
                rate * flags.samples * 2e-9, Percentile(total, 50), Percentile(total, 90),
                Percentile(total, 99), Percentile(total, 100));
  std::string text = line + HistogramText(total) + "  stage        share    p50 us    p99 us\n";
  for (size_t i = 0; i < kStages; ++i) {
    double stage_sum = 0;
    for (const double us : stages[i]) stage_sum += us;
    std::snprintf(line, sizeof line, "  %-10s %5.1f %% %9.1f %9.1f  %s\n", kStageNames[i],
                  100 * stage_sum / sum, Percentile(stages[i], 50), Percentile(stages[i], 99),
                  kStageTexts[i]);
    text += line;
    shares.push_back({{"stage", kStageNames[i]},
                      {"share", stage_sum / sum},
                      {"p50_us", Percentile(stages[i], 50)},
                      {"p99_us", Percentile(stages[i], 99)},
                      {"what", kStageTexts[i]}});
  }
  const std::string included =
      std::string("last raw byte in host memory -> MIP in a client here, ") +
      (way == Way::kGrpc ? "by gRPC" : "by memory that both map") + ", while streaming " +
      Count(rate) + " A-scans/s";
  const std::string verified =
      "all " + std::to_string(frames) +
      " projections equal to that of the voxels; nothing dropped or missing";
  for (const auto& [what, percent] : std::vector<std::pair<const char*, double>>{
           {"p50", 50}, {"p90", 90}, {"p99", 99}, {"max", 100}}) {
    Figure figure{.name = std::string(name) + " " + what,
                  .included = included,
                  .unit = "us",
                  .ceiling_name = "",
                  .verified = verified,
                  .value = Percentile(total, percent)};
    if (percent < 51)
      figure.more = {{"stages", shares},
                     {"volumes", total.size()},
                     {"ascans_per_s", rate},
                     {"mean_us", sum / static_cast<double>(total.size())}};
    report.Add(figure);
  }
  report.Note(text);
}

}  // namespace

void BenchLatency(Session& session, const BenchFlags& flags, BenchReport& report) {
  double rate = flags.rate_hz > 0 ? flags.rate_hz : HalfTheStreamingRate(session, flags, report);
  if (rate <= 0)
    return report.Refuse(NameOf(Way::kGrpc), "the machine's streaming rate is not known");
  // A machine with other work may not sustain half of the rate that it streamed a moment ago. A
  // requested rate stays.
  for (const Way way : {Way::kGrpc, Way::kMemory}) {
    bool overrun = true;
    for (int halvings = 0; overrun && halvings <= 4; ++halvings) {
      MeasureAt(way, rate, flags.rate_hz == 0 && halvings < 4, session, flags, report, &overrun);
      if (overrun) rate /= 2;
    }
  }
}

}  // namespace octavo::cli
