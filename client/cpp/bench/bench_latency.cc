// octavo bench latency: from the last raw byte of a volume in host memory to its en face projection
// in this process, stage by stage.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>

#include "octavo/v1/stream.grpc.pb.h"

#include "client/cpp/bench/bench.h"
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
    "-> the frame is handed to gRPC (queue, worker, checksum)",
    "-> the whole frame is in this process"};

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

constexpr char kName[] = "latency";

// `overrun` is set, and nothing reported, if the machine was too slow for `rate` and
// `may_be_slower`.
void MeasureAt(double rate, bool may_be_slower, Session& session, const BenchFlags& flags,
               BenchReport& report, bool* overrun) {
  *overrun = false;
  const double volume_seconds = flags.ascans * static_cast<double>(flags.bscans) / rate;
  const auto counted =
      static_cast<uint32_t>(std::clamp(4 * flags.seconds / volume_seconds, 10.0, 5000.0));
  const uint32_t warm_up = std::max(4u, counted / 10);
  v1::ScanSpec spec =
      RepeatedScan(flags.ascans, flags.bscans, flags.samples, warm_up + counted, rate);
  const auto reference = MakeVolume(session, spec);
  if (!reference.has_value()) return report.Refuse(kName, "there is no volume to compare with");
  Discard(session, reference->volume.name());
  const std::string wanted = ProjectionOf(*reference);
  if (std::all_of(wanted.begin(), wanted.end(), [&](char c) { return c == wanted[0]; }))
    return report.Refuse(kName, "the projection is all alike");

  spec.mutable_retention()->set_disposition(v1::DISPOSITION_AUTO_DISCARD);
  spec.mutable_retention()->set_hold_slots(4);
  spec.set_overrun(v1::OVERRUN_FAIL_SCAN);
  v1::SubmitScanRequest submit;
  *submit.mutable_spec() = spec;
  v1::SubmitScanResponse answer;
  const auto channel = session.channel();
  if (!Check(session, v1::ScanService::NewStub(channel)->SubmitScan(session.Context().get(), submit,
                                                                    &answer)))
    return;
  v1::SubscribeRequest subscribe;
  subscribe.set_parent(answer.scan().name());
  subscribe.add_products(v1::PRODUCT_MIP);
  subscribe.set_preview(false);
  subscribe.set_delivery(v1::DELIVERY_LOSSLESS);
  subscribe.set_queue_length(256);
  grpc::ClientContext context;
  auto reader = v1::StreamService::NewStub(channel)->Subscribe(&context, subscribe);
  std::vector<Arrival> arrivals;
  std::string problem, data;
  int64_t frames = 0;
  bool same_host = true;
  v1::SubscribeResponse part;
  v1::Frame head;
  while (reader->Read(&part)) {
    if (part.has_frame()) {
      head.Swap(part.mutable_frame());
      data.swap(*part.mutable_data());
    } else {
      data += part.data();
    }
    if (data.size() < part.total_bytes()) continue;
    const int64_t received = MonotonicNs();
    ++frames;
    if (problem.empty() && data != wanted)
      problem = "the projection of volume " + std::to_string(head.volume_index()) +
                " is not that of its voxels";
    if (problem.empty() && (head.dropped_before() != 0 || !head.complete()))
      problem = "a frame was dropped or incomplete";
    same_host &= SameHost(head);
    if (head.volume_index() >= warm_up) arrivals.push_back(ArrivalOf(head, received));
  }
  *overrun = false;
  if (!Check(session, reader->Finish()))
    return report.Refuse(kName, "the subscription ended early");
  const auto ended = WaitForScan(session, answer.scan().name());
  if (!ended.has_value()) return;
  *overrun = ended->reason_code() == v1::REASON_SOURCE_OVERRUN;
  if (*overrun && may_be_slower) return;
  if (problem.empty()) problem = ProblemOf(*ended, warm_up + counted);
  if (problem.empty() && arrivals.size() != counted)
    problem = std::to_string(arrivals.size()) + " of " + std::to_string(counted) + " frames came";
  if (problem.empty() && !same_host)
    problem = "the server runs on another host, whose clock is not this one's";
  if (!problem.empty()) return report.Refuse(kName, problem);

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
    return report.Refuse(kName, "the times of the stages are not in order, or some are not known");
  nlohmann::json shares = nlohmann::json::array();
  char line[256];
  std::snprintf(line, sizeof line,
                "\nlatency of %zu volumes, %u x %u A-scans of %u samples, %s A-scans/s (%.2f "
                "GB/s)\n  p50 %.0f us   p90 %.0f us   p99 %.0f us   max %.0f us\n",
                total.size(), flags.ascans, flags.bscans, flags.samples, Count(rate).c_str(),
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
      "last raw byte in host memory -> MIP in a gRPC client here, while streaming " + Count(rate) +
      " A-scans/s";
  const std::string verified =
      "all " + std::to_string(frames) +
      " projections equal to that of the voxels; nothing dropped or missing";
  for (const auto& [name, percent] : std::vector<std::pair<const char*, double>>{
           {"latency p50", 50}, {"latency p90", 90}, {"latency p99", 99}, {"latency max", 100}}) {
    Figure figure{.name = name,
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
  if (rate <= 0) return report.Refuse(kName, "the machine's streaming rate is not known");
  // A machine with other work may not sustain half of the rate that it streamed a moment ago. A
  // requested rate stays.
  bool overrun = true;
  for (int halvings = 0; overrun && halvings <= 4; ++halvings, rate /= 2) {
    MeasureAt(rate, flags.rate_hz == 0 && halvings < 4, session, flags, report, &overrun);
  }
}

}  // namespace octavo::cli
